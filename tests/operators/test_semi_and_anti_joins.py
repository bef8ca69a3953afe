"""Semi and anti interval joins, and joins of late rows: by example, and against the model in generated cases."""

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from operators import ByTimeRange, ClosedRange, ColumnError, EveryInterval, EveryRows, EveryStep, IntervalJoin, OperatorError
from operators.contract import NEVER_LATE
from operators.engine_columns import WATERMARK
from operators.interval_join import How, LateRows
from operators.timing import FOREVER, instant
from tests.operators.examples import Example, check
from tests.operators.frames import EVENTS, by_tag, frame, tagged
from tests.support.late_rows_model import Arrival, JoinModel

LEFT = """
    k | time  | id
    a | 10:00 | matched later, and again after that
    a | 10:20 | matched by an earlier row
    a | 10:40 | no row within the bounds
    b | 10:00 | no row of its key
    - | 10:00 | a null key
    a | -     | a null time
"""
RIGHT = """
    k | time  | id
    a | 10:05 | r1
    a | 10:07 | r2
    a | 10:15 | r3
    - | 10:00 | r4
    a | -     | r5
"""


def _join(how: How, residual: str | None = None, **spec: Any) -> IntervalJoin:
    return IntervalJoin(**{"on": "k", "lower": "-5 minutes", "upper": "10 minutes", "how": how, "residual": residual, **spec})


EXAMPLES = [
    Example(
        "semi: each left row with a match, once, at the time of its earliest pair",
        _join("semi"),
        (LEFT, RIGHT),
        """
        k | time  | id                                  | result_time | final_at
        a | 10:00 | matched later, and again after that | 10:05       | 10:05:00.001
        a | 10:20 | matched by an earlier row           | 10:20       | 10:20:00.001
        """,
    ),
    Example(
        "anti: each left row without a match, when it can have none any more; nulls match nothing",
        _join("anti"),
        (LEFT, RIGHT),
        """
        k | id                      | result_time | final_at
        a | no row within the bounds | 10:50      | 10:50:00.001
        b | no row of its key        | 10:10      | 10:10:00.001
        - | a null key               | 10:10      | 10:10:00.001
        a | a null time              | -          | -
        """,
    ),
    Example(
        "semi: equal left rows are as many in the result, with equal right rows too",
        _join("semi"),
        ("k | time\na | 10:00\na | 10:00\na | 10:00", "k | time\na | 10:01\na | 10:01"),
        """
        k | time  | result_time
        a | 10:00 | 10:01
        a | 10:00 | 10:01
        a | 10:00 | 10:01
        """,
    ),
    Example(
        "semi: the extra condition decides which pair is the earliest",
        _join("semi", "left_v <= right_v"),
        ("k | time | v:int\na | 10:00 | 5\na | 10:01 | 9", "k | time | v:int\na | 10:02 | 4\na | 10:03 | 5\na | 10:04 | 6"),
        """
        k | v | result_time
        a | 5 | 10:03
        """,
    ),
    Example(
        "late rows are joined: with a row that can still be matched, with none whose time is over, else the row is unmatched",
        _join("full", late_rows="join"),
        (
            """
            k | time  | watermark | id
            a | 10:00 | -         | open until 10:10
            b | 10:00 | -         | open until 10:10
            c | 10:30 | 10:11     | on time
            """,
            """
            k | time  | watermark | id
            a | 10:02 | 10:10     | late, at 10:10
            b | 10:02 | 10:11     | late, at 10:11
            c | 10:30 | 10:11     | on time
            """,
        ),
        """
        k | left_id          | right_id       | result_time
        a | open until 10:10 | late, at 10:10 | 10:02
        b | open until 10:10 | -              | 10:10
        b | -                | late, at 10:11 | 10:07
        c | on time          | on time        | 10:30
        """,
    ),
    Example(
        "two late rows: the watermarks give their order, and the first one must be one that can still be matched",
        _join("left", lower=0, late_rows="join"),
        (
            """
            k | time  | watermark | id
            a | 10:00 | 10:05     | open, then a row at 10:06
            b | 10:00 | 10:20     | a row at 10:06, then this one
            c | 10:00 | 10:05     | with a row at 10:05
            """,
            """
            k | time  | watermark | id
            a | 10:02 | 10:06     | r1
            b | 10:02 | 10:06     | r2
            c | 10:02 | 10:05     | r3
            """,
        ),
        """
        left_id                       | right_id | result_time
        open, then a row at 10:06     | r1       | 10:02
        a row at 10:06, then this one | -        | 10:10
        with a row at 10:05           | r3       | 10:02
        """,
    ),
    Example(
        "an allowed lateness moves the watermark at which late rows are joined",
        _join("inner", late_rows="join", allowed_lateness="2 minutes"),
        (
            "k | time | watermark | id\na | 10:00 | - | l1\nb | 10:00 | - | l2",
            "k | time | watermark | id\na | 10:00 | 10:12 | r1\nb | 10:00 | 10:13 | r2",
        ),
        """
        left_id | right_id
        l1      | r1
        """,
    ),
]


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda e: e.id)
def test_a_join_by_example(spark: SparkSession, example: Example) -> None:
    check(spark, example)


BOUNDS = [(-5, 10), (0, 7), (-8, 0), (-9, -3), (3, 9), (0, 0), (4, -4)]
"""Lower and upper bounds in ms; with the last ones nothing matches."""
NUMBERS = [250, pytest.param(1_000, marks=pytest.mark.soak)]
SCHEMA = EVENTS.append(pa.field(WATERMARK, pa.timestamp("us", tz="UTC")))


@dataclass(frozen=True)
class Cases:
    """Small streams, each a list of arrivals in the order of their batches.

    Args:
        seed: the seed of the random numbers.
        are_late: whether rows have watermarks, which many are behind.
        number: the number of streams.
    """

    seed: int
    are_late: bool
    number: int

    @cached_property
    def arrivals(self) -> dict[str, list[Arrival]]:
        choose = random.Random(self.seed)
        return {str(case): self._stream(choose) for case in range(self.number)}

    def _stream(self, choose: random.Random) -> list[Arrival]:
        found, watermark = list[Arrival](), None
        for _ in range(choose.randint(1, 4)):
            found += [self._row(choose, watermark, len(found) + n) for n in range(choose.randint(0, 4))]
            if self.are_late and choose.random() < 0.7:
                watermark = max(-30 if watermark is None else watermark, choose.randint(-15, 15))
        return found

    def _row(self, choose: random.Random, watermark: int | None, n: int) -> Arrival:
        side = choose.randint(0, 1)
        key, at, v = choose.choice((None, "a", "a", "b")), choose.randint(-15, 15), choose.randint(0, 2)
        return Arrival(side, f"{'lr'[side]}{n}", key, at, watermark, v)

    def frames(self, spark: SparkSession) -> list[DataFrame]:
        """The rows of both sides."""
        by_side: list[list[tuple[Any, ...]]] = [[], []]
        for case, rows in self.arrivals.items():
            for r in rows:
                mark = None if r.watermark is None else r.watermark * 1_000
                by_side[r.side].append((case, r.key, r.at * 1_000, r.id, r.v, mark))
        return [frame(spark, rows, SCHEMA) for rows in by_side]


def _expected(cases: Cases, model: JoinModel) -> Counter[tuple[Any, ...]]:
    found = {case: model(rows) for case, rows in cases.arrivals.items()}
    return Counter({(case, *row): n for case, rows in found.items() for row, n in rows.items()})


def _found(join: IntervalJoin, frames: list[DataFrame]) -> DataFrame:
    return _ids_and_time(join, join(*frames))


def _ids_and_time(join: IntervalJoin, rows: DataFrame) -> DataFrame:
    """The ids of the rows of each result, and its result time in ms."""
    ids = [F.col("id"), F.lit(None).cast("string")] if join.how in ("semi", "anti") else [F.col("left_id"), F.col("right_id")]
    return rows.select("case_id", *ids, F.unix_millis("result_time"))


def _joins(how: How, bounds: Sequence[tuple[int, int]] = BOUNDS, **spec: Any) -> dict[str, tuple[IntervalJoin, JoinModel]]:
    """A join and its model for each of the bounds, every second one with an extra condition."""
    found: dict[str, tuple[IntervalJoin, JoinModel]] = {}
    for n, (lower, upper) in enumerate(bounds):
        residual = n % 2 == 1
        condition = "left_v <= right_v" if residual else None
        join = IntervalJoin(on=("case_id", "k"), lower=lower, upper=upper, how=how, residual=condition, **spec)
        model = JoinModel(join.interval, how, join.lateness.ms, join.late_rows, residual)
        found[f"{how} {lower} {upper} {spec}"] = join, model
    return found


def _check(spark: SparkSession, cases: Cases, joins: dict[str, tuple[IntervalJoin, JoinModel]]) -> dict[str, Counter[tuple[Any, ...]]]:
    frames = [f.cache() for f in cases.frames(spark)]
    found = by_tag(tagged({name: _found(join, frames) for name, (join, _) in joins.items()}))
    for name, (_, model) in joins.items():
        expected = _expected(cases, model)
        assert found.get(name, Counter()) == expected, name
    return found


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("how", ["semi", "anti"])
def test_a_join_of_left_rows_equals_the_model(spark: SparkSession, how: How, number: int) -> None:
    found = _check(spark, Cases(1, are_late=False, number=number), _joins(how))
    assert sum(rows.total() for rows in found.values()) > number


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("how", ["full", "semi", "anti"])
def test_joins_of_late_rows_equal_the_model(spark: SparkSession, how: How, number: int) -> None:
    """Without a late row the rule changes nothing; with late rows it gives more pairs than to drop them."""
    cases = Cases(2, are_late=True, number=number)
    joins = _joins(how, late_rows="join") | _joins(how, BOUNDS[:2], late_rows="join", allowed_lateness=4)
    _check(spark, cases, joins)
    if how == "full":
        pairs = [Counter(len(model.pairs(rows)) for rows in cases.arrivals.values()) for _, model in joins.values()]
        dropped = [
            Counter(len(replace(model, late_rows="drop").pairs(rows)) for rows in cases.arrivals.values()) for _, model in joins.values()
        ]
        assert sum(n * k for c in pairs for n, k in c.items()) > sum(n * k for c in dropped for n, k in c.items())


@pytest.mark.parametrize("number", NUMBERS)
def test_every_row_comes_out_of_a_full_join_of_late_rows(spark: SparkSession, number: int) -> None:
    cases = Cases(3, are_late=True, number=number)
    [join, _] = _joins("full", late_rows="join")["full -5 10 {'late_rows': 'join'}"]
    rows = join(*cases.frames(spark)).select("case_id", "left_id", "right_id").collect()
    found = {(case, row) for case, *pair in rows for row in pair if row is not None}
    assert found == {(case, row.id) for case, rows in cases.arrivals.items() for row in rows}


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("late_rows", ["drop", "join"])
def test_closed_ranges_with_their_lookback_partition_the_result(spark: SparkSession, late_rows: LateRows, number: int) -> None:
    frames = [f.cache() for f in Cases(4, are_late=late_rows == "join", number=number).frames(spark)]
    edges, parts, joins = [None, -3, 5, 100], dict[str, DataFrame](), dict[str, IntervalJoin]()
    for how in ("semi", "anti") if late_rows == "drop" else ("semi", "full"):
        joins |= {name: join for name, (join, _) in _joins(how, BOUNDS[:2], late_rows=late_rows).items()}
    for name, join in joins.items():
        parts[f"{name} whole"] = _found(join, frames)
        for after, upto in pairwise(edges):
            assert upto is not None
            parts[f"{name} {upto}"] = _closed(join, frames, ClosedRange(after, upto))
    found = by_tag(tagged(parts))
    for name in joins:
        pieces = [found.get(f"{name} {upto}", Counter()) for upto in edges if upto is not None]
        assert sum(pieces, Counter()) == found.get(f"{name} whole", Counter()), name
        assert all(pieces), name


def _closed(join: IntervalJoin, frames: list[DataFrame], closing: ClosedRange) -> DataFrame:
    """The results of a range from the rows within its lookback only, as the engine computes them."""
    time = F.col("event_time")
    near = [f.where(time <= instant(closing.upto, time)) for f in frames]
    if closing.after is not None:
        near = [f.where(time >= instant(closing.after - lookback, time)) for f, lookback in zip(near, join.reads.lookback, strict=True)]
    return _ids_and_time(join, join(*near).where(closing.holds(F.col("final_at"))))


@pytest.mark.parametrize("how", ["semi", "anti"])
def test_the_result_has_the_left_columns_with_their_own_names(spark: SparkSession, how: How) -> None:
    rows = frame(spark, [("c", "a", 0, "x", 1)]).withColumns({"m": F.create_map(F.lit("a"), F.lit(1)), "result_time": F.lit("own")})
    found = IntervalJoin(on="k", lower=0, upper=0, how=how)(rows, rows)
    assert found.columns == ["case_id", "k", "event_time", "id", "v", "m", "left_result_time", "result_time", "final_at"]
    assert found.count() == (how == "semi")
    join = IntervalJoin(on="k", lower=0, upper=0, how=how)
    assert join.result_columns(rows.columns, rows.columns) == tuple(found.columns)
    both = rows.withColumn("left_result_time", F.lit(1))
    with pytest.raises(ColumnError, match="the result would have left_result_time twice; choose another `left_prefix`"):
        join(both, both)


@pytest.mark.parametrize(
    ("how", "late_rows", "reads"),
    [
        pytest.param("semi", "drop", ByTimeRange((10, 15), 1), id="semi: right rows that may be an earlier match"),
        pytest.param("anti", "drop", ByTimeRange((10, 15), 1), id="anti: right rows that can match an unmatched left row"),
        pytest.param("inner", "join", ByTimeRange((10, 5), 1, with_watermark=True, lateness=FOREVER), id="late rows are joined"),
    ],
)
def test_the_contract_for_the_engine(how: How, late_rows: LateRows, reads: ByTimeRange) -> None:
    join = IntervalJoin(on="k", lower=-5, upper=10, how=how, late_rows=late_rows)
    assert join.reads == reads
    assert (join.keeps_unmatched(0), join.keeps_unmatched(1)) == (how == "anti", False)
    assert join.traced("seq") == (("left_seq", "right_seq") if how == "inner" else ("seq", None))
    assert join.pairs.traced("seq") == ("left_seq", "right_seq")
    assert join.late_before(100) == (NEVER_LATE if late_rows == "join" else 100)


def test_a_row_is_late_by_more_than_the_allowed_lateness(spark: SparkSession) -> None:
    rows = spark.range(95, 102).select("id", F.timestamp_millis("id").alias("t"))
    joins = {"allowed": {"allowed_lateness": "4 ms"}, "joined": {"late_rows": "join", "allowed_lateness": 4}, "none": {}}
    late = [IntervalJoin(on="k", lower=0, upper=5, **spec).late(F.col("t"), instant(100, F.col("t"))) for spec in joins.values()]  # pyright: ignore[reportArgumentType]
    assert [tuple(r) for r in rows.select("id", *late).orderBy("id").collect()] == [(t, t < 96, False, t < 100) for t in range(95, 102)]
    allowed = IntervalJoin(on="k", lower=0, upper=5, allowed_lateness=4)
    assert (allowed.reads.lateness, allowed.late_before(100)) == (4, 96)


@pytest.mark.parametrize(
    ("spec", "match"),
    [
        ({"how": "semi-join"}, r"`how` is 'semi-join'; legal: inner, left, right, full, semi, anti"),
        ({"late_rows": "pad"}, r"`late_rows` is 'pad'; legal: drop, join"),
        ({"allowed_lateness": -1}, r"`allowed_lateness` is -1"),
        ({"allowed_lateness": "a while"}, r"`allowed_lateness` is 'a while'"),
        (
            {"early": EveryRows(2)},
            r"`early` is EveryRows\(rows=2\); legal: EveryStep or EveryInterval or None for how='inner': a pair has two",
        ),
        ({"early": EveryInterval("1 minute"), "how": "semi"}, r"legal: EveryStep or None for how='semi': an earlier match"),
        ({"early": EveryStep(), "how": "anti"}, r"legal: None for how='anti': that a row has no match"),
    ],
    ids=["how", "late rows", "negative lateness", "no duration", "early by rows", "early and semi", "early and anti"],
)
def test_an_illegal_parameter_is_refused(spec: dict[str, Any], match: str) -> None:
    with pytest.raises(OperatorError, match=match):
        IntervalJoin(**({"on": "k", "lower": 0, "upper": 0} | spec))


def test_pairs_so_far_have_the_columns_of_the_result_and_the_number_of_their_rows(spark: SparkSession) -> None:
    left, right = frame(spark, [("c", "a", 0, "l1", 1), ("c", "b", 0, "l2", 1)]), frame(spark, [("c", "a", 0, "r1", 1)])
    for how, names in {"full": ("left_id", "right_id", 2), "semi": ("id", "id", 1)}.items():
        join = IntervalJoin(on="k", lower=0, upper=5, how=how, early=EveryStep())  # pyright: ignore[reportArgumentType]
        so_far = join.so_far(left, right)
        assert so_far.columns == [*join(left, right).columns, "rows_seen"]
        assert so_far.select(*names[:1], "rows_seen").collect() == [("l1", names[2])]
    with pytest.raises(ColumnError, match="the result would have is_final twice"):
        IntervalJoin(on="k", lower=0, upper=5, early=EveryStep())(left.withColumn("is_final", F.lit(1)), right)
