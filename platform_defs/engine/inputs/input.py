"""An input of a table: a source or another table, with one interface for both."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, cached_property

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
        """The sources from which the input is computed, directly or through other tables; for a source, the source itself."""

    @property
    def table(self) -> DerivedAsset | None:
        """The asset that makes the table; None for a source."""
        return None

    @property
    def is_source(self) -> bool:
        """Whether the input is a source: its rows belong to batches of the ledger, and can be late."""
        return self.table is None

    @abstractmethod
    def identity(self, lake: Lake) -> str | None:
        """A text that changes when the table or event log of the input is rebuilt or created again; None if it does not exist yet."""

    def is_readable(self, lake: Lake) -> bool:
        """Whether rows can be read: always for a source; for a table, once its first step has created it."""
        return True

    def last_step(self, lake: Lake) -> int | None:
        """The number of the newest step, 0 before the first; None for a source, which has no steps."""
        return None

    def step_id(self, lake: Lake, step: int) -> str | None:
        """The `id` of a step; None for a source, and if the table's log no longer has the step."""
        return None

    @abstractmethod
    def timeline(self, history: History, earlier: Timeline, operator_timeline: Callable[[DerivedAsset], Timeline]) -> Timeline:
        """The watermark that readers of the input see, after each batch of the ledger.

        Args:
            history: the ledger's batches.
            earlier: the timeline up to an earlier batch; only later batches are computed.
            operator_timeline: returns a table's own watermark after each batch.
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

    def timeline(self, history: History, earlier: Timeline, operator_timeline: Callable[[DerivedAsset], Timeline]) -> Timeline:
        """The source's own watermark."""
        return watermarks.of_source(history.source(self.name), history.head, earlier)


@dataclass(frozen=True)
class TableInput(Input):
    """A derived table.

    Args:
        asset: the asset that makes the table.
        inputs: the table's own inputs.
    """

    asset: DerivedAsset
    inputs: tuple[Input, ...]

    @property
    def name(self) -> str:
        """The table's name."""
        return self.asset.name

    @cached_property
    def sources(self) -> frozenset[str]:
        """The sources of all of its inputs."""
        return frozenset().union(*(upstream.sources for upstream in self.inputs))

    @property
    def table(self) -> DerivedAsset:
        """The asset that makes the table."""
        return self.asset

    def identity(self, lake: Lake) -> str | None:
        """Delta's id of the table, and its generation."""
        return table_identity(lake, self.asset)

    def is_readable(self, lake: Lake) -> bool:
        """Whether the lake has the table."""
        return lake.exists(self.asset.name)

    def last_step(self, lake: Lake) -> int:
        """The number of the table's newest step; 0 before the first."""
        return stored_progress(lake, self.asset).step

    def step_id(self, lake: Lake, step: int) -> str | None:
        """The `id` of one of the table's steps."""
        return step_id(lake, self.asset, step)

    def timeline(self, history: History, earlier: Timeline, operator_timeline: Callable[[DerivedAsset], Timeline]) -> Timeline:
        """The table's own watermark less its output watermark delay; idle while all of its sources are idle."""
        delayed = watermarks.delay_timeline(operator_timeline(self.asset), self.asset.operator.reads.watermark_delay, earlier)
        sources = [history.source(name) for name in self.sources]
        return delayed.with_idle(watermarks.table_idleness(sources, len(delayed.after) - 1, history.summarized))


def input_named(name: str, sources: Mapping[str, SourceContract], assets: Mapping[str, DerivedAsset]) -> Input:
    """The source or the table of a name."""

    @cache  # an input of several tables is one object; else the number of objects could grow exponentially with that of tables
    def made(name: str) -> Input:
        return SourceInput(sources[name]) if name in sources else TableInput(assets[name], tuple(map(made, assets[name].inputs)))

    return made(name)
