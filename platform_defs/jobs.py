"""The jobs: ingest what has landed; advance the derived tables; maintain the lake."""

from collections.abc import Mapping

import dagster as dg

from assets.contracts import LEADERBOARDS, WIDE, WINDOWS
from assets.events import EVENTS
from assets.partitions import range_of, start_of, within
from platform_defs.engine import Engine, MaintenanceError

RANGE_START, RANGE_END = "dagster/asset_partition_range_start", "dagster/asset_partition_range_end"

AGAIN = dg.RetryPolicy(max_retries=2, delay=15, backoff=dg.Backoff.EXPONENTIAL, jitter=dg.Jitter.PLUS_MINUS)
"""For faults that pass: another writer for a moment, a store out of reach. What lasts longer, the sensors try again in a new run."""

ingest_job = dg.define_asset_job(
    "ingest", selection=dg.AssetSelection.groups(EVENTS), description="Ingest what has landed.", op_retry_policy=AGAIN
)

advance_job = dg.define_asset_job(
    "advance",
    selection=dg.AssetSelection.groups(WIDE, WINDOWS, LEADERBOARDS),
    description="Close what the watermark allows, up to the end of the last day asked for; bring what has no days up to the ledger.",
    op_retry_policy=AGAIN,
)


@dg.op(required_resource_keys={"engine"})
def maintain(context: dg.OpExecutionContext) -> None:
    """Compact small files, delete what no version needs, carry forward what the commits remember, make checkpoints."""
    done = context.resources.engine.maintain()
    by_table = {m.table: m.failed or m.left or f"{m.before} files, now {m.after}; {m.removed} deleted" for m in done}
    try:
        MaintenanceError.check(done)
    except MaintenanceError as error:  # a failed op has no output to hang metadata on
        raise dg.Failure(str(error), metadata=by_table, allow_retries=False) from error
    context.add_output_metadata(by_table)


@dg.job(
    name="maintenance",
    op_retry_policy=AGAIN,
    description="Keeps the lake's tables in few files and short logs, beside whatever writes to them.",
)
def maintenance_job() -> None:
    """One op: table by table, in one JVM."""
    maintain()


def over(first: object, last: object) -> dict[str, str]:
    """The tags of a run over days."""
    return {RANGE_START: str(first), RANGE_END: str(last)}


def partition_days(repository: dg.RepositoryDefinition | None) -> dg.DailyPartitionsDefinition | None:
    """The days of the job `advance`; None without a repository."""
    days = None if repository is None else repository.get_job(advance_job.name).partitions_def
    return days if isinstance(days, dg.DailyPartitionsDefinition) else None


def advance_request(
    engine: Engine,
    run_key: str | None = None,
    days: dg.DailyPartitionsDefinition | None = None,
    tags: Mapping[str, str] | None = None,
) -> dg.RunRequest | None:
    """The run that advances what is behind: all assets over days, or, where no day is open, those that have none; None for neither.

    Args:
        engine: the engine.
        run_key: the run's key.
        days: the partitions, which no run may leave; None to ask for any day. Days before the first are closed with it; days after the
            last are left open until they are partitions.
        tags: further tags of the run.
    """
    known = range_of(days) if days else None
    wanted, boards = engine.pending.all_days(start_of(known[0]) if known else None), engine.pending.boards()
    if wanted and days:
        wanted = within(days, *wanted)
    if wanted:
        return dg.RunRequest(run_key=run_key, tags={**over(*wanted), **(tags or {})})
    return dg.RunRequest(run_key=run_key, tags=tags, asset_selection=[dg.AssetKey(name) for name in boards]) if boards else None
