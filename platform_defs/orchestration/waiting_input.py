"""Finds input that no batch of the ledger contains yet, without Spark, for sensors."""

from dataclasses import dataclass

from platform_defs.engine import Engine

_SHOWN = 3
"""How many folders and topics, and how many waiting sources, a skip reason names at most."""


@dataclass(frozen=True)
class WaitingInput:
    """Input that an ingest would record.

    Args:
        subject: a text that describes the waiting input and changes when the input does; None if nothing waits.
        unlisted: the folders and topics that could not be checked, each with the reason.
        is_known: whether no input can wait in a folder or a topic that only Spark can read.
        ahead: the sources that are not read now, each with the source of its alignment group for which it waits.
    """

    subject: str | None
    unlisted: tuple[str, ...] = ()
    is_known: bool = True
    ahead: tuple[str, ...] = ()

    @property
    def reason(self) -> str:
        """Why no run is requested: input that could not be checked or is not read now, or that nothing has landed."""
        return "; ".join([*self.unlisted[:_SHOWN], *self.ahead[:_SHOWN]]) or "nothing new has landed"


def waiting_input(engine: Engine) -> WaitingInput:
    """The new files, the new records of topics, and the idle sources; a file or record is new if the ledger does not list it.

    The input of a source that is ahead of its alignment group does not count: an ingest would not read it now.
    """
    ingestion, ahead = engine.ingestion, engine.ingestion.ahead
    read = [source for source in sorted(engine.folders) if source not in ahead]
    new_files = [file for source in read for file in ingestion.new_files(source)]
    idle, records = engine.pending.idle(), ingestion.new_records()
    unlisted = (
        *(f"{path} cannot be listed: {reason}" for source in read for path, reason in ingestion.unlisted(source).items()),
        *(f"{path} cannot be checked: {reason}" for path, reason in records.unlisted.items()),
        *(f"{path} does not exist" for path in records.missing),
    )
    is_known = not records.unlisted and all(map(ingestion.can_list, read))
    waits = tuple(f"{name} waits for {lead.source} of its alignment group" for name, lead in sorted(ahead.items()))
    if not new_files and not idle and not records.ends:
        return WaitingInput(None, unlisted, is_known, waits)
    newest = max((file.offset for file in new_files), default="")
    ends = ",".join(f"{path}:{end}" for path, end in sorted(records.ends.items()))
    return WaitingInput(f"{engine.ledger.head}:{len(new_files)}:{newest}:{','.join(idle)}:{ends}", unlisted, is_known, waits)
