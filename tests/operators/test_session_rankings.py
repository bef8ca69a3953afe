"""Top-K and Deduplicate over sessions: examples, 1,000 generated keys against the model, and lateness decisions."""

import random
from collections import Counter
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from operators import ColumnError, Deduplicate, OperatorError, Session, TopK
from operators.engine_columns import NEW, SESSION
from tests.operators.examples import Example, check
from tests.operators.frames import by_tag, tagged
from tests.support.sessions_model import sessions

GAP, LONGEST = 10, 60
SESSIONS = Session(gap=GAP, longest=LONGEST)
IN_MINUTES = Session(gap="10 minutes")
CLICKS = """
    batch | time  | user | page | ms:int
    1     | 10:00 | a    | home | 30
    1     | 10:10 | a    | cart | 70
    2     | 10:04 | a    | item | 90
    1     | 10:21 | a    | home | 20
    1     | 10:05 | b    | cart | 50
    1     | 10:08 | -    | home | 10
    1     | 10:09 | -    | help | 60
    1     | -     | a    | lost | 99
"""
EXAMPLES = [
    Example(
        "the first row of each session: a row `gap` after the one before belongs to the session, and a null key is an ordinary key",
        Deduplicate(by="user", window=IN_MINUTES),
        (CLICKS,),
        """
        user | window      | page | time  | result_time  | final_at
        a    | 10:00-10:20 | home | 10:00 | 10:19:59.999 | 10:20
        a    | 10:21-10:31 | home | 10:21 | 10:30:59.999 | 10:31
        b    | 10:05-10:15 | cart | 10:05 | 10:14:59.999 | 10:15
        -    | 10:08-10:19 | home | 10:08 | 10:18:59.999 | 10:19
        """,
    ),
    Example(
        "the row of each session that arrived last",
        Deduplicate(by="user", keep="last", order="arrival", window=IN_MINUTES),
        (CLICKS,),
        """
        user | window      | page
        a    | 10:00-10:20 | item
        a    | 10:21-10:31 | home
        b    | 10:05-10:15 | cart
        -    | 10:08-10:19 | help
        """,
    ),
    Example(
        "the two longest views of each session of a user",
        TopK(k=2, by="user", order_by="ms DESC", window=IN_MINUTES),
        (CLICKS,),
        """
        user | window      | rank | page | ms | result_time  | final_at
        a    | 10:00-10:20 | 1    | item | 90 | 10:19:59.999 | 10:20
        a    | 10:00-10:20 | 2    | cart | 70 | 10:19:59.999 | 10:20
        a    | 10:21-10:31 | 1    | home | 20 | 10:30:59.999 | 10:31
        b    | 10:05-10:15 | 1    | cart | 50 | 10:14:59.999 | 10:15
        -    | 10:08-10:19 | 1    | help | 60 | 10:18:59.999 | 10:19
        -    | 10:08-10:19 | 2    | home | 10 | 10:18:59.999 | 10:19
        """,
    ),
    Example(
        "without `by` all rows form sessions together",
        TopK(k=1, order_by="ms", window=IN_MINUTES),
        (CLICKS,),
        """
        window      | rank | user | ms
        10:00-10:20 | 1    | -    | 10
        10:21-10:31 | 1    | a    | 20
        """,
    ),
    Example(
        "a window that the rows of a deduplication had before gets another name, too",
        Deduplicate(by="user", keep="last", window=IN_MINUTES),
        (
            """
            window      | user | ms:int
            10:00-10:05 | a    | 1
            10:05-10:10 | a    | 3
            """,
        ),
        """
        user | window                    | source_window_start | ms
        a    | 10:04:59.999-10:19:59.999 | 10:05               | 3
        """,
    ),
    Example(
        "a window that the rows had before gets another name",
        TopK(k=1, by="user", order_by="ms DESC", window=IN_MINUTES),
        (
            """
            window      | user | ms:int
            10:00-10:05 | a    | 1
            10:05-10:10 | a    | 3
            10:10-10:15 | b    | 2
            """,
        ),
        """
        user | window                    | rank | source_window_start | ms
        a    | 10:04:59.999-10:19:59.999 | 1    | 10:05               | 3
        b    | 10:14:59.999-10:24:59.999 | 1    | 10:10               | 2
        """,
    ),
]
Row = tuple[int, int, int]
"""A time, an identifier (in order of arrival), and a value."""


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda e: e.id)
def test_the_example(spark: SparkSession, example: Example) -> None:
    check(spark, example)


def _generated(cases: int) -> dict[int, list[Row]]:
    """Rows of many keys, around 1970, in no order of time; distances below, at and above the gap, and chains beyond `longest`."""
    found: dict[int, list[Row]] = {}
    for case in range(cases):
        rng, t, times = random.Random(case), -150, list[int]()
        for _ in range(rng.randrange(1, 14)):
            t += rng.choice([0, 1, 7, 9, 10, 10, 11, 25])
            times.append(t)
        rng.shuffle(times)
        found[case] = [(t, n, rng.randrange(4)) for n, t in enumerate(times)]
    return found


def _frame(spark: SparkSession, rows: dict[int, list[Row]]) -> DataFrame:
    flat = [(case, *row) for case, part in rows.items() for row in part]
    names = ("case_id", "t", "id", "v")
    table = pa.table([pa.array(column, pa.int64()) for column in zip(*flat, strict=True)], names=names)
    seq = (F.col("id") % 3).alias("seq")
    return spark.createDataFrame(table).select(
        "case_id", "id", "v", F.timestamp_millis("t").alias("event_time"), seq, F.col("id").alias("arrival")
    )


def _in_order(row: Row) -> tuple[int, int, int]:
    return row[0], row[1] % 3, row[1]


def _by_arrival(row: Row) -> tuple[int, int]:
    return row[1] % 3, row[1]


CHOICES: dict[str, Any] = {
    "first event_time": lambda part: min(part, key=_in_order),
    "last event_time": lambda part: max(part, key=_in_order),
    "first arrival": lambda part: min(part, key=_by_arrival),
    "last arrival": lambda part: max(part, key=_by_arrival),
}


def test_the_kept_row_of_each_session_of_1000_keys_equals_the_model(spark: SparkSession) -> None:
    """One query has the rows of each choice."""
    rows = _generated(1_000)
    frame, kept = _frame(spark, rows), dict[str, DataFrame]()
    bounds = [F.unix_millis(c).alias(c) for c in ("window_start", "window_end", "result_time", "final_at")]
    for which in CHOICES:
        keep, order = which.split()
        operator = Deduplicate(by="case_id", keep=keep, order=order, window=SESSIONS)  # pyright: ignore[reportArgumentType]
        kept[which] = operator.so_far(frame).select("case_id", *bounds, "id", "rows_seen")
    found = by_tag(tagged(kept))
    formed = {case: sessions(part, GAP, LONGEST) for case, part in rows.items()}  # pyright: ignore[reportArgumentType]
    for which, choose in CHOICES.items():
        wanted = Counter(
            (case, start, end, end - 1, end, choose(members)[1], len(members))
            for case, of_case in formed.items()
            for (start, end), members in of_case.items()
        )
        assert found[which] == wanted, which
    spans = [span for of_case in formed.values() for span in of_case]
    assert any(end - start == LONGEST for start, end in spans)
    assert len(spans) > 2_000


def test_the_top_of_each_session_of_1000_keys_equals_the_model(spark: SparkSession) -> None:
    rows = _generated(1_000)
    operator = TopK(k=2, by="case_id", order_by="v DESC", window=SESSIONS)
    bounds = [F.unix_millis(c) for c in ("window_start", "window_end", "result_time", "final_at")]
    found = operator.so_far(_frame(spark, rows)).select("case_id", *bounds, "rank", "id", "rows_seen").collect()
    wanted: list[tuple[int, ...]] = []
    for case, part in rows.items():
        for (start, end), members in sessions(part, GAP, LONGEST).items():  # pyright: ignore[reportArgumentType]
            ranked = sorted(members, key=lambda r: (-r[2], *_by_arrival(r)))  # pyright: ignore[reportGeneralTypeIssues]
            wanted += [(case, start, end, end - 1, end, n, row[1], len(members)) for n, row in enumerate(ranked[:2], 1)]
    assert sorted(map(tuple, found)) == sorted(wanted)


@pytest.mark.parametrize("operator", [Deduplicate(by="k", window=SESSIONS), TopK(k=1, by="k", order_by="v", window=SESSIONS)], ids=str)
def test_a_row_is_late_if_no_open_session_accepts_it(spark: SparkSession, operator: Any) -> None:
    rows = spark.sql(f"""
        SELECT k, t AS v, timestamp_millis(t) AS event_time, 1L AS seq, if(k = 'a', t, 100 + t) AS arrival,
        CAST(NULL AS STRUCT<start: BIGINT, end: BIGINT>) AS `{SESSION}`, is_new AS `{NEW}`
        FROM VALUES ('a', 15L, false), ('a', 5L, true), ('a', 4L, true), ('b', 5L, true), ('b', 4L, true) AS v(k, t, is_new)
    """)
    decisions = operator.lateness_decisions(20, rows).select("arrival", SESSION).collect()
    # of `a` the row at 5 joins the open session [15, 25), and the row at 4 joins it through that row
    assert sorted(map(tuple, decisions)) == [(104, None), (105, None)]
    assert operator.reads.recorded
    assert operator.reads.watermark_delay == 1
    assert operator.late_before(20) is None


def test_a_top_k_or_deduplication_without_sessions_records_no_decisions(spark: SparkSession) -> None:
    with pytest.raises(OperatorError, match="Deduplicate without a `window` decides lateness row by row: call `late`"):
        Deduplicate(by="k").lateness_decisions(0)
    with pytest.raises(OperatorError, match="rows of a windowed operator's results are never late"):
        TopK(k=1, order_by="v").lateness_decisions(0)
    with pytest.raises(ColumnError, match="the result would have window_start twice"):
        Deduplicate(by="window_start", window=SESSIONS)
    rows = spark.sql("SELECT 1 AS v, timestamp_millis(5) AS event_time")
    with pytest.raises(ColumnError, match="`by` names the column 'user', which the frame does not have"):
        TopK(k=1, by="user", order_by="v", window=SESSIONS)(rows)
