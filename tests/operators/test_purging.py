"""Windows that purge: each firing has the rows since the last one, as in a naive simulation of Flink's operator."""

import random
from collections.abc import Mapping
from functools import cache
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from operators import (
    Consecutive,
    CountEvictor,
    Cumulative,
    EveryInterval,
    EveryRows,
    EveryStep,
    OperatorError,
    ProcessWindow,
    Session,
    Sliding,
    StreamingError,
    TopK,
    Tumbling,
    WindowedAggregate,
)
from operators.engine_columns import ARRIVAL, SEQ, WATERMARK
from operators.windows import Aligned
from tests.operators.frames import tagged
from tests.support.purging_model import Firing, Row, WindowOperator
from tests.support.windows_model import TimedRow, open_windows

CASES = 300
IDS = {"ids": "sort_array(collect_list(id))"}
SCHEMA = pa.schema(
    [("case_id", pa.int32()), ("id", pa.int32()), ("t", pa.int64()), ("w", pa.int64()), (SEQ, pa.int64()), (ARRIVAL, pa.int64())]
)
PARAMETERS: dict[str, tuple[Aligned, EveryRows | EveryInterval, int]] = {
    "rows, tumbling": (Tumbling(size=40), EveryRows(3), 0),
    "rows, sliding, late": (Sliding(size=40, slide=15), EveryRows(2), 25),
    "rows, gaps": (Sliding(size=10, slide=15), EveryRows(2), 5),
    "interval, tumbling": (Tumbling(size=40, offset=5), EveryInterval(15), 0),
    "interval, sliding, late": (Sliding(size=40, slide=20), EveryInterval(10), 30),
    "interval, cumulative, late": (Cumulative(size=60, step=20), EveryInterval(25), 15),
}


def _case(rng: random.Random) -> list[tuple[int, Row]]:
    """Batches of rows before and after 1970, many at the edges of windows and intervals; each row with its batch."""
    rows, mark, newest, batch = list[tuple[int, Row]](), None, rng.randrange(-100, 20), 0
    for batch in range(1, rng.randrange(2, 7)):
        for _ in range(rng.randrange(7)):
            t = rng.choice([newest - rng.randrange(60), newest + rng.randrange(30), (newest // 5 + rng.randrange(-8, 9)) * 5])
            rows.append((batch, Row(len(rows), t, mark)))
        newest = max([newest, *(row.t for _, row in rows)]) + rng.choice([0, 0, 1, 30])
        mark = max(newest - rng.choice([0, 1, 5, 20, 50]), newest - 100 if mark is None else mark)
    return rows


def _frame(spark: SparkSession, cases: list[list[tuple[int, Row]]]) -> DataFrame:
    rows = [
        {"case_id": n, "id": r.id, "t": r.t, "w": r.watermark, SEQ: batch, ARRIVAL: r.id}
        for n, case in enumerate(cases)
        for batch, r in case
    ]
    made = spark.createDataFrame(pa.Table.from_pylist(random.Random(2).sample(rows, len(rows)), SCHEMA))
    time, mark = F.timestamp_millis("t").alias("event_time"), F.timestamp_millis("w").alias(WATERMARK)
    return made.select("case_id", "id", time, SEQ, ARRIVAL, mark)


@cache
def _cases(name: str) -> list[list[tuple[int, Row]]]:
    rng = random.Random(name)
    return [_case(rng) for _ in range(CASES)]


def _found(results: Mapping[str, DataFrame]) -> dict[str, dict[int, set[Firing]]]:
    """The firings of each case by the name of the result; one query has those of several results."""
    times = [F.unix_millis(c).alias(c) for c in ("window_start", "window_end", "final_at")]
    found: dict[str, dict[int, set[Firing]]] = {name: {} for name in results}
    selected = {name: rows.select("case_id", "firing", "ids", *times) for name, rows in results.items()}
    for name, case, number, ids, start, end, at in tagged(selected).collect():
        firings = found[name].setdefault(case, set())
        assert not any((of.window, of.number) == ((start, end), number) for of in firings)
        firings.add(Firing((start, end), number, at, tuple(ids)))
    return found


@pytest.fixture(scope="module")
def firings_by_name(spark: SparkSession) -> dict[str, dict[int, set[Firing]]]:
    """The firings of each case by the name of the parameters."""
    results: dict[str, DataFrame] = {}
    for name, (window, trigger, lateness) in PARAMETERS.items():
        operator = WindowedAggregate(by="case_id", window=window, aggregates=IDS, allowed_lateness=lateness, purging=trigger)
        results[name] = operator(_frame(spark, _cases(name)))
    return _found(results)


@pytest.mark.parametrize("name", PARAMETERS)
def test_firings_equal_those_of_a_simulated_window_operator(firings_by_name: dict[str, dict[int, set[Firing]]], name: str) -> None:
    window, trigger, lateness = PARAMETERS[name]
    cases, found = _cases(name), firings_by_name[name]
    wanted = {n: {*WindowOperator(window, trigger, lateness).firings([row for _, row in case])} for n, case in enumerate(cases)}
    assert found == {n: firings for n, firings in wanted.items() if firings}
    every = [firing for firings in wanted.values() for firing in firings]
    assert sum(firing.number > 1 for firing in every) > 50
    assert any(firing.at > firing.window[1] - 1 for firing in every) == (lateness > 0)
    accepted = [len(open_windows(window, TimedRow(None, r.t, r.id, r.watermark), lateness)) for case in cases for _, r in case]
    assert sum(len(firing.ids) for firing in every) == sum(accepted), "a row is in one firing of each window that accepts it"


def test_a_firing_without_watermarks_is_that_of_rows_in_the_order_of_their_times(spark: SparkSession) -> None:
    rows = spark.sql("SELECT id, timestamp_millis(id * 10) AS event_time FROM range(7)")
    by_rows = WindowedAggregate(window=Tumbling(size=45), aggregates={"n": "count(*)", "most": "max(id)"}, purging=EveryRows(2))(rows)
    assert by_rows.columns == ["window_start", "window_end", "firing", "n", "most", "result_time", "final_at"]
    assert dict(by_rows.dtypes)["firing"] == "bigint"
    columns = [F.unix_millis("window_start"), "firing", "n", "most", F.unix_millis("result_time"), F.unix_millis("final_at")]
    assert [tuple(r) for r in by_rows.select(*columns).orderBy("window_start", "firing").collect()] == [
        (0, 1, 2, 1, 10, 10),
        (0, 2, 2, 3, 30, 30),
        (0, 3, 1, 4, 44, 44),
        (45, 1, 2, 6, 60, 60),
    ]


def test_an_evictor_and_grouping_sets_apply_to_each_firing(spark: SparkSession) -> None:
    rows = spark.sql("SELECT id, id % 2 AS k, timestamp_millis(id * 10 + 1) AS event_time FROM range(6)")
    shared: dict[str, Any] = {"window": Tumbling(size=100), "aggregates": {"sum": "sum(id)"}, "purging": EveryInterval(25)}
    newest = WindowedAggregate(evictor=CountEvictor(1), **shared)(rows)
    assert sorted((r.firing, r["sum"]) for r in newest.collect()) == [(1, 2), (2, 4), (3, 5)]
    sets = WindowedAggregate(by="k", grouping_sets=[["k"], []], **shared)
    found = {(r.k, r.firing, r["sum"]) for r in sets(rows).collect()}
    assert found == {(0, 1, 2), (0, 2, 4), (1, 1, 1), (1, 2, 3), (1, 3, 5), (None, 1, 3), (None, 2, 7), (None, 3, 5)}
    assert sets.emits.key == ("k", "grouping_id", "window_start", "window_end", "firing")


def test_a_function_of_a_window_gets_the_rows_of_each_firing(spark: SparkSession) -> None:
    window, trigger, lateness = PARAMETERS["rows, sliding, late"]
    rng = random.Random(3)
    frame = _frame(spark, [_case(rng) for _ in range(40)])
    shared: dict[str, Any] = {"by": "case_id", "window": window, "allowed_lateness": lateness, "purging": trigger}
    each = ProcessWindow(rows="transform(elements, e -> named_struct('id', e.id))", **shared)
    whole = ProcessWindow(**shared)
    assert (each.emits.key, whole.emits.key) == ((), ("case_id", "window_start", "window_end", "firing"))
    grouped = each(frame).groupBy("case_id", "window_start", "window_end", "firing", "result_time", "final_at")
    results = {
        "aggregated": WindowedAggregate(aggregates=IDS, **shared)(frame),
        "whole": whole(frame).withColumn("ids", F.expr("sort_array(elements.id)")),
        "each": grouped.agg(F.expr("sort_array(collect_list(id))").alias("ids")),
    }
    found = _found(results)
    assert found["whole"] == found["each"] == found["aggregated"] != {}
    newest = ProcessWindow(evictor=CountEvictor(1), **shared)(frame)
    assert {row.size for row in newest.select(F.size("elements").alias("size")).collect()} == {1}


def test_a_step_reads_whole_windows_and_no_row_corrects_a_firing() -> None:
    made = WindowedAggregate(
        window=Tumbling(size="1 hour"), aggregates={"n": "count(*)"}, allowed_lateness="5 minutes", purging=EveryRows(2)
    )
    assert (made.reads.lookback, made.reads.lateness, made.reads.watermark_delay) == ((65 * 60_000,), 0, 0)


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"purging": EveryStep()}, "`purging`.*a backfill would have other results"),
        ({"purging": EveryInterval(5, by="processing")}, "`purging`.*interval of event time"),
        ({"window": Session(gap=5, longest=50)}, "`purging`.*bounds of a session"),
        ({"early": EveryStep()}, "`early`.*None with `purging`"),
        ({"aggregates": {"firing": "count(*)"}}, "firing"),
    ],
)
def test_what_cannot_purge_is_refused(changes: dict[str, Any], match: str) -> None:
    parameters: dict[str, Any] = {"window": Tumbling(size=10), "aggregates": {"n": "count(*)"}, "purging": EveryRows(2), **changes}
    with pytest.raises(OperatorError, match=match):
        WindowedAggregate(**parameters)


def test_a_purging_aggregate_is_refused_in_consecutive_operators_and_on_streams(spark: SparkSession) -> None:
    purged = WindowedAggregate(window=Tumbling(size=10), aggregates={"n": "count(*)"}, purging=EveryRows(2))
    with pytest.raises(OperatorError, match="without early results or purging"):
        Consecutive(of=purged, then=TopK(k=1, order_by="n"))
    with pytest.raises(StreamingError, match="purging"):
        purged.check_query()
    stream = spark.readStream.format("rate").load().withColumnRenamed("timestamp", "event_time").withWatermark("event_time", "1 second")
    with pytest.raises(StreamingError, match="purging"):
        purged(stream)
