"""The quarantine's error: source, file, what is legal, and the way out."""

from collections.abc import Iterable, Sequence

from operators.errors import TidemarkError

_SHOWN = 5


class QuarantineError(TidemarkError, RuntimeError):
    """What was kept out cannot be put in again as asked."""

    @classmethod
    def no_source(cls, source: str, legal: Iterable[str]) -> "QuarantineError":
        """No source has this name."""
        return cls(f"`source` is {source!r}; legal: {', '.join(legal)}")

    @classmethod
    def no_file(cls, source: str, name: str, legal: Sequence[str]) -> "QuarantineError":
        """No such file was set aside."""
        shown = ", ".join(legal[:_SHOWN]) + (f", and {len(legal) - _SHOWN} more" if len(legal) > _SHOWN else "")
        return cls(
            f"`file` is {name!r}, and no such file of source {source!r} is in quarantine; legal: {shown or 'none, for none is'}. "
            "`tidemark quarantine list` shows them"
        )

    @classmethod
    def not_retried(cls, source: str, file: str, why: str) -> "QuarantineError":
        """Reading the file again would not bring its rows in."""
        return cls(
            f"`file` is {file!r} of source {source!r}, which would be refused again: {why}. "
            "Legal: a file of which no row was ever read, and that has some bytes. Land its rows under another name"
        )

    @classmethod
    def no_header(cls, source: str, file: str, why: str) -> "QuarantineError":
        """The columns of rejected CSV rows are not known."""
        return cls(
            f"rows of source {source!r} cannot be released: their columns are told by the header of {file}, and {why}. Legal: a file "
            "that is as it was when its rows were read. Restore it, or release the others by `--file`, or by `--reason`"
        )

    @classmethod
    def holds_bytes(cls, source: str, file: str, columns: Sequence[str]) -> "QuarantineError":
        """Rows of a Parquet file hold bytes, which the text of a JSON row cannot give back."""
        return cls(
            f"rows of source {source!r} cannot be released: those of {file} hold bytes ({', '.join(columns)}), and a row of Parquet is "
            "released as JSON, which holds text. Legal: rows without bytes. Land these rows again as Parquet under another name, or "
            "release the others by `--file`, or by `--reason`"
        )

    @classmethod
    def not_renamed(cls, source: str, name: str) -> "QuarantineError":
        """The folder does not take the new file."""
        return cls(
            f"the released rows of source {source!r} could not be given their name {name} in its folder. Legal: a folder that this "
            "process may write to. They are kept there under a hidden name: put it right, and run the release again"
        )
