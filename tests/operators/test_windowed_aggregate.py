"""The windowed aggregate equals the model for every window, computed by pane and by row, with late rows."""

import random
import re
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from operators import (
    ColumnError,
    CountEvictor,
    EveryStep,
    OperatorError,
    Session,
    Sliding,
    TimeEvictor,
    Tumbling,
    WindowedAggregate,
    WindowError,
)
from operators.engine_columns import WATERMARK
from operators.windows import Aligned
from tests.operators.frames import tagged
from tests.support.windows_model import WINDOWS, Span, TimedRow, aggregated, open_windows, windows_at

MERGEABLE = {"n": "count(*)", "total": "SUM(v)", "least": "min( v )", "most": "max(v)"}
ALL_AGGREGATES = {**MERGEABLE, "different": "count(DISTINCT v)"}
ROWS = pa.schema({"k": pa.string(), "t": pa.int64(), "v": pa.int32(), "w": pa.int64()})


def _frame(spark: SparkSession, rows: Sequence[TimedRow], with_watermark: bool) -> DataFrame:
    table = pa.Table.from_pylist([{"k": r.k, "t": r.t, "v": r.v, "w": r.watermark} for r in rows], ROWS)
    marks = [F.timestamp_millis("w").alias(WATERMARK)] if with_watermark else []
    return spark.createDataFrame(table).select("k", F.timestamp_millis("t").alias("event_time"), "v", *marks)


def _rows(window: Aligned, seed: int, late: bool) -> list[TimedRow]:
    """Rows at every edge, before and after 1970, with null keys and values; each has a watermark near its time, or none."""
    rng = random.Random(seed)
    edges = [n * window.pane + window.origin + d for n in range(-8, 9) for d in (-1, 0)]
    times = [*edges, *(rng.randrange(-3 * window.longest, 3 * window.longest) for _ in range(60))]
    marks = [None, 0, -1, 1, window.pane, window.longest - 1, window.longest, 2 * window.longest]
    return [
        TimedRow(rng.choice(["a", "b", None]), t, rng.choice([None, *range(-5, 6)]), _plus(t, rng.choice(marks)) if late else None)
        for t in times
    ]


def _plus(t: int, by: int | None) -> int | None:
    return None if by is None else t + by


BY_ROW = ("sliding", "cumulative", "sliding, gaps", "tumbling, shifted")
"""The windows whose rows are also aggregated one by one, because an aggregate cannot be merged."""
Aggregated = dict[tuple[str | None, Span], tuple[Any, ...]]


@pytest.mark.parametrize("late", [False, True], ids=["in time", "late"])
def test_every_window_equals_the_model(spark: SparkSession, late: bool) -> None:
    """One query has the aggregates of every window."""
    frames, wanted = dict[str, DataFrame](), dict[str, Aggregated]()
    for name, window in WINDOWS.items():
        rows = _rows(window, len(name), late)
        frame, by_window = _frame(spark, rows, with_watermark=late), aggregated(window, rows)
        by_pane = WindowedAggregate(by="k", window=window, aggregates=MERGEABLE)
        frames[f"{name}, by pane"] = by_pane(frame).withColumn("different", F.lit(0))
        wanted[f"{name}, by pane"] = {where: (*values[:4], 0) for where, values in by_window.items()}
        if name in BY_ROW:
            frames[f"{name}, by row"] = WindowedAggregate(by="k", window=window, aggregates=ALL_AGGREGATES)(frame)
            wanted[f"{name}, by row"] = by_window
    spans = [F.unix_millis(c).alias(c) for c in ("window_start", "window_end")]
    selected = {name: results.select("k", *spans, *ALL_AGGREGATES) for name, results in frames.items()}
    found: dict[str, Aggregated] = {name: {} for name in frames}
    for name, k, start, end, *values in tagged(selected).collect():
        assert (k, (start, end)) not in found[name], name
        found[name][k, (start, end)] = tuple(values)
    for name in frames:
        assert found[name] == wanted[name], name


def test_the_result_has_final_at_and_the_types_of_the_aggregates(spark: SparkSession) -> None:
    rows = spark.sql("SELECT timestamp_millis(5) AS event_time, CAST(1.5 AS DECIMAL(5,2)) AS price, TRUE AS paid, 'x' AS item")
    sums = {"n": "count(*)", "spent": "sum(price)", "all_paid": "bool_and(paid)", "last": "max(item)"}
    sliding = WindowedAggregate(window=Sliding(size=4, slide=2), aggregates=sums)(rows)
    direct = WindowedAggregate(window=Tumbling(size=4), aggregates=sums)(rows)
    assert sliding.columns == ["window_start", "window_end", *sums, "result_time", "final_at"]
    assert sliding.dtypes == direct.dtypes
    assert dict(sliding.dtypes)["spent"] == "decimal(15,2)"
    ends = sliding.select(*[F.unix_millis(c) for c in ("window_start", "window_end", "result_time", "final_at")]).orderBy("window_start")
    assert [tuple(r) for r in ends.collect()] == [(2, 6, 5, 5), (4, 8, 7, 7)]


def test_a_row_without_an_event_time_is_in_no_window(spark: SparkSession) -> None:
    rows = spark.sql("SELECT CAST(NULL AS TIMESTAMP) AS event_time, 1 AS v")
    assert WindowedAggregate(window=Tumbling(size=4), aggregates={"n": "count(*)"})(rows).isEmpty()


def test_a_row_is_late_if_all_of_its_windows_are_closed(spark: SparkSession) -> None:
    for name, window in WINDOWS.items():
        rows = [r for r in _rows(window, 3, late=True) if r.watermark is not None]
        frame = _frame(spark, rows, with_watermark=True)
        is_late = WindowedAggregate(window=window, aggregates={"n": "count(*)"}).late(F.col("event_time"), F.col(WATERMARK))
        late = [r[0] for r in frame.select(is_late).collect()]
        assert late == [bool(windows_at(window, r.t)) and not open_windows(window, r) for r in rows], name


@pytest.mark.parametrize(
    ("sql", "merged"),
    [
        ("count(*)", True),
        ("Sum(price * (1 - discount))", True),
        ("min(a)", True),
        ("bool_or(a > 1)", True),
        ("sum(a) + sum(b)", False),
        ("count(distinct a)", False),
        ("avg(a)", False),
        ("sum(a) filter (where a > 1)", False),
        ("max_by(a, b)", False),
        ("max(a || '(') || max(b)", False),
        ("max(a) /* ( */ + max(b)", False),
    ],
)
def test_only_mergeable_aggregates_are_computed_by_pane(sql: str, merged: bool) -> None:
    assert WindowedAggregate(window=Sliding(size=4, slide=2), aggregates={"a": sql})._merges_panes is merged


def test_rows_are_aggregated_by_pane_before_windows_are_generated(spark: SparkSession) -> None:
    rows = _frame(spark, [TimedRow("a", 5, 1)], with_watermark=False)
    plan = WindowedAggregate(by="k", window=Sliding(size=10, slide=2), aggregates={"n": "count(*)"})(rows)
    text = plan._jdf.queryExecution().optimizedPlan().toString()  # pyright: ignore[reportCallIssue]
    assert [line.strip(" +-:").split(" ")[0] for line in text.splitlines() if "Aggregate" in line or "Generate" in line] == [
        "Aggregate",
        "Generate",
        "Aggregate",
    ]


@pytest.mark.parametrize(
    ("parameters", "error", "message"),
    [
        ({"aggregates": {}}, OperatorError, "`aggregates` is {}; legal: at least one"),
        ({"aggregates": {"window_start": "count(*)"}}, ColumnError, "the result would have window_start twice"),
        ({"by": ("k", "K")}, OperatorError, "`by` is ('k', 'K'); legal: each column once"),
    ],
)
def test_illegal_parameters_are_refused(parameters: dict[str, Any], error: type[OperatorError], message: str) -> None:
    with pytest.raises(error, match=re.escape(message)):
        WindowedAggregate(**{"window": Tumbling(size=1), "aggregates": {"n": "count(*)"}, **parameters})


def test_illegal_frames_are_refused(spark: SparkSession) -> None:
    count = WindowedAggregate(by="k", window=Tumbling(size=1), aggregates={"n": "count(*)"})
    with pytest.raises(ColumnError, match="`by` names the column 'k', which the frame does not have"):
        count(spark.sql("SELECT timestamp_millis(5) AS event_time"))
    with pytest.raises(ColumnError, match="`time` names the column 'event_time' of type string"):
        count(spark.sql("SELECT 'a' AS k, 'now' AS event_time"))


EVICTED = Sliding(size=10, slide=5)
IDS = {"values": "sort_array(collect_list(v))"}
ROWS_TO_EVICT = [TimedRow("a", t, v) for t, v in ((0, 1), (4, 2), (4, 3), (9, 4), (12, 5))] + [TimedRow("b", 9, 6), TimedRow(None, 3, 7)]


@pytest.mark.parametrize(
    ("evictor", "wanted"),
    [
        (CountEvictor(2), {"a": [[3, 4], [4, 5], [5], [2, 3]], "b": [[6], [6]], None: [[7], [7]]}),
        (TimeEvictor(6), {"a": [[2, 3, 4], [4, 5], [5], [1, 2, 3]], "b": [[6], [6]], None: [[7], [7]]}),
        (TimeEvictor("5 ms"), {"a": [[4], [4, 5], [5], [1, 2, 3]], "b": [[6], [6]], None: [[7], [7]]}),
    ],
)
def test_an_evictor_keeps_the_last_rows_of_each_window(
    spark: SparkSession, evictor: CountEvictor | TimeEvictor, wanted: dict[str | None, list[list[int]]]
) -> None:
    frame = _frame(spark, ROWS_TO_EVICT, with_watermark=False)
    found: dict[str | None, list[list[int]]] = {}
    for row in WindowedAggregate(by="k", window=EVICTED, aggregates=IDS, evictor=evictor)(frame).collect():
        found.setdefault(row["k"], []).append(row["values"])
    assert {k: sorted(groups) for k, groups in found.items()} == {k: sorted(groups) for k, groups in wanted.items()}


def test_an_evictor_that_keeps_nothing_is_refused() -> None:
    with pytest.raises(OperatorError, match="`rows` is 0; legal: a whole number of at least 1"):
        CountEvictor(0)
    with pytest.raises(WindowError, match="`within` is 0; legal: a duration of more than zero"):
        TimeEvictor(0)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"grouping_sets": ()}, r"`grouping_sets` is \(\); legal: different lists of some of the columns of `by`, which are k, v"),
        ({"grouping_sets": ("k", "v")}, "legal: different lists"),
        ({"grouping_sets": (("k",), ("w",))}, "legal: different lists"),
        ({"grouping_sets": (("k", "k"),)}, "legal: different lists"),
        ({"grouping_sets": (("k", "v"), ("v", "k"))}, "legal: different lists"),
        ({"grouping_sets": ((),), "window": Session(gap="1 s")}, "legal: None for sessions, which are those of one key"),
        ({"grouping_sets": ((),), "early": EveryStep()}, "`early` is .* legal: None with `grouping_sets`"),
        ({"grouping_sets": ((),), "aggregates": {"grouping_id": "count(*)"}}, "grouping_id"),
    ],
)
def test_grouping_sets_that_have_no_meaning_are_refused(changes: dict[str, Any], message: str):
    given = {"by": ("k", "v"), "window": Tumbling(size="1 s"), "aggregates": {"n": "count(*)"}}
    with pytest.raises(OperatorError, match=message):
        WindowedAggregate(**given | changes)


def test_a_result_of_a_grouping_set_has_its_own_key():
    made = WindowedAggregate(by=("k", "v"), window=Tumbling(size="1 s"), aggregates={"n": "count(*)"}, grouping_sets=(("k",), ()))
    assert made.emits.key == ("k", "v", "grouping_id", "window_start", "window_end")
    assert made.result_columns(["k", "v"]) == (*made.emits.key, "n", "result_time", "final_at")
