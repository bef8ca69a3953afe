"""Examples of the as-of join, as text tables."""

import pytest
from pyspark.sql import SparkSession

from operators import AsOfJoin
from tests.operators.examples import Example, check

pytestmark = pytest.mark.compiled

ORDERS = """
    product | time  | n:int
    hat     | 09:59 | 1
    hat     | 10:00 | 2
    hat     | 11:30 | 3
    cup     | 11:30 | 4
"""
PRICES = """
    product | time  | price:int
    hat     | 10:00 | 15
    hat     | 11:00 | 12
    hat     | 12:00 | 99
    -       | 09:00 | 1
"""
EXAMPLES = (
    Example(
        "each left row has the newest version at or before its time",
        AsOfJoin(on="product"),
        (ORDERS, PRICES),
        """
        product | n | price | result_time | final_at
        hat     | 2     | 15        | 10:00       | 10:00:00.001
        hat     | 3     | 12        | 11:30       | 11:30:00.001
        """,
    ),
    Example(
        "left: rows without a version are kept once",
        AsOfJoin(on="product", how="left"),
        (ORDERS, PRICES),
        """
        product | n | left_event_time | price | right_event_time | result_time | final_at
        hat     | 1     | 09:59           | -         | -                | 09:59       | 09:59:00.001
        hat     | 2     | 10:00           | 15        | 10:00            | 10:00       | 10:00:00.001
        hat     | 3     | 11:30           | 12        | 11:00            | 11:30       | 11:30:00.001
        cup     | 4     | 11:30           | -         | -                | 11:30       | 11:30:00.001
        """,
    ),
    Example(
        "max_age: a version of exactly that age is valid, an older one is not, and no version before it",
        AsOfJoin(on="product", how="left", max_age="1 hour"),
        (
            """
            product | time         | n:int
            hat     | 11:00        | 1
            hat     | 11:00:00.001 | 2
            """,
            """
            product | time  | price:int
            hat     | 09:00 | 10
            hat     | 10:00 | 15
            """,
        ),
        """
        product | n | price
        hat     | 1     | 15
        hat     | 2     | -
        """,
    ),
    Example(
        "a delete ends a version until the next insert; -U and unknown kinds are ignored",
        AsOfJoin(on="product", how="left", change="op"),
        (
            """
            product | time  | n:int
            hat     | 10:30 | 1
            hat     | 11:30 | 2
            hat     | 12:30 | 3
            hat     | 13:30 | 4
            """,
            """
            product | time  | price:int | op
            hat     | 10:00 | 15        | +I
            hat     | 11:00 | 15        | -U
            hat     | 11:00 | 12        | +U
            hat     | 11:15 | 12        | -U
            hat     | 11:20 | 12        | ?
            hat     | 11:25 | 12        | -
            hat     | 12:00 | 12        | -D
            hat     | 13:00 | 14        | +I
            """,
        ),
        """
        product | n | price
        hat     | 1     | 15
        hat     | 2     | 12
        hat     | 3     | -
        hat     | 4     | 14
        """,
    ),
    Example(
        "of versions of one millisecond, the one that arrived last is valid, also if it is a delete",
        AsOfJoin(on="product", how="left", change="op"),
        (
            """
            product | time  | batch
            hat     | 10:00 | 1
            cup     | 10:00 | 1
            """,
            """
            product | time  | batch | price:int | op
            hat     | 10:00 | 3     | 3         | +U
            hat     | 10:00 | 2     | 2         | -D
            hat     | 10:00 | 1     | 1         | +I
            cup     | 10:00 | 2     | 3         | +I
            cup     | 10:00 | 2     | 3         | -D
            """,
        ),
        """
        product | price
        hat     | 3
        cup     | -
        """,
    ),
    Example(
        "null keys and null times match nothing",
        AsOfJoin(on="product", how="left"),
        (
            """
            product | time  | n:int
            -       | 10:00 | 1
            hat     | -     | 2
            """,
            """
            product | time  | price:int
            -       | 09:00 | 15
            hat     | -     | 12
            hat     | 09:00 | 11
            """,
        ),
        """
        product | n | price | result_time | final_at
        -       | 1     | -         | 10:00       | 10:00:00.001
        hat     | 2     | -         | -           | -
        """,
    ),
    Example(
        "a null in the valid version is a null, and not the value of an older one",
        AsOfJoin(on="product"),
        (ORDERS, "product | time | price:int\nhat | 09:00 | 15\nhat | 10:00 | -"),
        """
        product | n | price
        hat     | 1     | 15
        hat     | 2     | -
        hat     | 3     | -
        """,
    ),
    Example(
        "by arrival: the version that had arrived with the left row's batch, whatever the times",
        AsOfJoin(on="product", how="left", as_of="arrival"),
        (
            """
            product | time  | batch | n:int
            hat     | 10:00 | 1     | 1
            hat     | 10:00 | 2     | 2
            hat     | 09:00 | 4     | 3
            -       | 10:00 | 4     | 4
            """,
            """
            product | time  | batch | price:int
            hat     | 12:00 | 2     | 14
            hat     | 11:00 | 2     | 15
            hat     | -     | 3     | 12
            hat     | 08:00 | 5     | 99
            -       | 08:00 | 1     | 1
            """,
        ),
        """
        product | n | price | result_time | final_at
        hat     | 1     | -         | 10:00       | 10:00:00.001
        hat     | 2     | 15        | 10:00       | 10:00:00.001
        hat     | 3     | 12        | 09:00       | 09:00:00.001
        -       | 4     | -         | 10:00       | 10:00:00.001
        """,
    ),
)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.id)
def test_an_example(spark: SparkSession, example: Example) -> None:
    check(spark, example)
