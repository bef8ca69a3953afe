"""The jobs: let in what has landed; advance the derived tables; maintain the lake."""

import dagster as dg

from assets.contracts import LEADERBOARDS, WIDE, WINDOWS
from assets.events import EVENTS
from platform_defs.engine import Engine, MaintenanceError

RANGE_START, RANGE_END = "dagster/asset_partition_range_start", "dagster/asset_partition_range_end"

ingest_job = dg.define_asset_job("ingest", selection=dg.AssetSelection.groups(EVENTS), description="Let in what has landed.")


advance_job = dg.define_asset_job(
    "advance",
    selection=dg.AssetSelection.groups(WIDE, WINDOWS, LEADERBOARDS),
    description="Close what the watermark allows, up to the end of the last day asked for; bring what has no days up to the ledger.",
)


@dg.op(required_resource_keys={"engine"})
def maintain(context: dg.OpExecutionContext) -> None:
    """Compact small files, delete what no version needs, carry forward what the commits remember, make checkpoints."""
    done = context.resources.engine.maintain()
    by_table = {m.table: m.failed or m.left or f"{m.before} files, now {m.after}; {m.removed} deleted" for m in done}
    try:
        MaintenanceError.check(done)
    except MaintenanceError as error:  # a failed op has no output to hang metadata on
        raise dg.Failure(str(error), metadata=by_table) from error
    context.add_output_metadata(by_table)


@dg.job(name="maintenance", description="Keeps the lake's tables in few files and short logs, beside whatever writes to them.")
def maintenance_job() -> None:
    """One op: table by table, in one JVM."""
    maintain()


def over(first: object, last: object) -> dict[str, str]:
    """The tags of a run over days."""
    return {RANGE_START: str(first), RANGE_END: str(last)}


def due(engine: Engine, run_key: str | None = None) -> dg.RunRequest | None:
    """The run that advances what is due: all assets over days, or, where no day is open, those that have none; None for neither."""
    days, boards = engine.due.all_days(), engine.due.boards()
    if days:
        return dg.RunRequest(run_key=run_key, tags=over(*days))
    return dg.RunRequest(run_key=run_key, asset_selection=[dg.AssetKey(name) for name in boards]) if boards else None
