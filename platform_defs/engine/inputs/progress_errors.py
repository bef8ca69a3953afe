"""The errors of an asset's stored progress."""

from collections.abc import Sequence

from operators.errors import TidemarkError


class ProgressError(TidemarkError, RuntimeError):
    """An asset cannot be advanced from its stored progress."""

    @classmethod
    def other_operator(cls, asset: str, differing: Sequence[str]) -> "ProgressError":
        """The table was made with other settings."""
        return cls(
            f"{asset} was made with other settings than it has now: {'; '.join(differing)}. One table cannot have rows of both. "
            f"Use the former settings, or give the table another name, or run `tidemark rebuild {asset} --downstream`, "
            "which rebuilds the table, and every table that reads it, from the log"
        )

    @classmethod
    def input_replaced(cls, asset: str, replaced: Sequence[str], readers: Sequence[str]) -> "ProgressError":
        """An input was rebuilt, or lost commits, after the asset read it."""
        with_readers = f", and the tables that read it ({', '.join(readers)})," if readers else ""
        return cls(
            f"{asset} was computed from an earlier {', '.join(replaced)}, which has been replaced since, so its rows may be wrong. "
            f"Run `tidemark rebuild {asset} --downstream`, which rebuilds {asset}{with_readers} from the log"
        )

    @classmethod
    def read_by(cls, names: Sequence[str], readers: Sequence[str]) -> "ProgressError":
        """Tables that are to be rebuilt have downstream tables."""
        return cls(
            f"{', '.join(readers)} {'read' if len(readers) > 1 else 'reads'} {', '.join(names)}, and must be rebuilt too. "
            "Nothing was changed. Add `--downstream` to rebuild these tables as well"
        )

    @classmethod
    def renamed_source(cls, asset: str, former: Sequence[str], empty: Sequence[str]) -> "ProgressError":
        """A table was computed from sources that its asset no longer reads, and no row of its present sources was ingested."""
        return cls(
            f"{asset} was computed from {', '.join(former)}, and would be empty now: no row of {', '.join(empty)} was ingested. Nothing "
            f"was changed. If a source was renamed, give it its former name, since its rows are stored under that name; or ingest files of "
            f"{', '.join(empty)} first"
        )

    @classmethod
    def other_columns(cls, asset: str, differing: Sequence[str]) -> "ProgressError":
        """A step's rows have other columns than the table."""
        problem = f"{asset} would have other columns than its table has: {'; '.join(differing)}. Nothing was computed"
        return cls(
            f"{problem}. Give its inputs the columns they had, or run `tidemark rebuild {asset} --downstream`, which rebuilds the table, "
            "and every table that reads it, from the log"
        )

    @classmethod
    def lost_changelog(cls, asset: str, changelog: str, step: int) -> "ProgressError":
        """An upserted table exists, but its changelog does not."""
        return cls(
            f"{asset} has the changes of its changelog up to step {step}, but {changelog} does not exist. "
            f"Run `tidemark rebuild {asset} --downstream`, which rebuilds both, and every table that reads them, from the log"
        )

    @classmethod
    def shorter_changelog(cls, asset: str, changelog: str, applied: int, step: int) -> "ProgressError":
        """A changelog has lost steps that were applied to its table."""
        return cls(
            f"{asset} has the changes of its changelog up to step {applied}, but {changelog} has lost its newest commits: it ends at step "
            f"{step}. Run `tidemark rebuild {asset} --downstream`, which rebuilds both, and every table that reads them, from the log"
        )

    @classmethod
    def lost_state(cls, asset: str, table: str, step: int) -> "ProgressError":
        """The state of an upstream table from which `asset` was computed can no longer be read."""
        problem = f"{asset} was computed from {table} as of its step {step}, and a file of that state was deleted by maintenance"
        return cls(f"{problem}. Advance {asset}, which reads the present {table}")

    @classmethod
    def lost_rows(cls, asset: str, source: str) -> "ProgressError":
        """Retention removed rows that a table had not handled: the table was not in the pipeline then, or has lost steps since then."""
        return cls(
            f"{asset} has not handled rows of {source} that retention has removed: {asset} was not in the pipeline then, or was replaced "
            "by an older copy since. "
            f"Run `tidemark rebuild {asset} --downstream --from-kept`, which computes it from the rows that are kept"
        )

    @classmethod
    def loses_results(cls, asset: str, day: str) -> "ProgressError":
        """A table that is to be rebuilt has results that cannot be computed again."""
        return cls(
            f"{asset} would lose its results before {day}, because retention has removed the rows of which they were made. Nothing "
            "was changed. Add `--from-kept` to rebuild it from the rows that are kept; `tidemark export` keeps a copy of its results"
        )

    @classmethod
    def replaced_steps(cls, asset: str, after: int, replaced: int) -> "ProgressError":
        """A reader needs steps of a changelog that retention has replaced by their result."""
        return cls(
            f"the changes of {asset} after its step {after} cannot be read: retention has replaced the steps up to {replaced} by their "
            f"result. Publish {asset} into a new folder or topic; rebuild a table that reads it: `tidemark rebuild NAME --downstream`"
        )

    @classmethod
    def unknown_format(cls, table: str) -> "ProgressError":
        """A commit's progress is not in the engine's format."""
        return cls(
            f"the newest commit of {table} has no progress in the engine's format: another program, or a later version of Tidemark, "
            "wrote to the table. Restore the table to the version before that commit, or delete it and advance again"
        )

    @classmethod
    def recreated(cls, table: str, read: int, step: int) -> "ProgressError":
        """A reader has read more steps of a table than the table has."""
        return cls(
            f"{table} was read up to its step {read}, but its newest step is {step}: it was recreated, or lost commits, since. "
            "Run `tidemark rebuild NAME --downstream` for each table that reads it; publish it into a new folder"
        )
