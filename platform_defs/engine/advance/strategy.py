"""The base class of the strategies. Each computes the rows of a step, and appends them to the asset's table or merges them into it."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass

from pyspark.sql import DataFrame

from assets.contracts import DerivedAsset
from operators.changelog import difference
from operators.columns import keys_of
from operators.errors import OperatorError
from operators.timing import ClosedRange
from platform_defs.engine.advance.appended_table import AppendedTable
from platform_defs.engine.advance.kept_table import KeptTable
from platform_defs.engine.advance.state import StatePart
from platform_defs.engine.advance.step_inputs import StepInputs, step_inputs
from platform_defs.engine.advance.upserted_table import UpsertedTable
from platform_defs.engine.inputs.progress import Progress
from platform_defs.engine.inputs.workspace import Workspace


@dataclass(frozen=True)
class Strategy(ABC):
    """One way to advance an asset.

    Args:
        workspace: the session, the lake and its ledger.
        asset: the asset.
    """

    workspace: Workspace
    asset: DerivedAsset

    @property
    def inputs(self) -> StepInputs:
        """The rows of sources, batch by batch, or the changes of an upstream table, step by step."""
        return step_inputs(self.workspace, self.asset)

    @property
    def key(self) -> tuple[str, ...]:
        """The columns that identify a row of the asset's table; empty if only the whole row does."""
        return self.asset.operator.emits.key

    @abstractmethod
    def results(self, before: Progress, after: Progress) -> DataFrame:
        """The rows that the step from `before` to `after` computes."""

    def changes(self, table: UpsertedTable, before: Progress, after: Progress) -> DataFrame:
        """The difference between the current rows and the results of a step, for the keys of these results."""
        rows = self.results(before, after)
        return difference(table.current_of(rows, keys_of([rows], self.key)), rows, key=self.key)

    def step(self, before: Progress, after: Progress) -> int:
        """Compute and commit the step from `before` to `after`; returns the number of rows, or changes, that it wrote."""
        if self.asset.operator.emits.upserts:
            table = UpsertedTable(self.workspace, self.asset)
            return table.commit(self.changes(table, before, after), after)
        return AppendedTable(self.workspace, self.asset).append(self.results(before, after), after)

    @abstractmethod
    def state(self, now: Progress) -> Iterator[StatePart]:
        """The stored rows that later steps may read in addition to the new rows that they handle."""

    def all_results(self, after: Progress) -> DataFrame:
        """The table's rows at a progress, recomputed from all input rows."""
        return self.asset.rows(*self.inputs.all_rows(after))

    def forget(self) -> None:
        """Discard the rows that are kept beside the table; later steps make them again from the log."""
        KeptTable(self.workspace, self.asset).forget()

    def final_results(self, closing: ClosedRange, head: int) -> DataFrame:
        """The results that are final in a range, computed from the inputs' rows up to batch `head`.

        Raises:
            OperatorError: the asset closes no ranges.
        """
        raise OperatorError(f"{self.asset.name} does not read closed ranges, so it has no result that is final")

    def correct(self, before: Progress, after: Progress, closing: ClosedRange, key: tuple[str, ...] = ()) -> tuple[Progress, int]:
        """Recompute a range of closed results and repair the results that differ; see `ClosedRanges.correct`.

        Raises:
            OperatorError: the asset closes no ranges.
        """
        raise OperatorError(f"{self.asset.name} does not read closed ranges, so it has no result that is final")
