"""The factory of upserted assets. They have no daily partitions, because none of their rows is ever final."""

from collections.abc import Iterator, Sequence

import dagster as dg

from assets.contracts import DerivedAsset
from assets.factories.closed_range_table import LAW, AdvanceConfig, law_check
from assets.factories.keys import input_keys
from assets.factories.lineage import column_lineage
from assets.factories.metadata import table_schema
from assets.ports import EnginePort

HANDLED = "Every accepted row was handled or is pending, and the table equals the result computed from all handled rows."


def upserted_asset(derived: DerivedAsset, *, sources: Sequence[str]) -> dg.AssetsDefinition:
    """Make an upserted table an asset without partitions.

    Materialising it handles the rows that arrived since, and reports its metrics: partitions, rows, changes for each input row, and
    partitions without a usable rank end. The asset has the conservation law as a blocking check, which recomputes the whole table.

    Args:
        derived: the asset's definition.
        sources: which of its inputs are sources; the others are derived assets.
    """

    @dg.asset(
        name=derived.name,
        deps=input_keys(derived.inputs, sources),
        check_specs=[dg.AssetCheckSpec(LAW, asset=derived.name, blocking=True, description=HANDLED)],
        group_name=derived.group,
        kinds={"spark", "delta"},
        description=derived.description,
    )
    def table(
        context: dg.AssetExecutionContext, config: AdvanceConfig, engine: dg.ResourceParam[EnginePort]
    ) -> Iterator[dg.MaterializeResult]:
        rebuilt = engine.rebuild(derived.name) if config.rebuild else None
        steps = list(engine.steps(derived.name))
        metadata = {"steps": len(steps), "changes": sum(s.rows for s in steps)}
        if rebuilt is not None:
            metadata["changes_repaired"] = rebuilt.missing + rebuilt.extra
        if engine.pending.described(derived.name)["steps"]:
            frame = engine.views.table(derived.name)
            schema, lineage = table_schema(frame.schema), column_lineage(engine, derived, frame.columns)
            metadata |= {**engine.views.metrics(derived.name), "dagster/column_schema": schema, "dagster/column_lineage": lineage}
        checks = [law_check(engine.accounts.days(derived.name), engine.accounts.count_differences(derived.name))]
        yield dg.MaterializeResult(metadata=metadata, check_results=checks)

    return table
