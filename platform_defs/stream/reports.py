"""The reports of a running stream, which the command line prints and a Dagster run turns into events."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from platform_defs.engine.accounting.day_accounts import DayAccount
from platform_defs.engine.advance.advance import Step
from platform_defs.engine.ledger.ledger import Batch
from platform_defs.engine.operations.advance_all import PendingRetry
from platform_defs.engine.operations.publish_to_topic import Published

Steps = Mapping[str, Sequence[Step]]
"""The steps of some tables, by table."""
Accounts = Mapping[str, Sequence[DayAccount]]
"""The accounts of some tables, by table; the conservation law holds for each."""


class Reports(Protocol):
    """Receives the reports of a stream, all in the thread that runs it."""

    def report_batch(self, batch: Batch) -> None:
        """A batch was committed to the ledger."""
        ...

    def report_steps(self, steps: Steps, took_s: float) -> None:
        """Tables have made steps, in some seconds."""
        ...

    def report_failure(self, asset: str, failure: PendingRetry) -> None:
        """A table has failed, or has another writer, and waits for its next try."""
        ...

    def report_accounts(self, accounts: Accounts, took_s: float) -> None:
        """Tables were accounted for, in some seconds."""
        ...

    def report_unaccounted(self, asset: str, error: Exception) -> None:
        """A table could not be accounted for; the next try is after its next step."""
        ...

    def report_published(self, published: Mapping[str, Published]) -> None:
        """Steps of tables were published to their topics, by table."""
        ...

    def report_unpublished(self, asset: str, failure: PendingRetry) -> None:
        """A table could not be published to its topic, and waits for its next try."""
        ...

    def report_turn(self, waiting: Mapping[str, PendingRetry], unpublished: Mapping[str, PendingRetry]) -> None:
        """A turn has ended: a batch was ingested and the tables were advanced, or the interval has passed without a batch.

        Args:
            waiting: the tables that wait for the next try to advance them.
            unpublished: the tables that wait for the next try to publish them.
        """
        ...
