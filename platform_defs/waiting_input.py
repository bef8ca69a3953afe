"""The input that no batch of the ledger has yet, as sensors find it without Spark."""

from dataclasses import dataclass

from platform_defs.engine import Engine

_SHOWN = 3
"""The number of folders that a skip reason names."""


@dataclass(frozen=True)
class WaitingInput:
    """Input that an ingest would record.

    Args:
        subject: what waits, in a text that changes with it; None if nothing waits.
        unlisted: the folders that could not be listed, each with the reason.
    """

    subject: str | None
    unlisted: tuple[str, ...] = ()

    @property
    def reason(self) -> str:
        """Why nothing waits."""
        return "; ".join(self.unlisted[:_SHOWN]) or "nothing new has landed"


def waiting_input(engine: Engine) -> WaitingInput:
    """The new files and idle sources; a file is new if the ledger does not list it."""
    fresh = [file for source in sorted(engine.folders) for file in engine.ingestion.new_files(source)]
    idle = engine.pending.idle()
    unlisted = tuple(f"{path} cannot be listed: {why}" for path, why in engine.ingestion.unlisted.items())
    if not fresh and not idle:
        return WaitingInput(None, unlisted)
    newest = max((file.offset for file in fresh), default="")
    return WaitingInput(f"{engine.ledger.head}:{len(fresh)}:{newest}:{','.join(idle)}", unlisted)
