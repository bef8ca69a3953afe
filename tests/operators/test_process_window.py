"""ProcessWindow: a function of all rows of a window, by example and against a model in 1,000 generated cases."""

import random
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from operators import ColumnError, CountEvictor, OperatorError, ProcessWindow, Session, Sliding, StreamingError, Tumbling
from operators.engine_columns import WATERMARK
from tests.operators.examples import Example, check, read
from tests.support.evictors_model import Element, kept_rows
from tests.support.windows_model import TimedRow, open_windows

TEN_MINUTES = Tumbling(size="10 minutes")
CLICKS = """
    batch | time  | user | page
    2     | 10:04 | a    | item
    1     | 10:01 | a    | home
    1     | 10:04 | a    | cart
    1     | 10:12 | a    | home
    1     | 10:02 | b    | home
    1     | 10:03 | -    | help
    1     | -     | a    | lost
"""
STEPS = """
    transform(
        sequence(1, size(elements) - 1),
        i -> named_struct('from', elements[i - 1].page, 'to', elements[i].page)
    )
"""
EXAMPLES = [
    Example(
        "the elements are the rows of a window, by event time and then by arrival; a null key is an ordinary key",
        ProcessWindow(by="user", window=TEN_MINUTES),
        (CLICKS,),
        """
        user | window      | elements.page    | result_time  | final_at
        a    | 10:00-10:10 | [home cart item] | 10:09:59.999 | 10:09:59.999
        a    | 10:10-10:20 | [home]           | 10:19:59.999 | 10:19:59.999
        b    | 10:00-10:10 | [home]           | 10:09:59.999 | 10:09:59.999
        -    | 10:00-10:10 | [help]           | 10:09:59.999 | 10:09:59.999
        """,
    ),
    Example(
        "a function can give any number of rows of a window: here the steps between the pages of a visit, none for a single page",
        ProcessWindow(by="user", window=Session(gap="5 minutes"), rows=f"IF(size(elements) > 1, {STEPS}, array())"),
        (CLICKS,),
        """
        user | window      | from | to
        a    | 10:01-10:09 | home | cart
        a    | 10:01-10:09 | cart | item
        """,
    ),
    Example(
        "without a key a window is one group, as with Flink's `windowAll`; the function can read the window",
        ProcessWindow(window=TEN_MINUTES, rows="array(struct(size(elements) AS n, minute(window_end) AS until))"),
        (CLICKS,),
        """
        window      | n | until
        10:00-10:10 | 5 | 10
        10:10-10:20 | 1 | 20
        """,
    ),
    Example(
        "an evictor selects the elements",
        ProcessWindow(by="user", window=TEN_MINUTES, evictor=CountEvictor(2)),
        (CLICKS,),
        """
        user | window      | elements.page
        a    | 10:00-10:10 | [cart item]
        a    | 10:10-10:20 | [home]
        b    | 10:00-10:10 | [home]
        -    | 10:00-10:10 | [help]
        """,
    ),
    Example(
        "a row that arrives after its window's end is not an element",
        ProcessWindow(window=TEN_MINUTES),
        (
            """
            time  | page | watermark
            10:01 | home | -
            10:02 | cart | 10:09:59.998
            10:03 | item | 10:09:59.999
            """,
        ),
        """
        window      | elements.page
        10:00-10:10 | [home cart]
        """,
    ),
]


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda e: e.id)
def test_the_example(spark: SparkSession, example: Example) -> None:
    check(spark, example)


SLIDING = Sliding(size=10, slide=4, offset=1)
SCHEMA = pa.schema({name: pa.int64() for name in ("case_id", "t", "seq", "arrival", "id", "mark")})
WITH_ID_BEFORE = """
    transform(elements, (e, i) -> named_struct("id", e.id, "at", i, "of", size(elements), "after", get(elements, i - 1).id))
"""


@pytest.mark.parametrize("evictor", [None, CountEvictor(3)], ids=str)
def test_1000_cases_equal_the_model(spark: SparkSession, evictor: CountEvictor | None) -> None:
    rows: list[tuple[Any, ...]] = []
    wanted: list[tuple[Any, ...]] = []
    for case in range(1_000):
        rng, spans = random.Random(case), dict[tuple[int, int], list[Element]]()
        for n, position in enumerate(rng.sample([(seq, n) for seq in (1, 2, 3) for n in range(6)], rng.randrange(1, 12))):
            element, mark = Element(rng.randrange(-9, 12), *position, 0, n), rng.choice([None, None, -3, 6])
            rows.append((case, element.t, *position, n, mark))
            for span in open_windows(SLIDING, TimedRow(None, element.t, None, mark)):
                spans.setdefault(span, []).append(element)
        for span, inside in spans.items():
            ids = [e.id for e in kept_rows(evictor, inside)]
            wanted += [(case, *span, id_, at, len(ids), ids[at - 1] if at else None) for at, id_ in enumerate(ids)]
    columns = [pa.array(c, f.type) for c, f in zip(zip(*rows, strict=True), SCHEMA, strict=True)]
    frame = spark.createDataFrame(pa.table(columns, schema=SCHEMA))
    times = F.timestamp_millis("t").alias("event_time"), F.timestamp_millis("mark").alias(WATERMARK)
    process = ProcessWindow(by="case_id", window=SLIDING, rows=WITH_ID_BEFORE, evictor=evictor)
    bounds = [F.unix_millis(c) for c in ("window_start", "window_end")]
    found = process(frame.select("case_id", "seq", "arrival", "id", *times)).select("case_id", *bounds, "id", "at", "of", "after")
    assert sorted(map(tuple, found.collect()), key=repr) == sorted(wanted, key=repr)
    assert len(wanted) > 5_000


def test_early_results_have_the_number_of_rows_of_the_window_evicted_or_not(spark: SparkSession) -> None:
    process = ProcessWindow(by="user", window=TEN_MINUTES, rows="transform(elements, e -> struct(e.page))", evictor=CountEvictor(1))
    found = process.so_far(read(spark, CLICKS)).select("user", "page", "rows_seen").collect()
    assert sorted(map(tuple, found), key=repr) == [("a", "home", 1), ("a", "item", 3), ("b", "home", 1), (None, "help", 1)]


def test_a_result_has_a_key_unless_a_window_can_have_several() -> None:
    assert ProcessWindow(by="user", window=TEN_MINUTES).emits.key == ("user", "window_start", "window_end")
    assert ProcessWindow(by="user", window=TEN_MINUTES, rows="elements").emits.key == ()


def test_illegal_parameters_and_frames_are_refused(spark: SparkSession) -> None:
    with pytest.raises(OperatorError, match=r"`rows` is 'shuffle\(elements\)'; legal: an expression whose value depends on the rows alone"):
        ProcessWindow(window=TEN_MINUTES, rows="shuffle(elements)")
    with pytest.raises(ColumnError, match="the result would have elements twice"):
        ProcessWindow(by="elements", window=TEN_MINUTES)
    rows = spark.sql("SELECT 'a' AS user, timestamp_millis(5) AS event_time")
    with pytest.raises(ColumnError, match="`by` names the column 'shop', which the frame does not have"):
        ProcessWindow(by="shop", window=TEN_MINUTES)(rows)
    with pytest.raises(ColumnError, match="the result would have window_end twice"):
        ProcessWindow(by="user", window=TEN_MINUTES, rows="array(struct(1 AS window_end))")(rows)
    stream = spark.readStream.format("rate").load().selectExpr("'a' AS user", "timestamp AS event_time")
    with pytest.raises(StreamingError, match="ProcessWindow on streaming frames: Spark would keep every row of a window"):
        ProcessWindow(by="user", window=TEN_MINUTES)(stream)
