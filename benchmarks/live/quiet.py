"""Reports of a stream that nobody reads; a failure is raised."""

from collections.abc import Mapping

from platform_defs.engine.ledger.ledger import Batch
from platform_defs.engine.operations.advance_all import PendingRetry
from platform_defs.engine.operations.publish_to_topic import Published
from platform_defs.stream.reports import Accounts, Steps


class QuietReports:
    """Reports of a stream; see `platform_defs.stream.reports.Reports`."""

    def report_batch(self, batch: Batch) -> None:
        """Nothing."""

    def report_steps(self, steps: Steps, took_s: float) -> None:
        """Nothing."""

    def report_failure(self, asset: str, failure: PendingRetry) -> None:
        """Nothing; the end of the stream is an error."""

    def report_accounts(self, accounts: Accounts, took_s: float) -> None:
        """Nothing."""

    def report_unaccounted(self, asset: str, error: Exception) -> None:
        """Raise the error."""
        raise error

    def report_published(self, published: Mapping[str, Published]) -> None:
        """Nothing."""

    def report_unpublished(self, asset: str, failure: PendingRetry) -> None:
        """Nothing; the end of the stream is an error."""

    def report_turn(self, waiting: Mapping[str, PendingRetry], unpublished: Mapping[str, PendingRetry]) -> None:
        """Nothing."""
