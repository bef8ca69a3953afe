"""The inputs of a step that closes no range: rows of sources by batch, or an upstream changelog by step."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from pyspark.sql import DataFrame

from assets.contracts import DerivedAsset
from platform_defs.engine.inputs.changelog_reader import change_column, changes, rows_after, upstream_changelog
from platform_defs.engine.inputs.progress import Progress
from platform_defs.engine.inputs.reader import Reading


@dataclass(frozen=True)
class StepInputs(ABC):
    """Reads an asset's inputs.

    Args:
        reading: reads the lake.
        asset: the asset.
    """

    reading: Reading
    asset: DerivedAsset
    names_former_keys: ClassVar[bool] = False
    """Whether the input has both keys of a row that moves from one key to another."""

    @abstractmethod
    def all(self, after: Progress) -> list[DataFrame]:
        """Each input's rows up to and including those that the step to `after` handles."""

    @abstractmethod
    def new(self, before: Progress, after: Progress) -> list[DataFrame]:
        """Each input's rows, or changes, that the step from `before` to `after` handles."""

    @abstractmethod
    def newest(self, before: Progress, after: Progress) -> list[DataFrame]:
        """As `new`, but of a changelog only the last change of each key."""


@dataclass(frozen=True)
class SourceRows(StepInputs):
    """The rows of sources, by batch."""

    def all(self, after: Progress) -> list[DataFrame]:
        """The rows up to the last batch that the step handles."""
        return [self.reading.input(self.asset, which, after.seq) for which in range(len(self.asset.inputs))]

    def new(self, before: Progress, after: Progress) -> list[DataFrame]:
        """The rows of the batches that the step handles."""
        return [self.reading.input(self.asset, which, after.seq, after=before.seq) for which in range(len(self.asset.inputs))]

    def newest(self, before: Progress, after: Progress) -> list[DataFrame]:
        """The rows of the batches that the step handles; all of them, because no row of a source replaces another."""
        return self.new(before, after)


@dataclass(frozen=True)
class UpstreamChanges(StepInputs):
    """The changes of an upserted table, by step. The first time that it is read, its rows are read as inserts.

    Args:
        of: the table.
    """

    of: DerivedAsset
    names_former_keys: ClassVar[bool] = True

    def all(self, after: Progress) -> list[DataFrame]:
        """The table's rows as of the last step to read."""
        return [rows_after(self.reading, self.of, after.read[self.of.name], change_column(self.asset))]

    def new(self, before: Progress, after: Progress) -> list[DataFrame]:
        """The changes of the table's steps to read."""
        return [self._changes(before, after, last=False)]

    def newest(self, before: Progress, after: Progress) -> list[DataFrame]:
        """The last change of each key in the steps to read."""
        return [self._changes(before, after, last=True)]

    def _changes(self, before: Progress, after: Progress, *, last: bool) -> DataFrame:
        read, upto = before.read.get(self.of.name, 0), after.read[self.of.name]
        return changes(self.reading, self.of, read, upto, change_column(self.asset), last=last)


def step_inputs(reading: Reading, asset: DerivedAsset) -> StepInputs:
    """The inputs of an asset: source rows, or a changelog if it reads one."""
    of = upstream_changelog(asset, reading.tables_of(asset))
    return SourceRows(reading, asset) if of is None else UpstreamChanges(reading, asset, of)
