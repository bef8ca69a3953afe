"""The window join and coGroup give the pairs and groups of the model for four kinds of windows, with null keys and late rows."""

import random
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from operators import CoGroup, ColumnError, OperatorError, Session, StreamingError, Tumbling, WindowJoin
from operators.engine_columns import WATERMARK
from operators.window_join import How
from operators.windows import Aligned
from tests.operators.frames import by_tag, tagged
from tests.support.windows_model import WINDOWS, Span, TimedRow, open_windows

SOME_WINDOWS = ["tumbling, shifted", "sliding, no whole multiple", "sliding, gaps", "cumulative"]
WITH_RESIDUAL = ["sliding, no whole multiple", "cumulative"]
"""The windows that are joined with an extra condition in `make test`; the others are joined without."""
SCHEMA = pa.schema({"k": pa.string(), "t": pa.int64(), "id": pa.int64(), "v": pa.int64(), "w": pa.int64()})
TIMES = ("window_start", "window_end", "result_time", "final_at")
Pair = tuple[int | None, int | None, Span]
"""The ids of the left and the right row, and the window."""


def _rows(window: Aligned, seed: int) -> list[TimedRow]:
    rng, longest = random.Random(seed), window.longest
    return [
        TimedRow(
            rng.choice(["a", "b", None]),
            rng.randrange(-2 * longest, 2 * longest),
            rng.randrange(5),
            rng.choice([None, None, 0, longest // 2, 3 * longest]),
        )
        for _ in range(60)
    ]


def _frame(spark: SparkSession, rows: Sequence[TimedRow]) -> DataFrame:
    table = pa.Table.from_pylist([{"k": r.k, "t": r.t, "id": n, "v": r.v, "w": r.watermark} for n, r in enumerate(rows)], SCHEMA)
    times = F.timestamp_millis("t").alias("event_time"), F.timestamp_millis("w").alias(WATERMARK)
    return spark.createDataFrame(table).select("k", "id", "v", *times)


def _joined_by_the_model(
    window: Aligned, left: Sequence[TimedRow], right: Sequence[TimedRow], has_residual: bool
) -> dict[str, Counter[Pair]]:
    """The pairs and unmatched rows of each join type, with their window; the residual is `left.v < right.v`."""
    windows_of = [[(n, r, span) for n, r in enumerate(rows) for span in open_windows(window, r)] for rows in (left, right)]
    pairs = Counter(
        (n, m, span)
        for n, one, span in windows_of[0]
        for m, other, other_span in windows_of[1]
        if span == other_span and one.k is not None and one.k == other.k and (not has_residual or (one.v or 0) < (other.v or 0))
    )
    lefts, rights = {(n, s) for n, _, s in pairs}, {(m, s) for _, m, s in pairs}
    unmatched_left = Counter[Pair]((n, None, span) for n, _, span in windows_of[0] if (n, span) not in lefts)
    unmatched_right = Counter[Pair]((None, m, span) for m, _, span in windows_of[1] if (m, span) not in rights)
    matched = Counter[Pair]((n, None, span) for n, span in lefts)
    return {
        "inner": pairs,
        "left": pairs + unmatched_left,
        "right": pairs + unmatched_right,
        "full": pairs + unmatched_left + unmatched_right,
        "semi": matched,
        "anti": unmatched_left,
    }


@pytest.mark.parametrize(
    ("name", "residuals"),
    [
        *[pytest.param(name, [name in WITH_RESIDUAL], id=name) for name in SOME_WINDOWS],
        *[pytest.param(name, [False, True], id=f"{name}, both", marks=pytest.mark.soak) for name in SOME_WINDOWS],
    ],
)
def test_every_join_type_equals_the_model(spark: SparkSession, name: str, residuals: list[bool]) -> None:
    """With an extra condition and without; in `make test`, each window has one of the two."""
    window = WINDOWS[name]
    left, right = _rows(window, 1), _rows(window, 2)
    frames = _frame(spark, left), _frame(spark, right)
    joined: dict[str, DataFrame] = {}
    wanted: dict[str, Counter[tuple[Any, ...]]] = {}
    for has_residual in residuals:
        for how, pairs in _joined_by_the_model(window, left, right, has_residual).items():
            join = WindowJoin(on="k", window=window, how=how, residual="left_v < right_v" if has_residual else None)
            ids = ["id AS one", "bigint(null) AS other"] if how in ("semi", "anti") else ["left_id AS one", "right_id AS other"]
            joined[f"{how} {has_residual}"] = join(*frames).selectExpr(*ids, *[f"unix_millis({time}) AS {time}" for time in TIMES])
            wanted[f"{how} {has_residual}"] = Counter(
                {(one, other, start, end, end - 1, end - 1): rows for (one, other, (start, end)), rows in pairs.items()}
            )
    assert all(wanted.values())
    assert by_tag(tagged(joined)) == wanted


@pytest.mark.parametrize("name", SOME_WINDOWS)
def test_a_group_contains_the_rows_of_both_sides_ordered_by_event_time(spark: SparkSession, name: str) -> None:
    window = WINDOWS[name]
    left, right = _rows(window, 3), _rows(window, 4)
    wanted: dict[Any, tuple[list[tuple[int, int]], list[tuple[int, int]]]] = {}
    for which, rows in enumerate((left, right)):
        for n, row in enumerate(rows):
            for span in open_windows(window, row):
                group = wanted.setdefault((row.k, span, which if row.k is None else None), ([], []))
                group[which].append((row.t, n))
    found = CoGroup(on="k", window=window)(_frame(spark, left), _frame(spark, right))
    ids = [F.transform(side, lambda row: F.struct(F.unix_millis(row["event_time"]), row["id"])).alias(side) for side in ("left", "right")]
    spans = [F.unix_millis(c) for c in ("window_start", "window_end")]
    found_rows: dict[Any, tuple[list[tuple[int, int]], list[tuple[int, int]]]] = {}
    for k, start, end, lefts, rights in found.select("k", *spans, *ids).collect():
        assert [t for t, _ in lefts] == sorted(t for t, _ in lefts)
        assert [t for t, _ in rights] == sorted(t for t, _ in rights)
        null_side = None if k is not None else int(not lefts)
        where = (k, (start, end), null_side)
        assert where not in found_rows, "a group is returned once"
        found_rows[where] = (sorted(map(tuple, lefts)), sorted(map(tuple, rights)))
    assert found_rows == {where: (sorted(one), sorted(other)) for where, (one, other) in wanted.items()}


def test_rows_computes_the_results_of_a_group(spark: SparkSession) -> None:
    left = _frame(spark, [TimedRow("a", 1, 0), TimedRow("a", 2, 0), TimedRow("b", 3, 0)])
    right = _frame(spark, [TimedRow("a", 4, 0), TimedRow("a", 5, 0)])
    count = CoGroup(on="k", window=Tumbling(size=10), rows="transform(left, l -> named_struct('id', l.id, 'matches', size(right)))")
    found = count(left, right)
    assert found.columns == ["k", "id", "matches", "window_start", "window_end", "result_time", "final_at"]
    assert sorted((r.k, r.id, r.matches) for r in found.collect()) == [("a", 0, 2), ("a", 1, 2), ("b", 2, 0)]


@pytest.mark.parametrize("window", [Tumbling(size=10), Session(gap=10)])
@pytest.mark.parametrize("how", ["full", "anti"])
def test_a_row_without_an_event_time_is_in_no_result(spark: SparkSession, how: How, window: Tumbling | Session) -> None:
    left = spark.sql("SELECT 'a' AS k, timestamp_millis(5) AS event_time UNION ALL SELECT 'b', null")
    assert [row["k"] for row in WindowJoin(on="k", window=window, how=how)(left, left.where("k = 'b'")).collect()] == ["a"]


def test_an_existing_window_column_is_kept_under_a_prefix(spark: SparkSession) -> None:
    rows = _frame(spark, [TimedRow("a", 1, 0)]).withColumn("window_start", F.col("event_time"))
    for how in ("semi", "anti"):
        found = WindowJoin(on="k", window=Tumbling(size=10), how=how)(rows, rows)
        assert found.columns.count("window_start") == 1
        assert "left_window_start" in found.columns
        assert found.count() == (how == "semi")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: WindowJoin(on="k", window=Tumbling(size=1), how="outer"), "`how` is 'outer'; legal: inner, left, right, full, semi, anti"),
        (lambda: WindowJoin(on=(), window=Tumbling(size=1)), "`on` is (); legal: at least one column"),
        (
            lambda: WindowJoin(on="k", window=Tumbling(size=1), left_prefix="r_", right_prefix="r_"),
            "`right_prefix` is 'r_'; legal: a prefix",
        ),
        (lambda: CoGroup(on=(), window=Tumbling(size=1)), "`on` is (); legal: at least one column"),
    ],
)
def test_illegal_parameters_are_refused(make: Any, message: str) -> None:
    with pytest.raises(OperatorError, match=re.escape(message)):
        make()


@pytest.mark.parametrize("operator", [WindowJoin(on="k", window=Tumbling(size=1)), CoGroup(on="k", window=Tumbling(size=1))])
def test_illegal_frames_are_refused(spark: SparkSession, operator: WindowJoin | CoGroup) -> None:
    rows = spark.sql("SELECT 'a' AS k, timestamp_millis(5) AS event_time")
    with pytest.raises(ColumnError, match="`on` names the column 'k', which the frame does not have"):
        operator(rows, rows.drop("k"))
    with pytest.raises(ColumnError, match="`right_time` names the column 'event_time', which the frame does not have"):
        operator(rows, rows.drop("event_time"))
    with pytest.raises(ColumnError, match="`on` names the column 'k', which is string on the left and int on the right"):
        operator(rows, rows.withColumn("k", F.lit(1)))
    stream = spark.readStream.format("rate").load().selectExpr("'a' AS k", "timestamp AS event_time")
    with pytest.raises(StreamingError, match=r"on streaming frames: .*; let the engine run it"):
        operator(stream, stream)
