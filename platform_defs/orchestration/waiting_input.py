"""Finds input that no batch of the ledger contains yet, without Spark, for sensors."""

import hashlib
from dataclasses import dataclass

from platform_defs.engine import Engine
from platform_defs.safe_text import first_texts

_SHOWN = 3
"""How many problems, and how many sources that are ahead, a skip reason names at most."""


@dataclass(frozen=True)
class WaitingInput:
    """The result of a look for input that no batch contains.

    Args:
        subject: a text that describes the waiting input and changes when the input does; None if nothing waits.
        problems: the folders, files and topics that could not be checked, each with the reason.
        is_complete: False if input may wait that was not seen: a topic could not be checked, or only Spark can list a folder.
        ahead: the sources that are not read now, each with the source of its alignment group for which it waits.
    """

    subject: str | None
    problems: tuple[str, ...] = ()
    is_complete: bool = True
    ahead: tuple[str, ...] = ()

    @property
    def reason(self) -> str:
        """Why no run is requested: input that could not be checked or is not read now, or that nothing has landed."""
        return "; ".join([*first_texts(self.problems, _SHOWN), *first_texts(self.ahead, _SHOWN)]) or "nothing new has landed"


def waiting_input(engine: Engine) -> WaitingInput:
    """Files that are not recorded in their present state, partitions with records to read, and sources that need a batch without rows.

    A source needs one if it has become idle, or if its watermark follows the clock and results wait for it.

    The input of a source that is ahead of its alignment group does not count: an ingest would not read it now.
    """
    ingestion, ahead = engine.ingestion, engine.ingestion.ahead
    sources = [source for source in sorted(engine.folders) if source not in ahead]
    new_files = [file for source in sources for file in ingestion.new_files(source)]
    for_control_batch, records = engine.pending.sources_for_control_batch(), ingestion.new_records(ahead)
    problems = (
        *(f"{path} cannot be listed: {reason}" for source in sources for path, reason in ingestion.unlisted(source).items()),
        *(f"{path} cannot be checked: {reason}" for path, reason in records.unlisted.items()),
        *(f"{path} does not exist" for path in records.missing),
    )
    is_complete = not records.unlisted and all(map(ingestion.can_list, sources))
    waits = tuple(f"{name} waits for {lead.source} of its alignment group" for name, lead in sorted(ahead.items()))
    if not new_files and not for_control_batch and not records.ends:
        return WaitingInput(None, problems, is_complete, waits)
    files = hashlib.sha256("\n".join(sorted(file.offset for file in new_files)).encode()).hexdigest()[:16]
    ends = ",".join(f"{path}:{end}" for path, end in sorted(records.ends.items()))
    return WaitingInput(f"{engine.ledger.head}:{len(new_files)}:{files}:{','.join(for_control_batch)}:{ends}", problems, is_complete, waits)
