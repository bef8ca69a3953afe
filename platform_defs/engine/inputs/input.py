"""An input of a table: a source, or another table. Whoever asks something of either asks it here."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from assets.contracts import DerivedAsset, SourceContract
from platform_defs.engine.inputs.progress import step_id, stored_progress, table_identity
from platform_defs.engine.lake.tables import Lake
from platform_defs.engine.ledger import watermarks
from platform_defs.engine.ledger.history import History
from platform_defs.engine.ledger.watermarks import Timeline


class Input(ABC):
    """A source or a table that an asset reads."""

    @property
    @abstractmethod
    def name(self) -> str:
        """The name of the source or the table."""

    @property
    @abstractmethod
    def sources(self) -> frozenset[str]:
        """The sources that it is made of, by way of other tables too; a source is made of itself."""

    @property
    def table(self) -> DerivedAsset | None:
        """The asset that makes the table; None for a source."""
        return None

    @property
    def is_source(self) -> bool:
        """Whether it is a source: its rows belong to batches of the ledger, and can be late."""
        return self.table is None

    @abstractmethod
    def identity(self, lake: Lake) -> str | None:
        """A text that differs for a table or an event log that is made again; None where there is none yet."""

    def is_readable(self, lake: Lake) -> bool:
        """Whether rows can be read: those of a source always, those of a table once a step has made it."""
        return True

    def last_step(self, lake: Lake) -> int | None:
        """The number of its newest step; None for a source, which has no steps."""
        return None

    def step_id(self, lake: Lake, step: int) -> str | None:
        """The `id` of one of its steps; None where its table's log does not hold the step, and for a source."""
        return None

    @abstractmethod
    def timeline(self, history: History, known: Timeline, operator_timeline: Callable[[DerivedAsset], Timeline]) -> Timeline:
        """The watermark that its readers see, over the ledger.

        Args:
            history: the ledger.
            known: the timeline as it was before some batch; only the later ones are computed.
            operator_timeline: returns a table's own watermark over the ledger.
        """


@dataclass(frozen=True)
class SourceInput(Input):
    """A source.

    Args:
        contract: the source's contract.
    """

    contract: SourceContract

    @property
    def name(self) -> str:
        """The source's name."""
        return self.contract.name

    @property
    def sources(self) -> frozenset[str]:
        """The source itself."""
        return frozenset({self.contract.name})

    def identity(self, lake: Lake) -> str | None:
        """Delta's id of the event log."""
        return lake.identity(self.contract.log)

    def timeline(self, history: History, known: Timeline, operator_timeline: Callable[[DerivedAsset], Timeline]) -> Timeline:
        """The source's own watermark."""
        return watermarks.of_source(history.source(self.name), history.head, known)


@dataclass(frozen=True)
class TableInput(Input):
    """A table that another asset makes.

    Args:
        asset: the asset.
        inputs: what the table is made of.
    """

    asset: DerivedAsset
    inputs: tuple[Input, ...]

    @property
    def name(self) -> str:
        """The table's name."""
        return self.asset.name

    @property
    def sources(self) -> frozenset[str]:
        """The sources of all of its inputs."""
        return frozenset().union(*(of.sources for of in self.inputs))

    @property
    def table(self) -> DerivedAsset:
        """The asset that makes the table."""
        return self.asset

    def identity(self, lake: Lake) -> str | None:
        """Delta's id of the table, with its generation."""
        return table_identity(lake, self.asset)

    def is_readable(self, lake: Lake) -> bool:
        """Whether the lake has the table."""
        return lake.delta(self.asset.name) is not None

    def last_step(self, lake: Lake) -> int:
        """The number of the table's newest step."""
        return stored_progress(lake, self.asset).step

    def step_id(self, lake: Lake, step: int) -> str | None:
        """The `id` of one of the table's steps."""
        return step_id(lake, self.asset, step)

    def timeline(self, history: History, known: Timeline, operator_timeline: Callable[[DerivedAsset], Timeline]) -> Timeline:
        """The table's own watermark, behind by its operator's delay. An idle table holds its readers; see `watermarks.passed_on`."""
        seen = watermarks.delayed(operator_timeline(self.asset), self.asset.operator.reads.watermark_delay, known)
        return seen.with_idle(watermarks.passed_on([history.source(of) for of in self.sources], len(seen.after) - 1))


def input_named(name: str, sources: Mapping[str, SourceContract], assets: Mapping[str, DerivedAsset]) -> Input:
    """The source or the table of a name."""
    if name in sources:
        return SourceInput(sources[name])
    return TableInput(assets[name], tuple(input_named(of, sources, assets) for of in assets[name].inputs))
