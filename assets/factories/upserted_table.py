"""The factory of upserted assets. They have no daily partitions, because none of their rows is ever final."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import dagster as dg

from assets.contracts import DerivedAsset
from assets.factories.advance_config import AdvanceConfig
from assets.factories.conservation_law import LAW, law_check
from assets.factories.keys import input_keys
from assets.factories.lineage import column_metadata
from assets.factories.metadata import code_metadata
from assets.factories.pool import SPARK
from assets.factories.sentences import count
from assets.factories.work import Advanced, RunDetails, Worker
from assets.ports import MOVED_BACK, EnginePort
from operators.top_n import TopN

PROMISE = "promise_kept"
PROMISED = "No row came after the row that it replaced in the order, and no row was deleted, as `monotonic` promises."
HANDLED = "Every accepted row was handled, or is pending, late or filtered, and the table equals the result computed from all handled rows."


def upserted_asset(derived: DerivedAsset, *, sources: Sequence[str], worker: Worker) -> dg.AssetsDefinition:
    """Make an upserted table an asset without partitions.

    Materializing it handles the rows that arrived since the last step, and reports the table's metrics (see
    `platform_defs.engine.operations.metrics.table_metrics`). The asset has the conservation law as a blocking check, which recomputes the
    whole table.

    Args:
        derived: the asset's definition.
        sources: which of its inputs are sources; the others are derived assets.
        worker: does the work of steps.
    """
    worker.add(derived.name, derived.inputs, partial(_advance_and_account, derived))
    top = derived.operator
    promises = isinstance(top, TopN) and top.monotonic and top.strategy_used != "retract"
    specs = [dg.AssetCheckSpec(LAW, asset=derived.name, blocking=True, description=HANDLED)]
    specs += [dg.AssetCheckSpec(PROMISE, asset=derived.name, description=PROMISED)] if promises else []

    @dg.asset(
        name=derived.name,
        deps=input_keys(derived.inputs, sources),
        backfill_policy=dg.BackfillPolicy.single_run(),  # else Dagster's command line refuses a range of days for `advance`
        check_specs=specs,
        group_name=derived.group,
        kinds={"spark", "delta"},
        owners=derived.owners,
        tags=derived.tags,
        metadata=code_metadata(derived),
        pool=SPARK,
        description=derived.description,
    )
    def table(
        context: dg.AssetExecutionContext, config: AdvanceConfig, engine: dg.ResourceParam[EnginePort]
    ) -> Iterator[dg.MaterializeResult]:
        rebuilt = engine.rebuild_days(derived.name) if config.rebuild else None
        advanced: Advanced = worker.do(context, engine, derived.name)
        repaired = {} if rebuilt is None or not rebuilt.is_compared else {"changes_repaired": rebuilt.missing + rebuilt.extra}
        checks = [law_check(advanced), *([promise_check(derived.name, advanced.metadata.get(MOVED_BACK, 0))] if promises else [])]
        yield dg.MaterializeResult(metadata={**advanced.metadata, **repaired}, check_results=checks)

    return table


def promise_check(table: str, keys: int) -> dg.AssetCheckResult:
    """Whether the rows of a Top-N keep the promise `monotonic`.

    A step whose ranking could be wrong is refused. So rows that break the promise in other steps are only a warning.

    Args:
        table: the name of the table.
        keys: the number of keys that break the promise.
    """
    way_out = f'set `strategy="retract"` for {table!r}; this strategy needs no promise, and the change needs no rebuild'
    return dg.AssetCheckResult(
        check_name=PROMISE,
        passed=not keys,
        severity=dg.AssetCheckSeverity.WARN,
        description=f"rows of {count(keys, 'key')} of {table!r} moved back or were deleted: {way_out}"
        if keys
        else "no row has moved back or was deleted",
        metadata={MOVED_BACK: keys},
    )


def _advance_and_account(derived: DerivedAsset, engine: EnginePort, _: RunDetails) -> Advanced:
    """Handle the rows that arrived since the last step, and account for all rows."""
    steps = list(engine.steps(derived.name))
    metadata: dict[str, Any] = {"steps": len(steps), "changes": sum(s.rows for s in steps)}
    if engine.pending.describe_progress(derived.name)["steps"]:
        metadata |= {**engine.views.metrics(derived.name), **column_metadata(engine, derived)}
    accounts, differences = engine.accounts.account_for(derived.name)
    return Advanced(metadata, accounts, differences)
