"""Count windows: examples, and a comparison with a model in 1,000 generated cases for each size and slide."""

import random
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from operators import ColumnError, CountWindowAggregate, OperatorError, StreamingError
from operators.contract import late_before
from operators.steps import ByKey
from tests.operators.examples import Example, check

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
]


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda e: e.id)
def test_the_example(spark: SparkSession, example: Example) -> None:
    check(spark, example)


SCHEMA = pa.schema([("case_id", pa.int64()), ("id", pa.string()), ("v", pa.int64()), ("seq", pa.int64()), ("arrival", pa.int64())])


@pytest.mark.parametrize(("size", "slide"), [(3, None), (1, None), (4, 3), (5, 2), (2, 3)])
def test_1000_cases_equal_the_model(spark: SparkSession, size: int, slide: int | None) -> None:
    rows, expected, step = list[tuple[Any, ...]](), list[tuple[Any, ...]](), slide or size
    for case in range(1_000):
        rng = random.Random(case)
        positions = rng.sample([(seq, n) for seq in (1, 2, 3) for n in range(6)], rng.randrange(14))
        of_case = [(case, f"r{n}", rng.choice([None, *range(9)]), *p) for n, p in enumerate(positions)]
        rows += of_case
        by_arrival = sorted(of_case, key=lambda r: r[3:])
        for end in range(step, len(by_arrival) + 1, step):
            window = by_arrival[max(0, end - size) : end]
            best = max((r[2] for r in window if r[2] is not None), default=None)
            expected.append((case, end // step, len(window), best, " ".join(r[1] for r in window), *window[-1][3:]))
    columns = [pa.array(c, f.type) for c, f in zip(zip(*rows, strict=True), SCHEMA, strict=True)]
    operator = CountWindowAggregate(by="case_id", size=size, slide=slide, aggregates=AGGREGATES)
    found = operator(spark.createDataFrame(pa.table(columns, schema=SCHEMA)))
    assert sorted(map(tuple, found.collect()), key=repr) == sorted(expected, key=repr)
    assert len(expected) > 1_000


def test_illegal_parameters_and_frames_are_refused(spark: SparkSession) -> None:
    with pytest.raises(OperatorError, match="`size` is 0; legal: a whole number of at least 1"):
        CountWindowAggregate(size=0, aggregates={"n": "count(*)"})
    with pytest.raises(OperatorError, match="`slide` is 0; legal: a whole number of at least 1"):
        CountWindowAggregate(size=1, slide=0, aggregates={"n": "count(*)"})
    with pytest.raises(ColumnError, match="the result would have seq twice"):
        CountWindowAggregate(size=1, aggregates={"seq": "max(seq)"})
    count = CountWindowAggregate(by="k", size=1, aggregates={"n": "count(*)"})
    with pytest.raises(OperatorError, match="counts rows in the order of arrival, and these have no 'seq' and 'arrival'; read a source"):
        count(spark.sql("SELECT 'a' AS k"))
    with pytest.raises(StreamingError, match="CountWindowAggregate on streaming frames: Spark has no windows by count"):
        count(spark.readStream.format("rate").load().selectExpr("'a' AS k"))
    assert count.reads == ByKey(("k",))
    assert late_before(count, 5) is not None, "late rows are found without a Spark session"
