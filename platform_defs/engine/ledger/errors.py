"""What is wrong with a ledger: entry, table, file, and the way out."""

from operators.errors import TidemarkError

_WAY_OUT = (
    "Nothing was written. Restore the lake's folder from a backup, the ledger together with the logs; if there is none, "
    "let the sources in again into a new lake (TIDEMARK_LAKE)"
)


class LedgerError(TidemarkError, RuntimeError):
    """The ledger cannot be trusted: nothing is read or written until it can."""

    @classmethod
    def broken(cls, seq: int, fault: str, table: str, file: str) -> "LedgerError":
        """An entry does not follow the one before it."""
        return cls(f"the ledger is broken at entry {seq}: {fault} (table {table}, file {file}). {_WAY_OUT}")

    @classmethod
    def unreadable(cls, after: int, table: str, file: str, why: str) -> "LedgerError":
        """A file is missing, or cannot be read."""
        return cls(
            f"the ledger cannot be read after entry {after}: file {file} of table {table} is missing or unreadable ({why}). {_WAY_OUT}"
        )

    @classmethod
    def too_short(cls, head: int, seq: int, witness: str, table: str) -> "LedgerError":
        """Another table names an entry that the ledger does not have."""
        return cls(
            f"the ledger has lost entries: table {table} ends at entry {head}, and {witness} names entry {seq}, "
            f"which was committed; the files {table}/_delta_log tell which are missing. {_WAY_OUT}"
        )

    @classmethod
    def log_too_short(cls, table: str, held: int, wanted: int, path: str) -> "LedgerError":
        """A log does not hold a batch that the ledger says brought rows to it."""
        return cls(
            f"table {table} has lost rows: its newest commit is of batch {held}, and the ledger says that batch {wanted} brought rows to "
            f"it, so the newest files of {path}/_delta_log were deleted or damaged. {_WAY_OUT}"
        )
