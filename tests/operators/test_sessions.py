"""Session windows: results and lateness decisions equal the model, at edges and before 1970; illegal parameters are refused."""

import random
from functools import reduce
from itertools import count
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from operators import CoGroup, OperatorError, Session, Tumbling, WindowedAggregate, WindowError, WindowJoin
from operators.engine_columns import NEW, SESSION, WHICH
from tests.support.sessions_model import Row, SessionsModel, sessions

GAP, LONGEST = 10, 60
SESSIONS = Session(gap=GAP, longest=LONGEST)
COUNT = WindowedAggregate(by="k", window=SESSIONS, aggregates={"ids": "sort_array(collect_list(id))"})
ROWS = pa.schema({"k": pa.string(), "id": pa.int64(), "t": pa.int64(), "s": pa.list_(pa.int64()), "new": pa.bool_()})


def _frame(spark: SparkSession, rows: list[dict[str, object]]) -> DataFrame:
    frame = spark.createDataFrame(pa.Table.from_pylist(rows, ROWS)).withColumn("event_time", F.timestamp_millis("t"))
    kept = F.when(F.col("s").isNotNull(), F.struct(F.col("s")[0].alias("start"), F.col("s")[1].alias("end")))
    named = [F.lit(1).cast("bigint").alias("seq"), F.col("id").alias("arrival"), kept.alias(SESSION), F.col("new").alias(NEW)]
    return frame.select("k", "id", "event_time", *named)


def _sessions_by_key(frame: DataFrame) -> dict[str | None, list[tuple[tuple[int, int], list[int]]]]:
    found: dict[str | None, list[tuple[tuple[int, int], list[int]]]] = {}
    for row in frame.select("k", F.unix_millis("window_start"), F.unix_millis("window_end"), "ids").collect():
        found.setdefault(row[0], []).append(((row[1], row[2]), row[3]))
    return {k: sorted(parts) for k, parts in found.items()}


def test_sessions_equal_the_model(spark: SparkSession) -> None:
    rows: dict[str | None, list[Row]] = {}
    for n in range(60):
        rng, t = random.Random(n), -200
        for _ in range(rng.randrange(1, 40)):
            t += rng.choice([0, 1, 5, 9, 10, 10, 11, 25])
            key = None if n == 0 else str(n)
            rows.setdefault(key, []).append((t, len(rows.get(key, []))))
    frame = _frame(spark, [{"k": k, "id": i, "t": t} for k, parts in rows.items() for t, i in parts]).drop(NEW, SESSION)
    formed = {k: sorted(sessions(parts, GAP, LONGEST).items()) for k, parts in rows.items()}
    wanted = {k: [(span, sorted(i for _, i in part)) for span, part in parts] for k, parts in formed.items()}
    assert _sessions_by_key(COUNT(frame)) == wanted
    assert any(end - start == LONGEST for parts in wanted.values() for (start, end), _ in parts)


def test_a_row_at_the_end_of_a_session_belongs_to_it(spark: SparkSession) -> None:
    frame = _frame(spark, [{"k": "a", "id": i, "t": t} for i, t in enumerate([0, GAP, 2 * GAP + 1])])
    times = ("window_start", "window_end", "result_time", "final_at")
    results = COUNT(frame).select(*map(F.unix_millis, times), "ids").collect()
    assert sorted(map(tuple, results)) == [(0, 20, 19, 20, [0, 1]), (21, 31, 30, 31, [2])]
    assert COUNT.reads.watermark_delay == 1


def test_the_lookback_contains_whole_sessions(spark: SparkSession) -> None:
    times = list(range(0, 400, 7))
    frame = _frame(spark, [{"k": str(cut), "id": t, "t": t} for cut in range(0, 250, 5) for t in times if t >= cut])
    whole = sessions([(t, t) for t in times], GAP, LONGEST)
    for key, parts in _sessions_by_key(COUNT(frame)).items():
        after = int(key or 0) + SESSIONS.lookback
        assert [s for s, _ in parts if s[1] > after] == [s for s in sorted(whole) if s[1] > after]


def test_rows_of_both_sides_form_sessions(spark: SparkSession) -> None:
    left = _frame(spark, [{"k": "a", "id": 1, "t": 0}, {"k": "a", "id": 2, "t": 20}, {"k": None, "id": 3, "t": 0}]).drop(NEW)
    right = _frame(spark, [{"k": "a", "id": 7, "t": 10}, {"k": "a", "id": 8, "t": 50}, {"k": None, "id": 9, "t": 5}]).drop(NEW)
    joined = WindowJoin(on="k", window=SESSIONS, how="full")(left, right)
    results = joined.select("k", "left_id", "right_id", *map(F.unix_millis, ("window_start", "window_end"))).collect()
    wanted = [("a", 1, 7, 0, 30), ("a", 2, 7, 0, 30), ("a", None, 8, 50, 60), (None, 3, None, 0, 10), (None, None, 9, 5, 15)]
    assert sorted(map(tuple, results), key=repr) == sorted(wanted, key=repr)
    groups = CoGroup(on="k", window=SESSIONS)(left, right).select("k", "left.id", "right.id", F.unix_millis("window_end")).collect()
    assert sorted(map(tuple, groups), key=repr) == sorted(
        [("a", [1, 2], [7], 30), ("a", [], [8], 60), (None, [3], [], 10), (None, [], [9], 15)], key=repr
    )


DECISIONS = {
    "late alone": ([], [5], 20, [(5, None)]),
    "accepted by a session that is still open": ([15], [5], 20, []),
    "its own session reaches beyond the watermark": ([], [15], 20, []),
    "merged by rows of its own batch": ([28], [8, 18], 20, []),
    "inside a closed session and no open one": ([0, 8], [4], 20, [(4, None)]),
    "between a closed session and an open one": ([0, 19], [9], 20, [(0, (0, 10))]),
    "within the gap of a closed session, and itself open": ([5], [14], 20, [(5, (5, 15))]),
    "on time, at the end of an open session": ([11], [21], 20, []),
    "before a cut, in the part that has closed": ([*range(0, 71, 7)], [58], 65, [(58, None)]),
    "within the gap of a closed session, after the rows before a cut are late": (
        [1, 11, 21, 38, 48, 58],
        [30, 40, 50, 60, 66],
        75,
        [(30, None), (38, (38, 68)), (40, None), (48, (38, 68)), (50, None), (58, (38, 68)), (60, None)],
    ),
}


def test_lateness_decisions(spark: SparkSession) -> None:
    """The cases of a watermark are in one frame: each has a key of its own, and another key with its old rows only."""
    by_watermark: dict[int, list[dict[str, object]]] = {}
    for n, (which, (old, new, watermark, _)) in enumerate(DECISIONS.items()):
        rows = by_watermark.setdefault(watermark, [])
        rows += [{"k": which, "id": 1_000 * n + t, "t": t, "new": t in new} for t in [*old, *new]]
        rows += [{"k": f"{which}, old", "id": 1_000 * n + 500 + t, "t": t, "new": False} for t in old]
    frames = [COUNT.lateness_decisions(watermark, _frame(spark, rows)) for watermark, rows in by_watermark.items()]
    decisions = reduce(DataFrame.union, frames).collect()
    assert {(r[WHICH], r["seq"]) for r in decisions} <= {(0, 1)}
    found: dict[str, list[Any]] = {which: [] for which in DECISIONS}
    for r in sorted(decisions, key=lambda r: r["arrival"]):
        found[[*DECISIONS][r["arrival"] // 1_000]].append((r["arrival"] % 1_000, None if r[SESSION] is None else tuple(r[SESSION])))
    assert found == {which: wanted for which, (*_, wanted) in DECISIONS.items()}


class _Decisions:
    """Random rows of some keys, and the lateness decisions of Spark and of the model. Sessions are short, so that some are cut."""

    def __init__(self, lateness: int, keys: int) -> None:
        self._lateness, self._rng, self._ids = lateness, random.Random(5), count()
        short = Session(gap=GAP, longest=3 * GAP)
        self._counted = WindowedAggregate(by="k", window=short, aggregates={"n": "count(*)"}, allowed_lateness=lateness)
        self._models = {str(k): SessionsModel(GAP, short.longest_ms, lateness) for k in range(keys)}
        self._rows = list[dict[str, Any]]()
        self.kinds = set[str]()

    def decide_by_spark(self, spark: SparkSession, newest: int) -> DataFrame:
        """Add a batch; returns Spark's decisions for its rows."""
        for k in [*self._models] * 5:
            time = newest - self._rng.randrange(40 + self._lateness)
            self._rows.append({"k": k, "id": next(self._ids), "t": time, "new": True})
        return self._counted.lateness_decisions(newest - 20, _frame(spark, self._rows))

    def decide_by_model(self, newest: int) -> dict[int, tuple[int, int] | None]:
        """The model's decisions for the rows of the batch, by the id of the row."""
        mark, new = newest - 20, [r for r in self._rows if r["new"]]
        for k, model in self._models.items():
            model.add_batch([(r["t"], r["id"]) for r in new if r["k"] == k], mark)
        late = {i for model in self._models.values() for _, i in model.late}
        kept = {i: span for model in self._models.values() for span, part in model.recorded.items() for _, i in part}
        wanted = {r["id"]: kept.get(r["id"]) for r in self._rows if r["id"] in late or (r["id"] in kept and not r.get("s"))}
        # a row is late although its own session would be open if it belongs to the part of a session before a cut
        open_alone = {r["t"] + GAP + self._lateness > mark for r in new if r["id"] in late}
        self.kinds |= {"late before a cut" if is_open else "late" for is_open in open_alone} | ({"recorded"} if kept else set())
        self._rows = [r | {"new": False, "s": kept.get(r["id"])} for r in self._rows if r["id"] not in late]
        return wanted


@pytest.mark.parametrize("keys", [20, pytest.param(50, marks=pytest.mark.soak)])
def test_lateness_decisions_equal_the_model_batch_by_batch(spark: SparkSession, keys: int) -> None:
    """Without and with an allowed lateness; one query decides for both."""
    runs = {lateness: _Decisions(lateness, keys) for lateness in (0, 15)}
    for newest in (30, 45, 60):
        frames = [run.decide_by_spark(spark, newest).select(F.lit(lateness), "arrival", SESSION) for lateness, run in runs.items()]
        found: dict[int, dict[int, tuple[int, int] | None]] = {lateness: {} for lateness in runs}
        for lateness, arrival, session in reduce(DataFrame.union, frames).collect():
            found[lateness][arrival] = None if session is None else tuple(session)
        assert found == {lateness: run.decide_by_model(newest) for lateness, run in runs.items()}, newest
    assert {n: run.kinds for n, run in runs.items()} == {n: {"late", "late before a cut", "recorded"} for n in runs}


def test_the_rows_of_a_recorded_session_stay_in_it(spark: SparkSession) -> None:
    frame = _frame(spark, [{"k": "a", "id": 0, "t": 0, "s": [0, 10]}, {"k": "a", "id": 1, "t": 9}, {"k": "a", "id": 2, "t": 19}])
    assert _sessions_by_key(COUNT(frame)) == {"a": [((0, 10), [0]), ((9, 29), [1, 2])]}


def test_illegal_parameters_are_refused() -> None:
    with pytest.raises(OperatorError, match=r"`longest` is 5; legal: at least `gap` \(10\)"):
        Session(gap=10, longest=5)
    with pytest.raises(WindowError, match="`gap` is 0; legal: a duration of more than zero"):
        Session(gap=0)
    with pytest.raises(OperatorError, match="WindowedAggregate over Tumbling decides lateness row by row: call `late`"):
        WindowedAggregate(window=Tumbling(size=10), aggregates={"n": "count(*)"}).lateness_decisions(0)
