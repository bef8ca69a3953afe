"""Windows by example: the rows of a window, when its result is final, and the change by a late row."""

import pytest
from pyspark.sql import SparkSession

from operators import Cumulative, Session, Sliding, Tumbling, WindowedAggregate
from operators.windows import AnyWindow
from tests.operators.examples import Example, check

pytestmark = pytest.mark.compiled


def _sums(window: AnyWindow, allowed_lateness: str = "0 ms") -> WindowedAggregate:
    aggregates = {"n": "count(*)", "total": "sum(v)"}
    return WindowedAggregate(by="k", window=window, aggregates=aggregates, allowed_lateness=allowed_lateness)


LATE = """
    k | time  | v:int | watermark
    a | 10:07 | 1     | -
    a | 10:07 | 2     | 10:09:59.998
    a | 10:07 | 4     | 10:09:59.999
    a | 10:07 | 8     | 10:14:59.998
    a | 10:07 | 16    | 10:14:59.999
"""

EXAMPLES = [
    Example(
        "tumbling: a window contains a row at its start, but not a row at its end; a window without rows has no result",
        _sums(Tumbling(size="5 minutes")),
        (
            """
            k | time         | v:int
            a | 10:00        | 1
            a | 10:04:59.999 | 2
            a | 10:05        | 4
            a | 10:17        | 8
            """,
        ),
        """
        k | window      | n | total | result_time  | final_at
        a | 10:00-10:05 | 2 | 3     | 10:04:59.999 | 10:04:59.999
        a | 10:05-10:10 | 1 | 4     | 10:09:59.999 | 10:09:59.999
        a | 10:15-10:20 | 1 | 8     | 10:19:59.999 | 10:19:59.999
        """,
    ),
    Example(
        "tumbling: each key has its own result, a null is an ordinary key, and a row without a time is in no window",
        _sums(Tumbling(size="5 minutes")),
        (
            """
            k | time  | v:int
            a | 10:00 | 1
            b | 10:01 | 2
            - | 10:02 | 4
            - | 10:03 | -
            a | -     | 16
            """,
        ),
        """
        k | window      | n | total
        a | 10:00-10:05 | 1 | 1
        b | 10:00-10:05 | 1 | 2
        - | 10:00-10:05 | 2 | 4
        """,
    ),
    Example(
        "tumbling: an offset shifts every window",
        _sums(Tumbling(size="1 hour", offset="15 minutes")),
        (
            """
            k | time  | v:int
            a | 10:14 | 1
            a | 10:15 | 2
            """,
        ),
        """
        k | window      | n | total
        a | 09:15-10:15 | 1 | 1
        a | 10:15-11:15 | 1 | 2
        """,
    ),
    Example(
        "sliding: a row is in every window that contains its time",
        _sums(Sliding(size="10 minutes", slide="5 minutes")),
        (
            """
            k | time  | v:int
            a | 10:02 | 1
            a | 10:07 | 2
            """,
        ),
        """
        k | window      | n | total
        a | 09:55-10:05 | 1 | 1
        a | 10:00-10:10 | 2 | 3
        a | 10:05-10:15 | 1 | 2
        """,
    ),
    Example(
        "sliding with gaps: a row in a gap is in no window",
        _sums(Sliding(size="2 minutes", slide="5 minutes")),
        (
            """
            k | time         | v:int
            a | 10:01:59.999 | 1
            a | 10:02        | 2
            a | 10:05        | 4
            """,
        ),
        """
        k | window      | n | total
        a | 10:00-10:02 | 1 | 1
        a | 10:05-10:07 | 1 | 4
        """,
    ),
    Example(
        "cumulative: windows of one start grow by a step up to their size",
        _sums(Cumulative(size="15 minutes", step="5 minutes")),
        (
            """
            k | time  | v:int
            a | 10:02 | 1
            a | 10:07 | 2
            a | 10:15 | 4
            """,
        ),
        """
        k | window      | n | total
        a | 10:00-10:05 | 1 | 1
        a | 10:00-10:10 | 2 | 3
        a | 10:00-10:15 | 2 | 3
        a | 10:15-10:20 | 1 | 4
        a | 10:15-10:25 | 1 | 4
        a | 10:15-10:30 | 1 | 4
        """,
    ),
    Example(
        "session: rows at most the gap apart are in one session, which is final at its end",
        _sums(Session(gap="5 minutes")),
        (
            """
            k | time         | v:int
            a | 10:00        | 1
            a | 10:04        | 2
            a | 10:09        | 4
            b | 10:10        | 8
            a | 10:14:00.001 | 16
            """,
        ),
        """
        k | window                    | n | total | result_time  | final_at
        a | 10:00-10:14               | 3 | 7     | 10:13:59.999 | 10:14
        b | 10:10-10:15               | 1 | 8     | 10:14:59.999 | 10:15
        a | 10:14:00.001-10:19:00.001 | 1 | 16    | 10:19        | 10:19:00.001
        """,
    ),
    Example(
        "session: a session ends after its longest duration, and the next rows form another session",
        _sums(Session(gap="5 minutes", longest="10 minutes")),
        (
            """
            k | time  | v:int
            a | 10:00 | 1
            a | 10:05 | 2
            a | 10:10 | 4
            """,
        ),
        """
        k | window      | n | total
        a | 10:00-10:10 | 2 | 3
        a | 10:10-10:15 | 1 | 4
        """,
    ),
    Example(
        "late: a row counts in the windows whose last millisecond is after the watermark before it",
        _sums(Sliding(size="10 minutes", slide="5 minutes")),
        (LATE,),
        """
        k | window      | n | total
        a | 10:00-10:10 | 2 | 3
        a | 10:05-10:15 | 4 | 15
        """,
    ),
    Example(
        "late: the allowed lateness extends the time in which a window accepts rows",
        _sums(Sliding(size="10 minutes", slide="5 minutes"), allowed_lateness="5 minutes"),
        (LATE,),
        """
        k | window      | n | total
        a | 10:00-10:10 | 4 | 15
        a | 10:05-10:15 | 5 | 31
        """,
    ),
]


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.id)
def test_windows(spark: SparkSession, example: Example) -> None:
    check(spark, example)
