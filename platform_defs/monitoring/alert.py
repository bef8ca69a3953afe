"""An alert: a job or a check that has failed several times in a row, or that has succeeded again."""

from dataclasses import asdict, dataclass
from typing import Any, Literal

from assets.days import moment
from assets.factories.sentences import count


@dataclass(frozen=True)
class Alert:
    """The content of an alert.

    Args:
        subject: the job or the check, such as `job advance` or `check conservation_law of order_wide`.
        state: `failing`, or `recovered` if it has succeeded since.
        failures: how often in a row it has failed; it may have failed more often.
        since_s: when the first of these failures ended, in epoch s.
        run_id: the run of the newest failure, or of the success; None for a check that no run evaluated.
        reason: why it failed; None if it is not known, or after a success.
        url: the run in Dagster's UI; None if the UI's address is not set.
    """

    subject: str
    state: Literal["failing", "recovered"]
    failures: int
    since_s: float
    run_id: str | None = None
    reason: str | None = None
    url: str | None = None

    @property
    def title(self) -> str:
        """The alert in a few words."""
        return f"Tidemark: {self.subject} {'fails' if self.state == 'failing' else 'succeeds again'}"

    @property
    def text(self) -> str:
        """The alert as text for people."""
        since = moment(round(self.since_s * 1000)).isoformat(sep=" ", timespec="seconds").replace("+00:00", "Z")
        if self.state == "recovered":
            first_line = f"{self.title}. It had failed since {since}."
        else:
            times = f" {count(self.failures, 'time')} in a row" if self.failures > 1 else ""
            first_line = f"Tidemark: {self.subject} has failed{times}, since {since}."
        run = self.url or (f"Run {self.run_id}." if self.run_id else "")
        return "\n".join(part for part in (first_line, self.reason, run) if part)

    def as_json(self) -> dict[str, Any]:
        """The alert as plain data, with its `title` and its `text`."""
        return asdict(self) | {"title": self.title, "text": self.text}
