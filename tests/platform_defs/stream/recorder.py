"""Keeps the reports of a stream, in order."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from platform_defs.engine.ledger.ledger import Batch
from platform_defs.engine.operations.advance_all import PendingRetry
from platform_defs.engine.operations.publish_to_topic import Published
from platform_defs.stream.reports import Accounts, Steps


@dataclass
class Recorder:
    """The reports of a stream.

    Args:
        made: the kind and the value of each report, in order.
        waiting: the tables, and `kafka/NAME` of the sinks, that wait for another try after the newest turn.
    """

    made: list[tuple[str, Any]] = field(default_factory=list)
    waiting: list[str] = field(default_factory=list)

    def report_batch(self, batch: Batch) -> None:
        self.made.append(("batch", batch[0].seq))

    def report_steps(self, steps: Steps, took_s: float) -> None:
        self.made.append(("advanced", sorted(steps)))

    def report_failure(self, asset: str, failure: PendingRetry) -> None:
        self.made.append(("busy" if failure.is_busy else "failed", asset))

    def report_accounts(self, accounts: Accounts, took_s: float) -> None:
        self.made.append(("held", sorted(accounts)))

    def report_unaccounted(self, asset: str, error: Exception) -> None:
        self.made.append(("unaccounted", asset))

    def report_published(self, published: Mapping[str, Published]) -> None:
        self.made.append(("published", sorted(published)))

    def report_unpublished(self, asset: str, failure: PendingRetry) -> None:
        self.made.append(("unpublished", asset))

    def report_turn(self, waiting: Mapping[str, PendingRetry], unpublished: Mapping[str, PendingRetry]) -> None:
        self.waiting = [*waiting, *(f"kafka/{name}" for name in unpublished)]

    def of(self, kind: str) -> list[Any]:
        return [value for of_report, value in self.made if of_report == kind]

    @property
    def held_tables(self) -> list[str]:
        return sorted(name for names in self.of("held") for name in names)
