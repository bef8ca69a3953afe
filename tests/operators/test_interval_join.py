"""The interval join on static frames: edges, laws, and refused parameters."""

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from operators import Append, ByTimeRange, ClosedRange, ColumnError, Interval, IntervalJoin, OperatorError
from operators.interval_join import How
from operators.timing import instant
from tests.operators.frames import EVENTS, Row, by_tag, frame, ids_and_times, tagged

ON = ("case_id", "k")
HOWS: tuple[How, ...] = ("inner", "left", "right", "full")
MIRRORED: dict[How, How] = {"inner": "inner", "left": "right", "right": "left", "full": "full"}
RESIDUAL = "left_v <= right_v"
ShortRow = tuple[str | None, float | None] | tuple[str | None, float | None, int]
Pair = tuple[str | None, str | None, int | None]
"""Left row, right row, result time in ms."""


@dataclass(frozen=True)
class Edge:
    """A small case: rows are (key, time in ms, value), with the ids l0, l1, ... and r0, r1, ..."""

    id: str
    left: tuple[ShortRow, ...]
    right: tuple[ShortRow, ...]
    expected: set[Pair]
    lower: int = 0
    upper: int = 10
    how: How = "inner"
    lower_exclusive: bool = False
    upper_exclusive: bool = False
    residual: str | None = None

    @property
    def join(self) -> IntervalJoin:
        return IntervalJoin(
            on=ON,
            lower=self.lower,
            upper=self.upper,
            lower_exclusive=self.lower_exclusive,
            upper_exclusive=self.upper_exclusive,
            how=self.how,
            residual=self.residual,
        )

    def rows(self, side: str) -> Iterator[Row]:
        for n, (key, time, *value) in enumerate(self.left if side == "l" else self.right):
            yield self.id, key, None if time is None else round(time * 1000), f"{side}{n}", value[0] if value else 0


A = (("a", 100),)
EDGES = (
    Edge("just in at the lower bound", A, (("a", 95),), {("l0", "r0", 100)}, lower=-5),
    Edge("just out below the lower bound", A, (("a", 94),), set(), lower=-5),
    Edge("just in at the upper bound", A, (("a", 110),), {("l0", "r0", 110)}),
    Edge("just out above the upper bound", A, (("a", 111),), set()),
    Edge("lower end open: at the bound", A, (("a", 95),), set(), lower=-5, lower_exclusive=True),
    Edge("lower end open: 1 ms further in", A, (("a", 96),), {("l0", "r0", 100)}, lower=-5, lower_exclusive=True),
    Edge("upper end open: at the bound", A, (("a", 110),), set(), upper_exclusive=True),
    Edge("upper end open: 1 ms further in", A, (("a", 109),), {("l0", "r0", 109)}, upper_exclusive=True),
    Edge("interval 0", A, (("a", 99), ("a", 100), ("a", 101)), {("l0", "r1", 100)}, upper=0),
    Edge("interval 0, one end open: nothing", A, (("a", 100),), set(), upper=0, upper_exclusive=True),
    Edge("negative bounds", A, (("a", 89), ("a", 90), ("a", 95), ("a", 96)), {("l0", "r1", 100), ("l0", "r2", 100)}, -10, -5),
    Edge("positive bounds", A, (("a", 104), ("a", 105), ("a", 110), ("a", 111)), {("l0", "r1", 105), ("l0", "r2", 110)}, 5, 10),
    Edge("lower above upper, inner", A, A, set(), 5, -5),
    Edge("lower above upper, full", A, A, {("l0", None, 100), (None, "r0", 100)}, 5, -5, "full"),
    Edge("other key", A, (("b", 100),), set()),
    Edge("unmatched left waits for the upper bound", A, (), {("l0", None, 110)}, -5, 10, "left"),
    Edge("unmatched right waits for the lower bound", (), A, {(None, "r0", 105)}, -5, 10, "right"),
    Edge("unmatched left, negative bounds: at its own time", A, (), {("l0", None, 100)}, -10, -5, "left"),
    Edge("unmatched right, positive bounds: at its own time", (), A, {(None, "r0", 100)}, 5, 10, "right"),
    Edge("unmatched left, upper end open", A, (), {("l0", None, 109)}, how="left", upper_exclusive=True),
    Edge("unmatched rows of the side that is not kept", A, (("a", 50),), {("l0", None, 110)}, how="left"),
    Edge("matched twice, never also unmatched", A, (("a", 100), ("a", 101)), {("l0", "r0", 100), ("l0", "r1", 101)}, how="full"),
    Edge("null keys match nothing, inner", ((None, 100),), ((None, 100),), set()),
    Edge("null keys match nothing, left", ((None, 100),), ((None, 100),), {("l0", None, 110)}, how="left"),
    Edge("null keys match nothing, right", ((None, 100),), ((None, 100),), {(None, "r0", 100)}, how="right"),
    Edge("null keys match nothing, full", ((None, 100),), ((None, 100),), {("l0", None, 110), (None, "r0", 100)}, how="full"),
    Edge("null times match nothing, inner", (("a", None),), (("a", None), ("a", 0)), set()),
    Edge(
        "null times, full",
        (("a", None),),
        (("a", None), ("a", 0)),
        {("l0", None, None), (None, "r0", None), (None, "r1", 0)},
        how="full",
    ),
    Edge(
        "duplicates at one instant: every pair",
        (("a", 100), ("a", 100)),
        (("a", 100), ("a", 100), ("a", 100)),
        {(left, right, 100) for left in ("l0", "l1") for right in ("r0", "r1", "r2")},
        how="full",
    ),
    Edge("finer than 1 ms: floored apart", (("a", 100.999),), (("a", 111.0),), set()),
    Edge("finer than 1 ms: floored together", (("a", 100.999),), (("a", 100.001),), {("l0", "r0", 100)}, upper=0),
    Edge("finer than 1 ms: floored into the bound", (("a", 100.0),), (("a", 110.999),), {("l0", "r0", 110)}),
    Edge("before 1970, floored and not cut", (("a", -0.001),), (("a", -1.0), ("a", 0.0)), {("l0", "r0", -1)}, upper=0),
    Edge("across 1970", (("a", -3),), (("a", 4),), {("l0", "r0", 4)}),
    Edge("long before 1970, unmatched", (("a", -(10**12)),), (), {("l0", None, -(10**12) + 10)}, how="left"),
    Edge("residual, inner", (("a", 100, 2),), (("a", 100, 1), ("a", 101, 2)), {("l0", "r1", 101)}, residual=RESIDUAL),
    Edge(
        "residual, full: rejected rows are unmatched",
        (("a", 100, 2), ("a", 100, 9)),
        (("a", 100, 1), ("a", 101, 2)),
        {("l0", "r1", 101), ("l1", None, 110), (None, "r0", 100)},
        how="full",
        residual=RESIDUAL,
    ),
    Edge("residual on one side's column only", (("a", 100, 2),), A, {("l0", None, 110)}, how="left", residual="left_v < 2"),
    Edge("residual with OR is one condition", A, (("a", 200),), set(), residual="left_v = 0 OR right_v = 0"),
    Edge("residual that is null is no match", A, A, {("l0", None, 110)}, how="left", residual="left_v <= nullif(right_v, 0)"),
    Edge("residual over the key", (("a", 1), ("b", 1)), (("a", 1), ("b", 1)), {("l1", "r1", 1)}, residual="k = 'b'"),
)


@pytest.fixture(scope="module")
def results(spark: SparkSession) -> dict[str, Counter[tuple[Any, ...]]]:
    """The result of every edge case, from one Spark job: cases with the same parameters share a join."""
    left, right = (frame(spark, [row for edge in EDGES for row in edge.rows(side)]).cache() for side in "lr")
    joins: dict[IntervalJoin, list[str]] = {}
    for edge in EDGES:
        joins.setdefault(edge.join, []).append(edge.id)
    parts = {
        str(n): ids_and_times(join(*[side.where(F.col("case_id").isin(ids)) for side in (left, right)]))
        for n, (join, ids) in enumerate(joins.items())
    }
    found: dict[str, Counter[tuple[Any, ...]]] = {}
    for rows in by_tag(tagged(parts)).values():
        for (case, *row), copies in rows.items():
            found.setdefault(str(case), Counter())[tuple(row)] += copies
    return found


@pytest.mark.parametrize("edge", EDGES, ids=lambda e: e.id)
def test_the_join_of_an_edge_case(results: dict[str, Counter[tuple[Any, ...]]], edge: Edge):
    expected = {(left, right, at, None if at is None else at + 1) for left, right, at in edge.expected}
    assert results.get(edge.id, Counter()) == Counter(expected)


@dataclass(frozen=True)
class Sample:
    """Many small random cases."""

    left: list[Row]
    right: list[Row]

    @classmethod
    def drawn(cls, seed: int, cases: int = 40) -> "Sample":
        choose = random.Random(seed)

        def rows(side: str) -> list[Row]:
            return [
                (str(case), choose.choice((None, "a", "a", "b")), choose.randint(-12_000, 12_000), f"{side}{n}", choose.randint(0, 2))
                for case in range(cases)
                for n in range(choose.randint(0, 6))
            ]

        return cls(rows("l"), rows("r"))

    def frames(self, spark: SparkSession, shift_ms: int = 0) -> tuple[DataFrame, DataFrame]:
        moved = [
            [(case, k, us + shift_ms * 1000, *rest) for case, k, us, *rest in rows if us is not None] for rows in (self.left, self.right)
        ]
        return frame(spark, moved[0]), frame(spark, moved[1])


def nested_loop_join(sample: Sample, interval: Interval, how: How, *, residual: bool) -> Counter[tuple[Any, ...]]:
    """The join as a nested loop over the rows of each case."""
    found: list[tuple[Any, ...]] = []
    matched: set[tuple[str, str]] = set()
    right_rows: dict[str, list[Row]] = {}
    for row in sample.right:
        right_rows.setdefault(row[0], []).append(row)
    for case, k, left_us, one, left_v in sample.left:
        for _, other_k, right_us, other, right_v in right_rows.get(case, []):
            left_ms, right_ms = (left_us or 0) // 1000, (right_us or 0) // 1000
            same = k == other_k and k is not None
            if same and interval.lower <= right_ms - left_ms <= interval.upper and (not residual or left_v <= right_v):
                matched |= {(case, one), (case, other)}
                found.append((case, one, other, max(left_ms, right_ms)))
    if how in ("left", "full"):
        found += [(c, n, None, (us or 0) // 1000 + max(0, interval.upper)) for c, _, us, n, _ in sample.left if (c, n) not in matched]
    if how in ("right", "full"):
        found += [(c, None, n, (us or 0) // 1000 + max(0, -interval.lower)) for c, _, us, n, _ in sample.right if (c, n) not in matched]
    return Counter((*row, row[-1] + 1) for row in found)


LAW = settings(max_examples=3, derandomize=True, database=None)
SEED = st.integers(0, 2**32 - 1)
BOUND = st.integers(-8, 8)


@LAW
@given(seed=SEED, lower=BOUND, width=st.integers(-2, 9), ends=st.tuples(st.booleans(), st.booleans()), residual=st.booleans())
def test_the_join_equals_a_nested_loop(spark: SparkSession, seed: int, lower: int, width: int, ends: tuple[bool, bool], residual: bool):
    sample = Sample.drawn(seed)
    frames = sample.frames(spark)
    spec: dict[str, Any] = {"on": ON, "lower": lower, "upper": lower + width, "lower_exclusive": ends[0], "upper_exclusive": ends[1]}
    joins = {how: IntervalJoin(how=how, residual=RESIDUAL if residual else None, **spec) for how in HOWS}
    found = by_tag(tagged({how: ids_and_times(join(*frames)) for how, join in joins.items()}))
    for how in HOWS:
        assert found.get(how, Counter()) == nested_loop_join(sample, joins[how].interval, how, residual=residual)


@LAW
@given(seed=SEED, lower=BOUND, upper=BOUND, how=st.sampled_from(HOWS))
def test_the_mirror_gives_the_same_rows_with_the_sides_swapped(spark: SparkSession, seed: int, lower: int, upper: int, how: How):
    left, right = Sample.drawn(seed).frames(spark)
    original = ids_and_times(IntervalJoin(on=ON, lower=lower, upper=upper, how=how)(left, right))
    mirror = IntervalJoin(on=ON, lower=-upper, upper=-lower, how=MIRRORED[how], left_prefix="right_", right_prefix="left_")
    found = by_tag(tagged({"original": original, "mirror": ids_and_times(mirror(right, left))}))
    assert found.get("original") == found.get("mirror")


@LAW
@given(seed=SEED, lower=BOUND, upper=BOUND, how=st.sampled_from(HOWS), shift=st.integers(-(10**13), 10**13))
def test_a_shift_of_all_times_shifts_the_results(spark: SparkSession, seed: int, lower: int, upper: int, how: How, shift: int):
    sample, join = Sample.drawn(seed), IntervalJoin(on=ON, lower=lower, upper=upper, how=how)
    found = by_tag(tagged({str(ms): ids_and_times(join(*sample.frames(spark, ms))) for ms in (0, shift)}))
    moved = Counter({(*names, at + shift, final + shift): n for (*names, at, final), n in found.get("0", Counter()).items()})
    assert found.get(str(shift), Counter()) == moved


@settings(LAW, max_examples=2)
@given(seed=SEED, lower=BOUND, upper=BOUND, marks=st.sets(st.integers(-20, 25), min_size=1, max_size=4))
def test_closed_ranges_with_their_lookback_partition_the_result(spark: SparkSession, seed: int, lower: int, upper: int, marks: set[int]):
    frames = Sample.drawn(seed).frames(spark)
    edges = [None, *sorted(marks), 100]
    ranges = [ClosedRange(after, upto) for after, upto in pairwise(edges) if upto is not None]
    parts: dict[str, DataFrame] = {}
    for how in HOWS:
        join = IntervalJoin(on=ON, lower=lower, upper=upper, how=how)
        parts[f"{how} whole"] = ids_and_times(join(*frames))
        for n, closing in enumerate(ranges):
            parts[f"{how} {n}"] = ids_and_times(_closed(join, frames, closing))
    found = by_tag(tagged(parts))
    for how in HOWS:
        whole = found.get(f"{how} whole", Counter())
        delay = IntervalJoin(on=ON, lower=lower, upper=upper).reads.watermark_delay
        assert max((final - at for *_, at, final in whole), default=1) == 1 == delay
        pieces = [found.get(f"{how} {n}", Counter()) for n in range(len(ranges))]
        for closing, piece in zip(ranges, pieces, strict=True):
            after = -(10**9) if closing.after is None else closing.after
            assert piece == Counter({row: n for row, n in whole.items() if after < row[-1] <= closing.upto})
        assert sum(pieces, Counter()) == whole


def _closed(join: IntervalJoin, frames: tuple[DataFrame, DataFrame], closing: ClosedRange) -> DataFrame:
    """The results of a range from the rows within its lookback only, as the engine computes them (times in whole ms)."""
    time = F.timestamp_millis(F.unix_millis("event_time"))
    near = [f.where(time <= instant(closing.upto, time)) for f in frames]
    if closing.after is not None:
        near = [f.where(time >= instant(closing.after - lookback, time)) for f, lookback in zip(near, join.reads.lookback, strict=True)]
    return join(*near).where(closing.holds(F.col("final_at")))


@pytest.mark.parametrize(
    ("how", "lookback"),
    [
        pytest.param("inner", (10, 5), id="inner: the largest time difference of a pair"),
        pytest.param("left", (10, 15), id="left: right rows that can match an unmatched left row"),
        pytest.param("right", (15, 5), id="right: as left, mirrored"),
        pytest.param("full", (15, 15), id="full"),
    ],
)
def test_the_contract_for_the_engine(how: How, lookback: tuple[int, int]):
    join = IntervalJoin(on="k", lower=-5, upper=10, how=how)
    assert (join.reads, join.emits, join.inputs) == (ByTimeRange(lookback=lookback, watermark_delay=1), Append(), ("left", "right"))
    assert (join.keeps_unmatched(0), join.keeps_unmatched(1)) == (how in ("left", "full"), how in ("right", "full"))
    assert join.traced("k") == ("k", "k")
    assert join.traced("seq") == ("left_seq", "right_seq")


def test_a_row_before_the_watermark_is_late_and_an_unmatched_row_is_finalized_after_its_last_possible_match(spark: SparkSession):
    join = IntervalJoin(on="k", lower=-5, upper=10)
    rows = spark.range(98, 102).select("id", F.timestamp_millis("id").alias("t"))
    late = [
        join.late(F.col("t"), mark).alias(name)
        for name, mark in (("late", instant(100, F.col("t"))), ("never", F.lit(None).cast("timestamp")))
    ]
    finalized = [F.unix_millis(join.finalized_at_if_unmatched(which, F.col("t"))).alias(f"finalized{which}") for which in (0, 1)]
    found = [tuple(r) for r in rows.select("id", *late, *finalized).orderBy("id").collect()]
    assert found == [(t, t < 100, False, t + 11, t + 6) for t in (98, 99, 100, 101)]


def test_equal_column_names_get_the_prefix_of_their_side(spark: SparkSession):
    left = frame(spark, []).selectExpr("k", "event_time", "v", "id as only_left", "event_time as result_time")
    right = frame(spark, []).selectExpr("id as only_right", "v", "k", "event_time", "event_time as final_at")
    join = IntervalJoin(on="k", lower=0, upper=0, how="full", left_prefix="l_")
    assert join(left, right).columns == [
        *("k", "l_event_time", "l_v", "only_left", "l_result_time"),
        *("only_right", "right_v", "right_event_time", "right_final_at", "result_time", "final_at"),
    ]


@pytest.mark.parametrize("how", HOWS)
def test_no_temporary_column_leaks_and_the_times_are_timestamps(spark: SparkSession, how: How):
    rows = frame(spark, [])
    result = IntervalJoin(on=ON, lower=0, upper=0, how=how)(rows, rows)
    assert not [c for c in result.columns if c.startswith("__tm_")]
    assert [t for _, t in result.dtypes[-2:]] == ["timestamp", "timestamp"]


def test_keys_with_unusual_names_and_types(spark: SparkSession):
    """Keys with names like temporary columns, keys of two widths, and a time that is also a key."""
    left = spark.range(3).selectExpr("id as there_left", "cast(id as int) as is_there", "timestamp_millis(id) as event_time")
    right = spark.range(2).selectExpr("id as there_left", "id as is_there", "timestamp_millis(id) as event_time")
    join = IntervalJoin(on=("is_there", "there_left", "event_time"), lower=0, upper=0, how="left")
    found = join(left, right)
    assert found.dtypes[0] == ("is_there", "bigint")
    assert found.columns == ["is_there", "there_left", "event_time", "result_time", "final_at"]
    assert found.select("is_there", F.unix_millis("result_time")).orderBy("is_there").collect() == [(0, 0), (1, 1), (2, 2)]


@pytest.mark.parametrize(
    ("spec", "match"),
    [
        pytest.param({"how": "outer"}, r"`how` is 'outer'; legal: inner, left, right, full", id="how"),
        pytest.param({"on": ()}, r"`on` is \(\); legal: at least one column; a join without a key", id="empty on"),
        pytest.param({"on": ("k", "k")}, r"`on` is \('k', 'k'\); legal: each column once", id="one key twice"),
        pytest.param({"right_prefix": "left_"}, r"`right_prefix` is 'left_'; legal: a prefix other than `left_prefix`", id="one prefix"),
        pytest.param({"lower": 1.5}, r"`lower` is 1.5; legal: whole milliseconds", id="lower"),
        pytest.param({"upper": "soon"}, r"`upper` is 'soon'; legal: whole milliseconds", id="upper"),
    ],
)
def test_an_illegal_parameter_is_refused_at_construction(spec: dict[str, Any], match: str):
    with pytest.raises(OperatorError, match=match):
        IntervalJoin(**({"on": "k", "lower": 0, "upper": 0} | spec))


@pytest.mark.parametrize(
    ("spec", "left", "right", "match"),
    [
        pytest.param(
            {"on": "order"},
            "*",
            "*",
            r"`on` names the column 'order', which the frame does not have; its columns: case_id, k, event_time",
            id="key",
        ),
        pytest.param(
            {},
            "*",
            "* except (k)",
            r"`on` names the column 'k', which the frame does not have; its columns: case_id, event_time",
            id="key, right",
        ),
        pytest.param({"left_time": "at"}, "*", "*", r"`left_time` names the column 'at', which the frame does not have", id="left time"),
        pytest.param({"right_time": "at"}, "*", "*", r"`right_time` names the column 'at', which the frame does not have", id="right time"),
        pytest.param({"left_time": "v"}, "*", "*", r"`left_time` names the column 'v' of type int; legal: timestamp", id="no time"),
        pytest.param(
            {"right_time": "n"}, "*", "k, to_timestamp_ntz(event_time) n", r"'n' of type timestamp_ntz; legal: timestamp", id="no zone"
        ),
        pytest.param(
            {}, "*", "int(v) k, event_time", r"`on` names the column 'k', which is string on the left and int on the right", id="key types"
        ),
        pytest.param(
            {}, "bigint(v) k, event_time", "double(v) k, event_time", r"which is bigint on the left and double on the right", id="lossy"
        ),
        pytest.param({}, "*, v as __tm_v", "*", r"the column '__tm_v' starts with '__tm_', which is reserved", id="reserved"),
        pytest.param({}, "*, v as left_v", "*", r"the result would have left_v twice; choose other `left_prefix`", id="collision"),
        pytest.param({}, "k, event_time, v", "k, event_time, v as V", r"the result would have V twice", id="collision in another case"),
        pytest.param({"left_prefix": ""}, "*, v as final_at", "*", r"the result would have final_at twice", id="collision with the result"),
    ],
)
def test_an_illegal_frame_is_refused(spark: SparkSession, spec: dict[str, Any], left: str, right: str, match: str):
    rows = frame(spark, [])
    one, other = (rows.selectExpr(f"{s}") if s == "*" else spark.sql(f"select {s} from {{rows}}", rows=rows) for s in (left, right))
    with pytest.raises(ColumnError, match=match):
        IntervalJoin(**({"on": "k", "lower": 0, "upper": 0} | spec))(one, other)


def test_exact_numeric_keys_of_two_widths_join(spark: SparkSession):
    rows = frame(spark, [], pa.schema([*EVENTS, ("n", pa.int64())]))
    other = rows.withColumn("n", F.col("n").cast("decimal(20,0)"))
    assert IntervalJoin(on="n", lower=0, upper=0)(rows, other).columns[0] == "n"
