"""Window joins and CoGroup by example: matched rows, unmatched rows, and the change by a late row."""

import pytest
from pyspark.sql import SparkSession

from operators import CoGroup, Session, Sliding, Tumbling, WindowJoin
from operators.window_join import How
from operators.windows import AnyWindow
from tests.operators.examples import Example, check

pytestmark = pytest.mark.compiled

TEN_MINUTES = Tumbling(size="10 minutes")

LEFT = """
    k | time  | id
    a | 10:01 | l1
    a | 10:11 | l2
    b | 10:02 | l3
    - | 10:03 | l4
    a | -     | l5
"""
RIGHT = """
    k | time         | id
    a | 10:09:59.999 | r1
    a | 10:00        | r2
    a | 10:20        | r3
    - | 10:03        | r4
    a | -            | r5
"""


def _join(how: How, window: AnyWindow = TEN_MINUTES, residual: str | None = None) -> WindowJoin:
    return WindowJoin(on="k", window=window, how=how, residual=residual)


JOINS = [
    Example(
        "inner: pairs of equal keys in one window; neither null keys nor null times match",
        _join("inner"),
        (LEFT, RIGHT),
        """
        k | left_id | right_id | window      | result_time  | final_at
        a | l1      | r1       | 10:00-10:10 | 10:09:59.999 | 10:09:59.999
        a | l1      | r2       | 10:00-10:10 | 10:09:59.999 | 10:09:59.999
        """,
    ),
    Example(
        "full: a row without a match is in the result once for its window, with nulls for the other side",
        _join("full"),
        (LEFT, RIGHT),
        """
        k | left_id | right_id | window
        a | l1      | r1       | 10:00-10:10
        a | l1      | r2       | 10:00-10:10
        a | l2      | -        | 10:10-10:20
        b | l3      | -        | 10:00-10:10
        - | l4      | -        | 10:00-10:10
        a | -       | r3       | 10:20-10:30
        - | -       | r4       | 10:00-10:10
        """,
    ),
    Example(
        "semi: each left row with at least one match, once",
        _join("semi"),
        (LEFT, RIGHT),
        """
        k | id | window
        a | l1 | 10:00-10:10
        """,
    ),
    Example(
        "anti: the left rows without a match",
        _join("anti"),
        (LEFT, RIGHT),
        """
        k | id | window
        a | l2 | 10:10-10:20
        b | l3 | 10:00-10:10
        - | l4 | 10:00-10:10
        """,
    ),
    Example(
        "residual: pairs that fail the extra condition do not match",
        _join("left", residual="right_id <> 'r1'"),
        (
            LEFT,
            """
            k | time         | id
            a | 10:09:59.999 | r1
            a | 10:00        | r2
            a | 10:15        | r1
            """,
        ),
        """
        k | left_id | right_id | window
        a | l1      | r2       | 10:00-10:10
        a | l2      | -        | 10:10-10:20
        b | l3      | -        | 10:00-10:10
        - | l4      | -        | 10:00-10:10
        """,
    ),
    Example(
        "sliding: a pair is in the result once for each window that both rows are in, an unmatched row once for each other window",
        _join("left", Sliding(size="10 minutes", slide="5 minutes")),
        (
            """
            k | time  | id
            a | 10:06 | l1
            """,
            """
            k | time  | id
            a | 10:07 | r1
            a | 10:12 | r2
            """,
        ),
        """
        k | left_id | right_id | window
        a | l1      | r1       | 10:00-10:10
        a | l1      | r1       | 10:05-10:15
        a | l1      | r2       | 10:05-10:15
        """,
    ),
    Example(
        "late: a row does not match in a window that had closed before it arrived",
        _join("full", Sliding(size="10 minutes", slide="5 minutes")),
        (
            """
            k | time  | id
            a | 10:06 | l1
            """,
            """
            k | time  | id | watermark
            a | 10:07 | r1 | 10:10
            a | 10:07 | r2 | 10:15
            """,
        ),
        """
        k | left_id | right_id | window
        a | l1      | -        | 10:00-10:10
        a | l1      | r1       | 10:05-10:15
        """,
    ),
    Example(
        "session: the rows of both sides form the sessions of a key",
        _join("full", Session(gap="5 minutes")),
        (
            """
            k | time  | id
            a | 10:00 | l1
            a | 10:10 | l2
            - | 10:00 | l3
            """,
            """
            k | time  | id
            a | 10:05 | r1
            a | 10:30 | r2
            - | 10:01 | r3
            """,
        ),
        """
        k | left_id | right_id | window
        a | l1      | r1       | 10:00-10:15
        a | l2      | r1       | 10:00-10:15
        a | -       | r2       | 10:30-10:35
        - | l3      | -        | 10:00-10:05
        - | -       | r3       | 10:01-10:06
        """,
    ),
]

GROUPS = [
    Example(
        "each key and window with a row has one group, ordered by time, with an empty array for a side without rows",
        CoGroup(on="k", window=TEN_MINUTES),
        (
            """
            k | time  | id
            a | 10:09 | l1
            a | 10:01 | l2
            a | 10:31 | l3
            """,
            """
            k | time  | id
            a | 10:05 | r1
            b | 10:05 | r2
            """,
        ),
        """
        k | left.id | right.id | window      | result_time  | final_at
        a | [l2 l1] | [r1]     | 10:00-10:10 | 10:09:59.999 | 10:09:59.999
        a | [l3]    | []       | 10:30-10:40 | 10:39:59.999 | 10:39:59.999
        b | []      | [r2]     | 10:00-10:10 | 10:09:59.999 | 10:09:59.999
        """,
    ),
    Example(
        "rows of equal time are ordered by arrival",
        CoGroup(on="k", window=TEN_MINUTES),
        (
            """
            k | time  | id | batch
            a | 10:01 | l3 | 2
            a | 10:01 | l1 | 1
            a | 10:01 | l2 | 1
            """,
            """
            k | time  | id | batch
            a | 10:01 | r1 | 1
            """,
        ),
        """
        k | left.id    | right.id | window
        a | [l1 l2 l3] | [r1]     | 10:00-10:10
        """,
    ),
    Example(
        "the null keys of each side form a separate group, and a row without a time is in no group",
        CoGroup(on="k", window=TEN_MINUTES),
        (
            """
            k | time  | id
            - | 10:01 | l1
            a | -     | l2
            """,
            """
            k | time  | id
            - | 10:02 | r1
            - | 10:03 | r2
            """,
        ),
        """
        k | left.id | right.id | window
        - | [l1]    | []       | 10:00-10:10
        - | []      | [r1 r2]  | 10:00-10:10
        """,
    ),
    Example(
        "late: a row is in the groups of the windows that were open when it arrived",
        CoGroup(on="k", window=Sliding(size="10 minutes", slide="5 minutes"), allowed_lateness="1 minute"),
        (
            """
            k | time  | id | watermark
            a | 10:06 | l1 | 10:10
            a | 10:06 | l2 | 10:11
            a | 10:06 | l3 | 10:16
            """,
            """
            k | time  | id | watermark
            a | 10:07 | r1 | -
            """,
        ),
        """
        k | left.id | right.id | window
        a | [l1]    | [r1]     | 10:00-10:10
        a | [l1 l2] | [r1]     | 10:05-10:15
        """,
    ),
    Example(
        "rows: an expression over both arrays makes the result's rows",
        CoGroup(on="k", window=TEN_MINUTES, rows="transform(left, l -> named_struct('id', l.id, 'matches', size(right)))"),
        (LEFT, RIGHT),
        """
        k | id | matches | window
        a | l1 | 2       | 10:00-10:10
        a | l2 | 0       | 10:10-10:20
        b | l3 | 0       | 10:00-10:10
        - | l4 | 0       | 10:00-10:10
        """,
    ),
]


@pytest.mark.parametrize("example", JOINS, ids=lambda example: example.id)
def test_window_joins(spark: SparkSession, example: Example) -> None:
    check(spark, example)


@pytest.mark.parametrize("example", GROUPS, ids=lambda example: example.id)
def test_groups_of_both_sides(spark: SparkSession, example: Example) -> None:
    check(spark, example)
