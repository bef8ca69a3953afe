"""The errors of an ingest: source, file, what is legal, and the way out."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from operators.errors import TidemarkError
from platform_defs.engine.formats.new_columns import Brought
from platform_defs.engine.formats.unreadable_files import Unread
from platform_defs.engine.ledger.ledger import Entry

_SHOWN = 5


class IngestError(TidemarkError, RuntimeError):
    """A micro-batch was not ingested; nothing of it is in the ledger."""

    @classmethod
    def rule_failed(cls, source: str, broken: Mapping[str, int]) -> "IngestError":
        """Rows broke rules whose action is to fail."""
        counts = ", ".join(f"{rule} ({count} rows)" for rule, count in sorted(broken.items()))
        return cls(
            f"source {source!r} broke rules whose action is 'fail': {counts}; nothing of the micro-batch was committed. "
            "Mend the input, or give the rule the action 'quarantine' or 'warn'"
        )

    @classmethod
    def refused(cls, source: str, column: Brought) -> "IngestError":
        """A file brings a column that the contract refuses."""
        return cls(
            f"source {source!r} refuses new columns and {column.path} brings {column.name!r}; nothing of the micro-batch was committed. "
            "Add the column to the contract's schema, give `new_columns` another value (ignore, quarantine, add), or take the file away"
        )

    @classmethod
    def no_source(cls, source: str, sources: Iterable[str]) -> "IngestError":
        """No source has the name."""
        return cls(f"no source is named {source!r}; the sources: {', '.join(sources)}")

    @classmethod
    def not_replayed(cls, source: str, reason: str) -> "IngestError":
        """A row of a recorded batch does not pass its contract."""
        return cls(f"a row to replay into {source!r} does not pass its contract: {reason}")

    @classmethod
    def no_folder(cls, source: str, folder: str, why: str) -> "IngestError":
        """A source's folder is no place to read from."""
        return cls(
            f"the folder {folder} of source {source!r} cannot be used: {why}; legal: a folder that this process may read, or make. "
            "Nothing was ingested: put it right, or choose another root of the input files (TIDEMARK_LANDING), and run again"
        )

    @classmethod
    def miscounted(cls, source: str, counted: int, held: int) -> "IngestError":
        """The log holds another number of rows than were counted."""
        return cls(
            f"source {source!r}: {counted} rows were to be written and the table holds {held}; "
            "the input changed while it was read. Run the ingest again"
        )


@dataclass(eq=False)
class UnreadError(IngestError):
    """Files that could not be read now, or folders that could not be listed, were passed over; all else was ingested.

    Args:
        unread: the files.
        entries: what was ingested all the same.
        unlisted: what could not be looked at, by path, and why.
    """

    unread: Sequence[Unread]
    entries: Sequence[Entry]
    unlisted: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__init__(str(self))

    def __str__(self) -> str:
        by_source = sorted({u.file.source for u in self.unread})
        of_sources = [_of_source(name, [u for u in self.unread if u.file.source == name]) for name in by_source]
        files = "; ".join([*of_sources, *[f"{path} cannot be listed: {why}" for path, why in [*self.unlisted.items()][:_SHOWN]]])
        them = "it" if len(self.unread) + len(self.unlisted) == 1 else "them"
        return (
            f"{files}. The machine, the store or the network is at fault, not the content, so nothing is recorded of {them}: the next "
            "ingest tries again, and all other files were ingested. Legal: a file that this process can read to its end. "
            "Mend what stands in the way and run the ingest again, or take the file out of the folder"
        )


def _of_source(name: str, unread: Sequence[Unread]) -> str:
    shown = [f"{u.file.path} ({u.reason})" for u in unread[:_SHOWN]]
    more = [f"and {len(unread) - _SHOWN} more"] if len(unread) > _SHOWN else []
    return f"source {name!r}: {len(unread)} file{'s' * (len(unread) > 1)} could not be read: {', '.join([*shown, *more])}"
