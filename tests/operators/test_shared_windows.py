"""Window joins and coGroups with evictors, and what they show early: examples, and generated cases against a model."""

import json
import random
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from operators import CoGroup, CountEvictor, DeltaEvictor, OperatorError, Session, Sliding, TimeEvictor, Tumbling, WindowJoin
from operators.windows import AnyWindow
from tests.operators.examples import Example, check, read
from tests.support.evictors_model import Element, kept_rows
from tests.support.json_rows import json_rows_of
from tests.support.sessions_model import sessions
from tests.support.windows_model import Span, windows_at

TEN_MINUTES = Tumbling(size="10 minutes")
BIDS = """
    time  | k | bid:int
    10:00 | a | 1
    10:04 | a | 2
    10:08 | a | 9
    10:02 | - | 5
    10:03 | - | 6
"""
ASKS = """
    time  | k | ask:int
    10:03 | a | 3
    10:05 | a | 8
    10:12 | a | 7
"""
DELTA = DeltaEvictor("abs(coalesce(row.left.bid, row.right.ask) - coalesce(last.left.bid, last.right.ask))", 2)
EXAMPLES = [
    Example(
        "an evictor of a join keeps the last rows of both sides together: here a bid, the ask before it, and the bid before that",
        WindowJoin(on="k", window=TEN_MINUTES, evictor=CountEvictor(3)),
        (BIDS, ASKS),
        """
        k | window      | bid | ask
        a | 10:00-10:10 | 2   | 8
        a | 10:00-10:10 | 9   | 8
        """,
    ),
    Example(
        "an evicted row is not in the result of an outer join either; the null keys of a side are a group of their own",
        WindowJoin(on="k", window=TEN_MINUTES, how="full", evictor=CountEvictor(1)),
        (BIDS, ASKS),
        """
        k | window      | bid | ask
        a | 10:00-10:10 | 9   | -
        a | 10:10-10:20 | -   | 7
        - | 10:00-10:10 | 6   | -
        """,
    ),
    Example(
        "an evictor by time keeps the rows less than 5 minutes older than the newest row of either side",
        CoGroup(on="k", window=TEN_MINUTES, evictor=TimeEvictor("5 minutes")),
        (BIDS, ASKS),
        """
        k | window      | left.bid | right.ask
        a | 10:00-10:10 | [2 9]    | [8]
        a | 10:10-10:20 | []       | [7]
        - | 10:00-10:10 | [5 6]    | []
        """,
    ),
    Example(
        "an evictor by delta compares each row of either side with the last one: 9 at 10:08",
        CoGroup(on="k", window=TEN_MINUTES, evictor=DELTA),
        (BIDS, ASKS),
        """
        k | window      | left.bid | right.ask
        a | 10:00-10:10 | [9]      | [8]
        a | 10:10-10:20 | []       | [7]
        - | 10:00-10:10 | [5 6]    | []
        """,
    ),
]


@dataclass(frozen=True)
class _WithoutLowAsks:
    """An evictor of a user's own: it leaves out the asks below a price."""

    least: int

    def keep(self, rows: DataFrame, group: Sequence[str], time: str) -> DataFrame:
        return rows.where(F.col("right").isNull() | (F.col("right.ask") >= self.least))


EXAMPLES.append(
    Example(
        "an evictor of one's own reads the rows of the sides; bids whose asks it removes are unmatched",
        WindowJoin(on="k", window=TEN_MINUTES, how="left", evictor=_WithoutLowAsks(9)),
        (BIDS, ASKS),
        """
        k | window      | bid | ask
        a | 10:00-10:10 | 1   | -
        a | 10:00-10:10 | 2   | -
        a | 10:00-10:10 | 9   | -
        - | 10:00-10:10 | 5   | -
        - | 10:00-10:10 | 6   | -
        """,
    )
)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda e: e.id)
def test_the_example(spark: SparkSession, example: Example) -> None:
    check(spark, example)


def test_early_results_have_the_number_of_rows_of_both_sides_evicted_or_not(spark: SparkSession) -> None:
    frames = [read(spark, text) for text in (BIDS, ASKS)]
    pairs = WindowJoin(on="k", window=TEN_MINUTES, how="full", evictor=CountEvictor(1)).so_far(*frames)
    assert sorted(map(tuple, pairs.select("bid", "rows_seen").collect()), key=repr) == [(6, 2), (9, 5), (None, 1)]
    groups = CoGroup(on="k", window=TEN_MINUTES).so_far(*frames)
    assert sorted(map(tuple, groups.select("k", "rows_seen").collect()), key=repr) == [("a", 1), ("a", 5), (None, 2)]
    assert pairs.columns[-3:] == groups.columns[-3:] == ["rows_seen", "result_time", "final_at"]


Case = tuple[list[Element], list[Element]]
GAP, LONGEST = 4, 9
WINDOWS: dict[str, AnyWindow] = {"sliding": Sliding(size=10, slide=4, offset=1), "session": Session(gap=GAP, longest=LONGEST)}
EVICTORS = {
    "none": None,
    "count": CountEvictor(3),
    "time": TimeEvictor(4),
    "delta": DeltaEvictor("abs(coalesce(row.left.v, row.right.v) - coalesce(last.left.v, last.right.v))", 3),
}


@dataclass(frozen=True)
class Group:
    """The rows of a key and window, before and after an evictor."""

    key: tuple[int, str | None]
    span: Span
    seen: int
    left: list[Element]
    right: list[Element]


def _cases(number: int) -> dict[tuple[int, str | None], Case]:
    """One key for each case, which is null in every fifth case. Few times, values and batches, so that there are many ties."""
    found: dict[tuple[int, str | None], Case] = {}
    for case in range(number):
        rng = random.Random(case)
        sides: list[list[Element]] = []
        for side in (0, 1):
            positions = rng.sample([(seq, n) for seq in (1, 2) for n in range(6)], rng.randrange(7))
            sides.append([Element(rng.randrange(-9, 12), *p, side, n, rng.choice([None, *range(6)])) for n, p in enumerate(positions)])
        found[case, None if case % 5 == 0 else "a"] = sides[0], sides[1]
    return found


SCHEMA = pa.schema({"case_id": pa.int64(), "k": pa.string(), "t": pa.int64(), "seq": pa.int64(), "arrival": pa.int64()})
VALUES = pa.schema([*SCHEMA, ("id", pa.int64()), ("v", pa.int64())])


def _frame(spark: SparkSession, cases: Mapping[tuple[int, str | None], Case], side: int) -> DataFrame:
    rows = [(*key, r.t, r.seq, r.arrival, r.id, r.v) for key, sides in cases.items() for r in sides[side]]
    columns = [pa.array(c, f.type) for c, f in zip(zip(*rows, strict=True), VALUES, strict=True)]
    return spark.createDataFrame(pa.table(columns, schema=VALUES)).withColumn("event_time", F.timestamp_millis("t")).drop("t")


def _spans(window: AnyWindow, rows: Sequence[Element]) -> Iterator[tuple[Span, list[Element]]]:
    """The windows of the rows of one group."""
    if isinstance(window, Session):
        formed = sessions([(r.t, n) for n, r in enumerate(rows)], GAP, LONGEST)
        yield from ((span, [rows[n] for _, n in part]) for span, part in formed.items())
        return
    spans: dict[Span, list[Element]] = {}
    for row in rows:
        for span in windows_at(window, row.t):
            spans.setdefault(span, []).append(row)
    yield from spans.items()


def _groups(window: AnyWindow, evictor: Any, cases: Mapping[tuple[int, str | None], Case]) -> Iterator[Group]:
    """The groups of all cases. Rows with a null key are grouped by side; early results count both."""
    for key, (left, right) in cases.items():
        parts = [[*left, *right]] if key[1] else [left, right]
        spans = [(span, inside) for part in parts for span, inside in _spans(window, part)]
        for span, inside in spans:
            seen = sum(len(rows) for other, rows in spans if other == span)
            rest = kept_rows(evictor, inside)
            yield Group(key, span, seen, [r for r in rest if r.side == 0], [r for r in rest if r.side == 1])


def _with_bounds(frame: DataFrame, *columns: Any) -> DataFrame:
    return frame.select("case_id", "k", *[F.unix_millis(c).alias(c) for c in ("window_start", "window_end")], *columns)


@pytest.mark.parametrize(
    ("evictor", "window", "number"),
    [
        ("none", "session", 200),
        ("count", "sliding", 200),
        ("time", "session", 200),
        ("delta", "sliding", 200),
        *(pytest.param(evictor, window, 1_000, marks=pytest.mark.soak) for evictor, window in product(EVICTORS, WINDOWS)),
    ],
)
def test_generated_cases_equal_the_model(spark: SparkSession, evictor: str, window: str, number: int) -> None:
    cases, given = _cases(number), {"window": WINDOWS[window], "evictor": EVICTORS[evictor]}
    sides = [_frame(spark, cases, side) for side in (0, 1)]
    groups = [*_groups(WINDOWS[window], EVICTORS[evictor], cases)]
    cogroup, join = CoGroup(on=["case_id", "k"], **given), WindowJoin(on=["case_id", "k"], how="full", **given)
    arrays = [F.concat_ws(",", F.transform(side, lambda r: r["id"])).alias(side) for side in ("left", "right")]
    frames = {
        "groups so far": _with_bounds(cogroup.so_far(*sides), "rows_seen", *arrays),
        "pairs so far": _with_bounds(join.so_far(*sides), "rows_seen", "left_id", "right_id"),
        "pairs": _with_bounds(join(*sides), "left_id", "right_id"),
    }
    found = {name: Counter(tuple(json.loads(row).values()) for row in rows) for name, rows in json_rows_of(frames).items()}
    texts = [(g, *[",".join(str(r.id) for r in rows) for rows in (g.left, g.right)]) for g in groups]
    assert found["groups so far"] == Counter((*g.key, *g.span, g.seen, *text) for g, *text in texts)
    pairs: Counter[tuple[Any, ...]] = Counter()
    for g in groups:
        at = (*g.key, *g.span, g.seen)
        pairs.update((*at, l.id, r.id) for l in g.left for r in g.right)  # noqa: E741
        if not (g.left and g.right):
            pairs.update([*((*at, l.id, None) for l in g.left), *((*at, None, r.id) for r in g.right)])  # noqa: E741
    assert found["pairs so far"] == pairs
    assert found["pairs"] == Counter({(*row[:4], *row[5:]): n for row, n in pairs.items()})
    assert len(groups) > number


def test_an_evictor_keeps_the_same_rows_without_positions_in_any_order_of_rows(spark: SparkSession) -> None:
    cases = _cases(200)
    frames = [_frame(spark, cases, side).drop("seq", "arrival") for side in (0, 1)]
    cogroup = CoGroup(on=["case_id", "k"], window=WINDOWS["sliding"], evictor=CountEvictor(2))
    once, again = (
        cogroup(*(f.repartition(n).sortWithinPartitions(F.rand(n)) for f in frames)).selectExpr("case_id", "k", "left.id", "right.id")
        for n in (1, 3)
    )
    assert sorted(map(repr, once.collect())) == sorted(map(repr, again.collect()))


@pytest.mark.parametrize("name", ["left", "RIGHT"])
def test_a_key_with_the_name_of_a_side_is_refused_with_an_evictor(name: str) -> None:
    legal = "names other than left and right, by which an `evictor` reads"
    with pytest.raises(OperatorError, match=rf"`on` is \('{name}',\); legal: {legal}"):
        WindowJoin(on=name, window=TEN_MINUTES, evictor=CountEvictor(1))
    assert WindowJoin(on="left", window=TEN_MINUTES).key == ("left",)


@pytest.mark.parametrize("delta", ["row.v - last.v", "row.left.v - LAST.`v`", "greatest(row.v, 0)"])
@pytest.mark.parametrize("operator", [WindowJoin, CoGroup])
def test_a_delta_over_two_inputs_that_reads_neither_side_is_refused(operator: Any, delta: str) -> None:
    legal = r"legal: fields of the rows left and right, .* such as coalesce\(row.left.v, row.right.v\); rows of two inputs have no 'v'"
    with pytest.raises(OperatorError, match=f"`delta` is '{re.escape(delta)}'; {legal}"):
        operator(on="k", window=TEN_MINUTES, evictor=DeltaEvictor(delta, 1))


@pytest.mark.parametrize("delta", ["row.`Left`.v - s.row.v", "row.k - last.K", "'row.v' || struct(row.*)", "last . right.v -- row.v"])
def test_a_delta_over_two_inputs_may_read_the_sides_and_the_key(delta: str) -> None:
    assert WindowJoin(on="k", window=TEN_MINUTES, evictor=DeltaEvictor(delta, 1)).evictor == DeltaEvictor(delta, 1)


def test_a_delta_that_is_no_function_of_the_rows_is_refused() -> None:
    with pytest.raises(OperatorError, match=r"`delta` is 'abs\(row.v - rand\(\)\)'; legal: an expression whose value depends on the rows"):
        DeltaEvictor("abs(row.v - rand())", 1)
    with pytest.raises(OperatorError, match="`threshold` is '3'; legal: a float that is not NaN"):
        DeltaEvictor("row.v - last.v", "3")  # pyright: ignore[reportArgumentType]
    assert DeltaEvictor("row.rand - last.`now`", 1).threshold == 1, "names of columns are no calls"
