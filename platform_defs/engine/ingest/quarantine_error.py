"""The quarantine's error, which names source and file, what is legal, and what to do."""

from collections.abc import Iterable, Sequence

from operators.errors import TidemarkError
from platform_defs.safe_text import first_texts

_SHOWN = 5


class QuarantineError(TidemarkError, RuntimeError):
    """Quarantined files or rows cannot be retried or released."""

    @classmethod
    def no_source(cls, source: str, legal: Iterable[str]) -> "QuarantineError":
        """No source has this name."""
        return cls(f"`source` is {source!r}; legal: {', '.join(legal)}")

    @classmethod
    def no_file(cls, source: str, name: str, legal: Sequence[str]) -> "QuarantineError":
        """No file of this name is in quarantine."""
        files = ", ".join(first_texts(legal, _SHOWN))
        return cls(
            f"`file` is {name!r}, but no such file of source {source!r} is in quarantine; legal: {files or 'none, there are no files'}. "
            "`tidemark quarantine list` shows them"
        )

    @classmethod
    def not_retried(cls, source: str, file: str, reason: str) -> "QuarantineError":
        """Reading the file again would not ingest its rows."""
        return cls(
            f"`file` is {file!r} of source {source!r}, which would be refused again: {reason}. "
            "Legal: a file in a format that can be read, of which no row was ever read, and that has some bytes. Land its rows under "
            "another name"
        )

    @classmethod
    def deleted(cls, source: str, file: str) -> "QuarantineError":
        """The file was missing when it was read."""
        return cls(
            f"`file` is {file!r} of source {source!r}, which was deleted before it was read. Legal: a file that could be found. Land it "
            "again: the next ingest reads it without a request"
        )

    @classmethod
    def not_avro(cls, source: str, path: str) -> "QuarantineError":
        """A record of a topic is not readable Avro, so it cannot be written to a file of JSON objects."""
        return cls(
            f"source {source!r}: records of {path} are not readable Avro, so they cannot be released to a file of JSON objects; release "
            "the rows with other reasons (--reason), and send these records again to the topic"
        )

    @classmethod
    def lost_part(cls, source: str, path: str, reason: str) -> "QuarantineError":
        """The key or a header of a record is not text, and the quarantine has only its legible characters."""
        return cls(
            f"source {source!r}: records of {path} cannot be released ({reason}): the quarantine has the parts of a record as text, so "
            "this part would be changed. Legal: records whose parts are UTF-8. Release the rows with other reasons (--reason), and send "
            "these records again to the topic"
        )

    @classmethod
    def no_header(cls, source: str, file: str, fault: str) -> "QuarantineError":
        """The columns of rejected CSV rows are not known."""
        return cls(
            f"rows of source {source!r} cannot be released: their columns are in the header of {file}, but {fault}. Legal: a file that has "
            "not changed since its rows were read. Restore it, or select other rows by `--file` or `--reason`"
        )

    @classmethod
    def contains_bytes(cls, source: str, file: str, columns: Sequence[str]) -> "QuarantineError":
        """Rows of a Parquet file contain bytes, which would be lost in the text of a JSON row."""
        return cls(
            f"rows of source {source!r} cannot be released: those of {file} contain bytes ({', '.join(columns)}), and a row of Parquet is "
            "released as JSON, which contains only text. Legal: rows without bytes. Land these rows again as Parquet under another name, "
            "and release the others by `--file` or `--reason`"
        )

    @classmethod
    def not_renamed(cls, source: str, name: str) -> "QuarantineError":
        """The new file cannot be renamed in the folder."""
        return cls(
            f"the file {name} with released rows of source {source!r} could not be renamed in its folder. Legal: a folder that this "
            "process may write to. The file is there under a hidden name: fix the folder, and run the release again"
        )
