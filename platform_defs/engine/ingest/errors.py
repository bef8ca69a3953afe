"""The errors of an ingest, which name source and file, what is legal, and what to do."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from operators.errors import TidemarkError, did_you_mean
from platform_defs.engine.formats.files import TOPIC
from platform_defs.engine.formats.new_columns import NewColumn
from platform_defs.engine.formats.unreadable_files import Unread
from platform_defs.engine.ledger.ledger import Batch
from platform_defs.safe_text import first_texts, shortened

_SHOWN = 5


class IngestError(TidemarkError, RuntimeError):
    """Input or a control batch was refused; the ledger has no batch with it."""

    @classmethod
    def rule_failed(cls, source: str, violations: Mapping[str, int]) -> "IngestError":
        """Rows violate rules with the action `fail`."""
        counts = ", ".join(f"{rule} ({count} rows)" for rule, count in sorted(violations.items()))
        return cls(
            f"source {source!r} violates rules whose action is 'fail': {counts}; nothing of the micro-batch was committed. "
            "Correct the input, or give the rule the action 'quarantine' or 'warn'"
        )

    @classmethod
    def watermark_failed(cls, source: str, watermark: str, condition: str) -> "IngestError":
        """The expression of a batch's watermark fails for a row of the batch. Spark's own text may quote the row."""
        return cls(
            f"source {source!r}: its `watermark`, {shortened(watermark)!r}, fails with {condition} for a row; nothing of the batch was "
            "committed, and a retry fails again. Write the expression so that it gives null instead of an error, with functions such as "
            "try_cast, try_to_timestamp or try_divide, or quarantine such rows by a rule. TIDEMARK_TRACEBACK=1 shows Spark's error, which "
            "may quote the row"
        )

    @classmethod
    def watermark_out_of_range(cls, source: str, watermark: str, value: int) -> "IngestError":
        """The expression of a batch's watermark gives a time that is not in the years 1 to 9999."""
        return cls(
            f"source {source!r}: its `watermark`, {shortened(watermark)!r}, is {value} in epoch ms, which is not in the years 1 to 9999; "
            "nothing of the batch was committed, and a retry fails again. Correct the expression: a number of "
            "seconds becomes a time by timestamp_seconds, and one of milliseconds by timestamp_millis"
        )

    @classmethod
    def refused(cls, source: str, column: NewColumn) -> "IngestError":
        """A file has a new column, and the contract refuses new columns."""
        return cls(
            f"source {source!r} refuses new columns and {column.path} has {column.name!r}; nothing of the micro-batch was committed. "
            "Add the column to the contract's schema, give `new_columns` another value (ignore, quarantine, add), or take the file away"
        )

    @classmethod
    def no_source(cls, source: str, sources: Iterable[str]) -> "IngestError":
        """No source has the name."""
        names = [*sources]
        return cls(f"no source is named {source!r}; the sources: {', '.join(names)}{did_you_mean(source, names)}")

    @classmethod
    def not_replayed(cls, source: str, reason: str) -> "IngestError":
        """A row of a recorded batch does not pass its contract."""
        return cls(f"a row to replay into {source!r} does not pass its contract: {reason}")

    @classmethod
    def no_such_batch(cls, source: str, unknown: Sequence[int], batches: int) -> "IngestError":
        """Rows to be replayed belong to batches that are not given."""
        legal = f"0 to {batches - 1}" if batches else "none, since no batch was given"
        return cls(f"rows to replay into {source!r} belong to the batches {list(unknown)}; legal: {legal}")

    @classmethod
    def no_folder(cls, source: str, folder: str, reason: str) -> "IngestError":
        """A source's folder cannot be read."""
        return cls(
            f"the folder {folder} of source {source!r} cannot be used: {reason}; legal: a folder that this process may read, or create. "
            "Nothing was ingested: fix the folder, or choose another root of the input files (TIDEMARK_LANDING), and run again"
        )

    @classmethod
    def no_store(cls, source: str, folder: str, reason: str) -> "IngestError":
        """Spark has no file system for the URI of a source's folder, or cannot open it."""
        return cls(
            f"the folder {folder} of source {source!r} cannot be used: Spark has no file system for it ({reason}). Nothing was ingested. "
            "Legal: a folder on this machine, an s3a:// URI once `make setup-s3` has fetched its JARs, or another store whose JARs "
            "TIDEMARK_CONNECTIONS lists (not tested); set TIDEMARK_LANDING"
        )

    @classmethod
    def miscounted(cls, source: str, counted: int, in_table: int) -> "IngestError":
        """The number of rows in the table differs from the number that was counted."""
        return cls(
            f"source {source!r}: {counted} rows were to be written, but the table has {in_table}; "
            "the input changed while it was read. Run the ingest again"
        )

    @classmethod
    def generator_failed(cls, source: str, statistics: object, error: Exception) -> "IngestError":
        """A watermark generator raised an error."""
        return cls(
            f"the watermark generator of source {source!r} raised {type(error).__name__}: {error}, for {statistics}. Nothing of the "
            "micro-batch was ingested. Correct its `on_batch`, and run the ingest again"
        )

    @classmethod
    def bad_watermark(cls, source: str, value: object, statistics: object) -> "IngestError":
        """A watermark generator returned a value that is no watermark."""
        return cls(
            f"the watermark generator of source {source!r} returned {value!r}, for {statistics}; legal: a whole number, in epoch ms of the "
            "years 1 to 9999, or None. Nothing of the micro-batch was ingested. Correct its `on_batch`, and run the ingest again"
        )


@dataclass(eq=False)
class UnreadError(IngestError):
    """Some files could not be read now, some folders could not be listed, or topics are refused; all other input was ingested.

    Args:
        unread: the files.
        batches: the batches that were committed.
        unlisted: why a folder, a file or a topic could not be listed, by its path.
        refused: why a topic of a source is not read until a user decides, by the source.
    """

    unread: Sequence[Unread]
    batches: Sequence[Batch]
    unlisted: Mapping[str, str] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__init__(str(self))

    def __str__(self) -> str:
        refused = [*self.refused.values(), "All other input was ingested"] if self.refused else []
        return ". ".join([*([self._not_read()] if self.unread or self.unlisted else []), *refused])

    def _not_read(self) -> str:
        by_source = sorted({failure.file.source for failure in self.unread})
        of_sources = [_of_source(name, [failure for failure in self.unread if failure.file.source == name]) for name in by_source]
        unlisted = [f"{path} cannot be listed: {reason}" for path, reason in self.unlisted.items()]
        files = "; ".join([*of_sources, *first_texts(unlisted, _SHOWN)])
        is_of_topics = all(failure.file.is_range for failure in self.unread) and all(path.startswith(TOPIC) for path in self.unlisted)
        of_broker = ". Check the options `kafka.*` of the connections, and whether the broker runs"
        way_out = of_broker if is_of_topics else ", or remove the file from the folder"
        pronoun = "it" if len(self.unread) + len(self.unlisted) == 1 else "them"
        return (
            f"{files}. The cause is the machine, the store or the network, not the content, so the ledger does not record {pronoun}: the "
            "next ingest tries again, and all other input was ingested. Legal: input that this process can read to its end. "
            f"Fix the cause and run the ingest again{way_out}"
        )


def _of_source(name: str, unread: Sequence[Unread]) -> str:
    shown = first_texts([f"{failure.file.path} ({failure.reason})" for failure in unread], _SHOWN)
    of_topics = all(failure.file.is_range for failure in unread)
    ranges_or_files = f"{'range' if of_topics else 'file'}{'s' * (len(unread) > 1)}{' of offsets' if of_topics else ''}"
    return f"source {name!r}: {len(unread)} {ranges_or_files} could not be read: {', '.join(shown)}"
