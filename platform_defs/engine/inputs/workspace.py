"""The workspace of a lake: the session, the tables, the ledger, and the definitions of sources and tables."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from pyspark.sql import SparkSession

from assets.contracts import DerivedAsset, SourceContract
from platform_defs.engine.inputs.input import Input, input_named
from platform_defs.engine.inputs.progress import results_table
from platform_defs.engine.lake.tables import Lake, LakeSnapshot
from platform_defs.engine.ledger.ledger import Ledger
from platform_defs.engine.ledger.snapshot import LedgerSnapshot
from platform_defs.engine.ledger.watermarks import Timeline


@dataclass(frozen=True)
class Workspace:
    """Everything that a step needs. The functions that read from a workspace take it as their first argument.

    Args:
        spark: the session. A workspace that reads no rows is made without one (None).
        lake: the lake.
        ledger: its ledger.
        sources: the sources, by name.
        assets: the derived assets, by name, each after those that it reads.
        timelines: the cache of the module `timelines`: for each key, the last summarized batch, and the timeline. Copies of a workspace
            share it.
    """

    spark: SparkSession
    lake: Lake
    ledger: Ledger
    sources: Mapping[str, SourceContract]
    assets: Mapping[str, DerivedAsset]
    timelines: dict[str, tuple[int, Timeline]] = field(default_factory=dict, repr=False, compare=False)

    def take_snapshot(self, *assets: str) -> "Workspace":
        """This workspace on a snapshot: first of the given assets' tables, then of the ledger, then of the tables that the assets read.

        This order makes the snapshot consistent: the ledger has each batch, and the inputs have each step, that a table's progress names.
        """
        lake = LakeSnapshot.of(self.lake)
        for name in assets:
            lake.delta_for_reading(results_table(self.assets[name]))
            lake.delta_for_reading(name)
        ledger = LedgerSnapshot.of(self.ledger)
        for table in self._upstream_tables(assets):  # its changelog is read later, so it has each step that was applied to the table
            lake.delta_for_reading(table)
        return replace(self, lake=lake, ledger=ledger)

    def on_one_ledger(self) -> "Workspace":
        """This workspace on a snapshot of the ledger, so that a summary that maintenance commits has no effect on a computation."""
        ledger = LedgerSnapshot.of(self.ledger)
        return self if ledger is self.ledger else replace(self, ledger=ledger)

    def input_named(self, name: str) -> Input:
        """The source or the table of a name."""
        return input_named(name, self.sources, self.assets)

    def inputs_of(self, asset: DerivedAsset) -> list[Input]:
        """The inputs of an asset, in the order of its operator's inputs."""
        return [self.input_named(name) for name in asset.inputs]

    def tables_of(self, asset: DerivedAsset) -> list[DerivedAsset]:
        """The tables among an asset's inputs."""
        return [upstream.table for upstream in self.inputs_of(asset) if upstream.table is not None]

    def _upstream_tables(self, names: Sequence[str]) -> list[str]:
        """The tables that the named tables are computed from, directly or through other tables; each after the tables that read it."""
        readers_first, upstream = [*self.assets][::-1], set[str]()
        for name in readers_first:
            if name in upstream or name in names:
                upstream.update(table.name for table in self.tables_of(self.assets[name]))
        return [name for name in readers_first if name in upstream]
