"""Windows by count or up to a row: examples, and a comparison with a model in generated cases for each kind of window."""

import json
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from operators import (
    ColumnError,
    CountEvictor,
    CountWindowAggregate,
    DeltaEvictor,
    OperatorError,
    ProcessCountWindow,
    StreamingError,
    TimeEvictor,
)
from operators.contract import late_before
from operators.steps import ByKey, Upsert
from tests.operators.examples import Example, check
from tests.support.evictors_model import BuiltIn, Element, kept_rows
from tests.support.json_rows import json_rows_of

IDS = "concat_ws(' ', transform(sort_array(collect_list(struct(seq, arrival, id))), r -> r.id))"
AGGREGATES = {"n": "count(*)", "best": "max(v)", "ids": IDS}
ROWS = """
    batch | k | id | v:int
    1     | a | p  | 1
    1     | a | q  | 5
    2     | b | r  | 9
    2     | a | s  | 2
    3     | a | t  | -
    3     | - | u  | 7
    4     | a | v  | 8
    4     | - | w  | 3
"""
NUMBERED_PAIRS: dict[str, dict[str, Any]] = {"count": {"size": 2}, "a condition": {"ends_with": "window_number > 3"}}
"""Windows of two rows that are windows by count themselves."""
EXAMPLES = [
    Example(
        "size 2: windows of two rows of a key in order of arrival; the last row of a, and the only one of b, are in no window yet",
        CountWindowAggregate(by="k", size=2, aggregates=AGGREGATES),
        (ROWS,),
        """
        k | window_number | n | best | ids | seq | arrival
        a | 1             | 2 | 5    | p q | 1   | 1
        a | 2             | 2 | 2    | s t | 3   | 4
        - | 1             | 2 | 7    | u w | 4   | 7
        """,
    ),
    Example(
        "size 3, slide 2: at every second row a window of the last three rows; the first window has only two",
        CountWindowAggregate(by="k", size=3, slide=2, aggregates=AGGREGATES),
        (ROWS,),
        """
        k | window_number | n | best | ids
        a | 1             | 2 | 5    | p q
        a | 2             | 3 | 5    | q s t
        - | 1             | 2 | 7    | u w
        """,
    ),
    Example(
        "size 1, slide 2: at every second row a window of that row; the other rows are in no window",
        CountWindowAggregate(by="k", size=1, slide=2, aggregates=AGGREGATES),
        (ROWS,),
        """
        k | window_number | n | best | ids
        a | 1             | 1 | 5    | q
        a | 2             | 1 | -    | t
        - | 1             | 1 | 3    | w
        """,
    ),
    Example(
        "without a key all rows are counted together",
        CountWindowAggregate(size=3, aggregates=AGGREGATES),
        (ROWS,),
        """
        window_number | n | best | ids
        1             | 3 | 9    | p q r
        2             | 3 | 7    | s t u
        """,
    ),
    Example(
        "a window ends with each row of which the condition is true, and not with t, of which it is null; u to w have no end yet",
        CountWindowAggregate(by="k", ends_with="v > 4", aggregates=AGGREGATES),
        (ROWS,),
        """
        k | window_number | n | best | ids   | seq | arrival
        a | 1             | 2 | 5    | p q   | 1   | 1
        a | 2             | 3 | 8    | s t v | 4   | 6
        b | 1             | 1 | 9    | r     | 2   | 2
        - | 1             | 1 | 7    | u     | 3   | 5
        """,
    ),
    *[
        Example(
            f"rows of windows by count have a number of their own, which expressions read; the windows end by {how}",
            CountWindowAggregate(by="k", aggregates={"numbers": "sum(window_number)"}, **windows),
            (
                """
                batch | k | window_number:int
                1     | a | 2
                1     | a | 4
                2     | a | 1
                2     | a | 7
                """,
            ),
            """
            k | window_number | numbers
            a | 1             | 6
            a | 2             | 8
            """,
        )
        for how, windows in NUMBERED_PAIRS.items()
    ],
    Example(
        "a function of the rows of a window, in order of arrival; by default it returns them",
        ProcessCountWindow(by="k", size=2),
        (ROWS,),
        """
        k | window_number | elements.id | seq | arrival
        a | 1             | [p q]       | 1   | 1
        a | 2             | [s t]       | 3   | 4
        - | 1             | [u w]       | 4   | 7
        """,
    ),
    Example(
        "a function can give any number of rows of a window, here those with a value above 3; it can read the key and the window's number",
        ProcessCountWindow(
            by="k",
            size=2,
            rows="transform(filter(elements, e -> e.v > 3), e -> named_struct('id', e.id, 'of', concat(k, window_number)))",
        ),
        (ROWS.replace("4     | - | w  | 3", "4     | a | w  | 6"),),
        """
        k | window_number | result_number | id | of
        a | 1             | 1             | q  | a1
        a | 3             | 1             | v  | a3
        a | 3             | 2             | w  | a3
        """,
    ),
    Example(
        "an evictor compares with the row that arrived last, q, t and w, and keeps no row of which the difference is null;"
        " a window without a remaining row has no result, but a number and an end",
        CountWindowAggregate(by="k", size=2, aggregates=AGGREGATES, evictor=DeltaEvictor("coalesce(abs(row.v - last.v), 9)", 5)),
        (ROWS,),
        """
        k | window_number | n | best | ids | seq | arrival
        a | 1             | 2 | 5    | p q | 1   | 1
        - | 1             | 2 | 7    | u w | 4   | 7
        """,
    ),
    Example(
        "an evictor by time compares event times, which need not be in the order of arrival",
        ProcessCountWindow(size=3, evictor=TimeEvictor("2 minutes")),
        (
            """
            batch | time  | id
            1     | 10:05 | p
            1     | 10:02 | q
            1     | 10:04 | r
            """,
        ),
        """
        window_number | elements.id | seq | arrival
        1             | [p r]       | 1   | 2
        """,
    ),
]


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda e: e.id)
def test_the_example(spark: SparkSession, example: Example) -> None:
    check(spark, example)


_TYPES = {"id": pa.string(), "is_last": pa.bool_()}
SCHEMA = pa.schema([(c, _TYPES.get(c, pa.int64())) for c in ("case_id", "id", "v", "t", "seq", "arrival", "is_last")])
ROWS_WITH_VALUES = """
    transform(
        filter(elements, e -> e.v IS NOT NULL),
        (e, i) -> named_struct('id', e.id, 'at', i, 'of', size(elements), 'first', elements[0].id)
    )
"""
WINDOWS: list[dict[str, Any]] = [
    {"size": 3},
    {"size": 1},
    {"size": 4, "slide": 3},
    {"size": 5, "slide": 2},
    {"size": 2, "slide": 3},
    {"ends_with": "is_last"},
]
SLIDING, ENDED = WINDOWS[3], WINDOWS[5]
EVICTORS = [CountEvictor(2), TimeEvictor(4), DeltaEvictor("abs(row.v - last.v)", 3)]


@dataclass(frozen=True)
class GeneratedRow:
    """A row of a case, and whether it satisfies the condition that ends a window."""

    case: int
    element: Element
    is_last: bool | None


@cache
def _generated_rows(cases: int) -> Mapping[int, Sequence[GeneratedRow]]:
    """The rows of each case, in the order of arrival."""
    by_case: dict[int, list[GeneratedRow]] = {}
    for case in range(cases):
        rng = random.Random(case)
        positions = rng.sample([(seq, n) for seq in (1, 2, 3) for n in range(6)], rng.randrange(14))
        elements = [Element(rng.randrange(9), *p, 0, n, rng.choice([None, *range(9)])) for n, p in enumerate(positions)]
        rows = [GeneratedRow(case, element, rng.choice([True, False, False, None])) for element in elements]
        by_case[case] = sorted(rows, key=lambda row: (row.element.seq, row.element.arrival))
    return by_case


def _windows(rows: Sequence[GeneratedRow], window: Mapping[str, Any]) -> Iterator[tuple[int, list[Element]]]:
    """The windows of a case: their numbers, and the rows in the order of arrival."""
    elements = [row.element for row in rows]
    if "ends_with" in window:
        ends = [n for n, row in enumerate(rows, 1) if row.is_last]
        for number, (start, end) in enumerate(zip([0, *ends], ends, strict=False), 1):
            yield number, elements[start:end]
        return
    slide = window.get("slide", window["size"])
    for end in range(slide, len(rows) + 1, slide):
        yield end // slide, elements[max(0, end - window["size"]) : end]


@pytest.fixture(scope="module", params=[300, pytest.param(1_000, marks=pytest.mark.soak)])
def cases(request: pytest.FixtureRequest) -> int:
    """The number of cases."""
    return request.param


@pytest.fixture(scope="module")
def frame(spark: SparkSession, cases: int) -> Iterator[DataFrame]:
    rows = [row for rows in _generated_rows(cases).values() for row in rows]
    random.Random(1).shuffle(rows)
    values = [(r.case, f"r{r.element.id}", r.element.v, r.element.t, r.element.seq, r.element.arrival, r.is_last) for r in rows]
    columns = [pa.array(c, f.type) for c, f in zip(zip(*values, strict=True), SCHEMA, strict=True)]
    made = spark.createDataFrame(pa.table(columns, schema=SCHEMA)).withColumn("event_time", F.timestamp_millis("t")).persist()
    yield made
    made.unpersist()


@pytest.mark.parametrize(
    ("window", "evictor"), [*((window, None) for window in WINDOWS), *((w, evictor) for evictor in EVICTORS for w in (SLIDING, ENDED))]
)
def test_generated_cases_equal_the_model(frame: DataFrame, cases: int, window: dict[str, Any], evictor: BuiltIn | None) -> None:
    aggregated, processed = list[tuple[Any, ...]](), list[tuple[Any, ...]]()
    for case, rows in _generated_rows(cases).items():
        for number, inside in _windows(rows, window):
            kept = kept_rows(evictor, inside, by_arrival=True)
            best = max((e.v for e in kept if e.v is not None), default=None)
            ids, last = [f"r{e.id}" for e in kept], inside[-1]
            aggregated.append((case, number, len(kept), best, " ".join(ids), last.seq, last.arrival))
            ids_with_value = [f"r{e.id}" for e in kept if e.v is not None]
            processed += [(case, number, n, id_, n - 1, len(ids), ids[0]) for n, id_ in enumerate(ids_with_value, 1)]
    given: dict[str, Any] = {"by": "case_id", "evictor": evictor, **window}
    aggregates = CountWindowAggregate(aggregates=AGGREGATES, **given)(frame)
    results = ProcessCountWindow(rows=ROWS_WITH_VALUES, **given)(frame)
    assert results.columns == ["case_id", "window_number", "result_number", "id", "at", "of", "first"]
    found = json_rows_of({"aggregates": aggregates, "results": results})
    assert Counter(tuple(json.loads(row).values()) for row in found["aggregates"]) == Counter(aggregated)
    assert Counter(tuple(json.loads(row).values()) for row in found["results"]) == Counter(processed)
    assert min(len(aggregated), len(processed)) > cases


def test_a_result_has_a_key() -> None:
    assert ProcessCountWindow(by="k", size=1).emits == Upsert(("k", "window_number"))
    assert ProcessCountWindow(by="k", size=1, rows="elements").emits == Upsert(("k", "window_number", "result_number"))
    columns = ("k", "seq", "arrival")
    assert ProcessCountWindow(by="k", size=1).result_columns(columns) == ("k", "window_number", "elements", "seq", "arrival")
    assert ProcessCountWindow(by="k", size=1, rows="elements").result_columns(columns) is None, "only Spark knows the fields of structs"


COUNT = {"n": "count(*)"}
REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"size": 0}, "`size` is 0; legal: a whole number of at least 1"),
    ({}, "`size` is None; legal: a whole number of at least 1, or None with `ends_with`"),
    ({"size": 1, "slide": 0}, "`slide` is 0; legal: a whole number of at least 1"),
    ({"size": 1, "ends_with": "v > 1"}, "`size` is 1; legal: None with `ends_with`: each row is in one window"),
    ({"slide": 1, "ends_with": "v > 1"}, "`slide` is 1; legal: None with `ends_with`"),
    ({"ends_with": "rand() > 0.5"}, r"`ends_with` is .*; legal: an expression whose value depends on the rows alone, .* as rand does"),
    ({"ends_with": "lag(v) IGNORE NULLS OVER (ORDER BY seq) > v"}, "`ends_with` is .*; legal: a condition on a row alone, without window"),
    ({"ends_with": "v > (SELECT max(v) FROM t)"}, "`ends_with` is .*; legal: a condition on a row alone, without window functions"),
]


@pytest.mark.parametrize(("given", "message"), REFUSED)
def test_windows_without_a_certain_end_are_refused(given: dict[str, Any], message: str) -> None:
    for make in (lambda: CountWindowAggregate(aggregates=COUNT, **given), lambda: ProcessCountWindow(**given)):
        with pytest.raises(OperatorError, match=message):
            make()


def test_illegal_parameters_and_frames_are_refused(spark: SparkSession) -> None:
    with pytest.raises(ColumnError, match="the result would have seq twice"):
        CountWindowAggregate(size=1, aggregates={"seq": "max(seq)"})
    with pytest.raises(ColumnError, match="the result would have elements twice"):
        ProcessCountWindow(by="elements", size=1)
    with pytest.raises(OperatorError, match=r"`rows` is 'shuffle\(elements\)'; legal: an expression whose value depends on the rows alone"):
        ProcessCountWindow(size=1, rows="shuffle(elements)")
    for count in (CountWindowAggregate(by="k", size=1, aggregates=COUNT), ProcessCountWindow(by="k", size=1)):
        name = type(count).__name__
        with pytest.raises(OperatorError, match=f"{name} counts rows in the order of arrival, and these have no 'seq' and 'arrival'; read"):
            count(spark.sql("SELECT 'a' AS k"))
        with pytest.raises(StreamingError, match=f"{name} on streaming frames: Spark has no windows by count"):
            count(spark.readStream.format("rate").load().selectExpr("'a' AS k"))
        assert count.reads == ByKey(("k",))
        assert late_before(count, 5) is not None, "late rows are found without a Spark session"
    rows = spark.sql("SELECT 'a' AS k, 1 AS v, 1 AS seq, 1 AS arrival")
    with pytest.raises(OperatorError, match=r"`evictor` is .*; legal: an evictor of another kind for rows without an 'event_time'"):
        ProcessCountWindow(by="k", size=1, evictor=TimeEvictor("1 minute"))(rows)
    with pytest.raises(OperatorError, match="`ends_with` is 'v'; legal: a condition, and not an expression of the type int"):
        ProcessCountWindow(by="k", ends_with="v")(rows)
    with pytest.raises(OperatorError, match="`rows` is 'elements'; legal: structs without the fields seq and arrival: a reader would take"):
        ProcessCountWindow(size=1, rows="elements")(rows)
    with pytest.raises(ColumnError, match="the result would have K twice"):
        ProcessCountWindow(by="k", size=1, rows="array(struct(1 AS K))")(rows)
