"""The ledger's error, which names batch, table and file, and says what to do."""

from operators.errors import TidemarkError

_WAY_OUT = (
    "Nothing was written. Restore the lake's folder from a backup, the ledger together with the logs; if there is none, "
    "ingest the sources again into a new lake (TIDEMARK_LAKE)"
)


class LedgerError(TidemarkError, RuntimeError):
    """The ledger, an event log or a quarantine is corrupted; nothing is read or written until it is restored.

    It is also raised for a batch that a summary has replaced, and for a commit of batches that do not follow the newest one.
    """

    @classmethod
    def corrupted(cls, seq: int, fault: str, table: str, file: str) -> "LedgerError":
        """A batch does not follow the one before it."""
        return cls(f"the ledger is corrupted at batch {seq}: {fault} (table {table}, file {file}). {_WAY_OUT}")

    @classmethod
    def unreadable(cls, after: int | None, table: str, file: str, reason: str) -> "LedgerError":
        """A file is missing, or cannot be read; `after` is the batch after which rows were read, None if the log cannot be read."""
        after_batch = "" if after is None else f" after batch {after}"
        return cls(f"the ledger cannot be read{after_batch}: file {file} of table {table} is missing or unreadable ({reason}). {_WAY_OUT}")

    @classmethod
    def summarized(cls, seq: int, upto: int) -> "LedgerError":
        """A batch was requested that a summary has replaced."""
        return cls(f"the ledger has no batch {seq} any more: retention has replaced the batches up to {upto} by a summary")

    @classmethod
    def too_short(cls, head: int, seq: int, recorded_in: str, table: str) -> "LedgerError":
        """Another table records a batch that the ledger does not have."""
        return cls(
            f"the ledger has lost batches: table {table} ends at batch {head}, but {recorded_in} records batch {seq}, "
            f"which was committed; the files {table}/_delta_log show which are missing. {_WAY_OUT}"
        )

    @classmethod
    def log_too_short(cls, table: str, newest_seq: int, recorded_seq: int, path: str) -> "LedgerError":
        """A log lacks the rows of a batch that the ledger records for it."""
        return cls(
            f"table {table} has lost rows: its newest commit is of batch {newest_seq}, but the ledger records rows of batch {recorded_seq} "
            f"in it, so the newest files of {path}/_delta_log were deleted or damaged. {_WAY_OUT}"
        )
