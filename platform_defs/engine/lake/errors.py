"""The lake's error: the text says what stands in the way and what to do; and what may be shown of an error of Spark."""

from collections.abc import Sequence

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from operators.errors import TidemarkError

_LONGEST_WHY = 200


def spark_condition(error: PySparkException | Py4JJavaError) -> str:
    """What Spark failed with, by class and condition: its text may quote rows."""
    if isinstance(error, PySparkException):
        return " ".join(filter(None, (type(error).__name__, error.getCondition())))
    return str(error.java_exception.getClass().getName())


class LakeError(TidemarkError, RuntimeError):
    """The lake cannot do what was asked; the text says what stands in the way and what to do."""

    @classmethod
    def lost(cls, name: str, holder: str) -> "LakeError":
        """The lease ran out, and another writer took it."""
        return cls(
            f"{name} has another writer by now: {holder}; this process did not renew its lease in time (it was suspended, or "
            "could not reach the lake), so it stopped before its next commit. Run it again when the other has ended; "
            "TIDEMARK_LEASE sets how long a lease lasts"
        )

    @classmethod
    def overtaken(cls, table: str, thing: str) -> "LakeError":
        """Another writer has committed since this one looked."""
        return cls(
            f"{table} has a newer {thing} than this process started from: another writer has committed meanwhile, so nothing was written. "
            "Run it again when the other has ended; if nobody else should write, look for a second process, or a lease that ran out"
        )

    @classmethod
    def other_columns(cls, table: str, differing: Sequence[str]) -> "LakeError":
        """Rows have other columns than the table."""
        return cls(
            f"{table} holds other columns than the rows to be written: {'; '.join(differing)}. Nothing was written. Legal: the table's "
            "own columns; give the column its former type or name, or another name, or choose another lake (TIDEMARK_LAKE)"
        )

    @classmethod
    def forgotten(cls, table: str, key: str) -> "LakeError":
        """No commit of the table remembers what is needed."""
        return cls(
            f"no commit of {table} tells its {key}: it was written by something else, or its history was cleaned; "
            "rebuild it into a new lake"
        )

    @classmethod
    def missing_file(cls, table: str, file: str, entries: str) -> "LakeError":
        """A data file that the table's log names is not there, or cannot be read."""
        return cls(
            f"{table} lacks a data file: {file}{entries} is in the table's log, and is missing or unreadable; "
            "nothing was computed without it. "
            "Restore the file from a backup; if there is none, let the sources in again into a new lake (TIDEMARK_LAKE)"
        )

    @classmethod
    def newer(cls, root: str, found: int, known: int) -> "LakeError":
        """A later version of the project made the lake."""
        return cls(
            f"the lake {root} has format {found}, and this version of Tidemark knows formats up to {known}; nothing was read or written. "
            "Install the version that made it, or a later one, or choose another lake"
        )

    @classmethod
    def unusable(cls, root: str, why: str) -> "LakeError":
        """The root is no place to write to."""
        return cls(
            f"the lake {root} cannot be written to: {why}; legal: a folder that this process may write to, on a file system mounted "
            "for writing. Nothing that was committed is lost: put it right, or choose another lake, and run again"
        )

    @classmethod
    def full(cls, root: str, why: str) -> "LakeError":
        """The disk is full, or a quota is used up."""
        return cls(
            f"no space is left for the lake {root}, or for Spark's temporary files: {why}; what was committed before is whole, and what "
            "was not will be done again. Free some space, or enlarge the disk or the quota, and run again"
        )


class UnreadableLogError(LakeError):
    """A table's Delta log cannot be read.

    Args:
        why: what stands in the way, in one line.
    """

    def __init__(self, text: str, why: str) -> None:
        super().__init__(text)
        self.why = why

    @classmethod
    def of(cls, table: str, path: str, error: Exception) -> "UnreadableLogError":
        """A file of the log is missing between others, damaged, or out of reach."""
        why = (str(error).splitlines() or [type(error).__name__])[0][:_LONGEST_WHY]
        return cls(
            f"the Delta log of {table} cannot be read: a file of {path}/_delta_log is missing, damaged or out of reach ({why}). "
            "Nothing was computed or written. Restore the folder from a backup. A table that is made of others can be deleted instead, an "
            "upserted one together with its changelog, and made again with `tidemark rebuild NAME --downstream`",
            why,
        )


class LakeBusy(LakeError):
    """Somebody else is writing."""

    @classmethod
    def held(cls, name: str, holder: str) -> "LakeBusy":
        """Another writer holds the place."""
        return cls(f"{name} has a writer already: {holder}; one writer at a time keeps it exact, so wait for it or end it")

    @classmethod
    def waited(cls, name: str, holder: str, waited_s: float) -> "LakeBusy":
        """Maintenance did not end."""
        return cls(
            f"{name} has a writer already: {holder}; it is maintenance, and did not end in {waited_s / 60:.0f} minutes. "
            "Nothing was written. End that process if it hangs (its place is free at once, and what it did is whole), and run again"
        )
