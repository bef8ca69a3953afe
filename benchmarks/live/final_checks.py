"""What must be true of a lake and its topics when all events were sent: nothing is lost, nothing is doubled, and topics equal tables."""

from collections.abc import Mapping
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from benchmarks.live.pipeline import EVENTS, TOTALS, WINDOWS
from platform_defs.engine import Engine
from platform_defs.engine.operations.topic import STEP
from platform_defs.settings.stream_trigger import StreamTrigger
from platform_defs.stream.reports import Reports
from platform_defs.stream.run import StreamRun


def finish(engine: Engine, reports: Reports) -> None:
    """Read what is left, declare the end of the input, and publish what is final then."""
    StreamRun(engine, reports).run(StreamTrigger(None))
    engine.drain()
    StreamRun(engine, reports).run(StreamTrigger(None))


def problems(engine: Engine, acked: int) -> list[str]:
    """What is wrong with a finished lake, and with its topics; nothing if all is well.

    Args:
        engine: the engine.
        acked: the events that the broker has acknowledged, whose ids are 0 to `acked - 1`.
    """
    accounts = {table: engine.accounts.days(table) for table in (WINDOWS, TOTALS)}
    late = sum(account.late for account in accounts[WINDOWS])
    counts = {**_counts(engine, acked), "late events": (late, 0)}
    found = [f"{name}: {number} instead of {wanted}" for name, (number, wanted) in counts.items() if number != wanted]
    for table in (WINDOWS, TOTALS):
        found += [f"the conservation law: {account}" for account in accounts[table] if not account.holds]
        if differences := engine.accounts.count_differences(table):
            found.append(f"{table}: ledger and log differ: {differences}")
        missing, extra = _differences(engine, table)
        if missing or extra:
            found.append(f"the topic of {table} lacks {missing} rows of the table, and has {extra} others")
    return found


def _counts(engine: Engine, acked: int) -> Mapping[str, tuple[Any, Any]]:
    """Numbers that were found, and those that are right."""
    totals, log = engine.ledger.totals(EVENTS), engine.views.table(engine.sources[EVENTS].log)
    rows, ids, newest = log.agg(F.count("*"), F.count_distinct("id"), F.max("id")).collect()[0]
    return {
        "accepted events in the ledger": (totals["accepted"], acked),
        "quarantined and duplicate events": (totals["quarantined"] + totals["duplicate"], 0),
        "rows in the event log": (rows, acked),
        "distinct ids in the event log": (ids, acked),
        "newest id": (newest, acked - 1),
        **{f"events in {table}": (_sum(engine, table), acked) for table in (WINDOWS, TOTALS)},
    }


def _sum(engine: Engine, table: str) -> int:
    return engine.views.table(table).agg(F.sum("events")).collect()[0][0] or 0


def _differences(engine: Engine, table: str) -> tuple[int, int]:
    """The rows of a table that its topic lacks, and those that only the topic has, for a reader of each key's newest version."""
    ours, theirs = engine.views.table(table), _newest_versions(engine, table)
    both = ours.withColumn("_copies", F.lit(1)).unionByName(theirs.withColumn("_copies", F.lit(-1)))
    left = both.groupBy(*ours.columns).agg(F.sum("_copies").alias("_copies")).where("_copies <> 0")
    missing, extra = left.agg(F.sum(F.expr("greatest(_copies, 0)")), F.sum(F.expr("greatest(-_copies, 0)"))).collect()[0]
    return missing or 0, extra or 0


def _newest_versions(engine: Engine, table: str) -> DataFrame:
    """The rows of a reader of a table's topic who keeps each key's newest version."""
    sink = engine.sinks[table]
    options = {"kafka.bootstrap.servers": sink.options["kafka.bootstrap.servers"], "subscribe": sink.topic, "includeHeaders": "true"}
    options["kafka.fetch.min.bytes"] = "0"  # otherwise each partition waits half a second for records after its last one
    records = engine.spark.read.format("kafka").options(**options, startingOffsets="earliest").load()
    step = F.expr(f"try_element_at(filter(headers, h -> h.key = '{STEP}'), 1).value").cast("string").cast("bigint")
    newest = records.groupBy("key").agg(F.max_by("value", F.struct(step, "offset")).alias("value")).where("value IS NOT NULL")
    schema = engine.lake.schema(table)
    columns = engine.views.table(table).columns
    return newest.select(F.from_json(F.col("value").cast("string"), schema).alias("row")).select(*[f"row.{name}" for name in columns])
