"""Reports of a stream that nobody reads; a failure is raised."""

from collections.abc import Mapping

from platform_defs.engine.ledger.ledger import Entry
from platform_defs.engine.operations.advance_all import Failed
from platform_defs.engine.operations.publish_to_topic import Published
from platform_defs.stream.reports import Accounts, Steps


class QuietReports:
    """Reports of a stream; see `platform_defs.stream.reports.Reports`."""

    def ingested(self, batch: Entry) -> None:
        """Nothing."""

    def advanced(self, steps: Steps, took_s: float) -> None:
        """Nothing."""

    def failed(self, asset: str, failed: Failed) -> None:
        """Nothing; the end of the stream is an error."""

    def held(self, accounts: Accounts, took_s: float) -> None:
        """Nothing."""

    def unaccounted(self, asset: str, error: Exception) -> None:
        """Raise the error."""
        raise error

    def published(self, done: Mapping[str, Published]) -> None:
        """Nothing."""

    def unpublished(self, asset: str, failed: Failed) -> None:
        """Nothing; the end of the stream is an error."""

    def turned(self, waiting: Mapping[str, Failed], unpublished: Mapping[str, Failed]) -> None:
        """Nothing."""
