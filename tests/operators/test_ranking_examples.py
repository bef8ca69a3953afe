"""Top-K, Top-N and Deduplicate by example: the kept rows, their order, and the changes as rows arrive."""

from dataclasses import dataclass

import pytest
from pyspark.sql import SparkSession

from operators import Deduplicate, TopK, TopN, Tumbling, difference
from tests.operators.examples import Example, cells_of_each, check, parse, read

pytestmark = pytest.mark.compiled

RESULTS = """
    window      | item | shop | n:int
    10:00-10:10 | a    | x    | 7
    10:00-10:10 | b    | x    | 9
    10:00-10:10 | c    | y    | 8
    10:10-10:20 | a    | x    | 1
"""

TOP_K = [
    Example(
        "the first rows of each window of a windowed operator's results; a window can have fewer than k",
        TopK(k=2, order_by="n DESC"),
        (RESULTS,),
        """
        window      | rank | item | n | result_time  | final_at
        10:00-10:10 | 1    | b    | 9 | 10:09:59.999 | 10:09:59.999
        10:00-10:10 | 2    | c    | 8 | 10:09:59.999 | 10:09:59.999
        10:10-10:20 | 1    | a    | 1 | 10:19:59.999 | 10:19:59.999
        """,
    ),
    Example(
        "each group of a window is ranked separately",
        TopK(k=1, order_by="n DESC", by="shop"),
        (RESULTS,),
        """
        window      | shop | rank | item | n
        10:00-10:10 | x    | 1    | b    | 9
        10:00-10:10 | y    | 1    | c    | 8
        10:10-10:20 | x    | 1    | a    | 1
        """,
    ),
    Example(
        "ties are ordered by the other columns, nulls first, so that ranks are always the same",
        TopK(k=3, order_by="n DESC"),
        (
            """
            window      | item | note | n:int
            10:00-10:10 | b    | p    | 5
            10:00-10:10 | a    | q    | 5
            10:00-10:10 | a    | -    | 5
            10:00-10:10 | c    | p    | 4
            """,
        ),
        """
        window      | rank | item | note | n
        10:00-10:10 | 1    | a    | -    | 5
        10:00-10:10 | 2    | a    | q    | 5
        10:00-10:10 | 3    | b    | p    | 5
        """,
    ),
    Example(
        "a null is the smallest value, and a null group is an ordinary group",
        TopK(k=2, order_by="n", by="shop"),
        (
            """
            window      | item | shop | n:int
            10:00-10:10 | a    | -    | 5
            10:00-10:10 | b    | -    | -
            10:00-10:10 | c    | x    | 1
            """,
        ),
        """
        window      | shop | rank | item | n
        10:00-10:10 | -    | 1    | b    | -
        10:00-10:10 | -    | 2    | a    | 5
        10:00-10:10 | x    | 1    | c    | 1
        """,
    ),
    Example(
        "NULLS LAST moves nulls behind all values",
        TopK(k=2, order_by="n NULLS LAST"),
        (
            """
            window      | item | n:int
            10:00-10:10 | a    | 5
            10:00-10:10 | b    | -
            10:00-10:10 | c    | 1
            """,
        ),
        """
        window      | rank | item | n
        10:00-10:10 | 1    | c    | 1
        10:00-10:10 | 2    | a    | 5
        """,
    ),
    Example(
        "with its own windows: a row is ranked by its time, and is late once its window has closed",
        TopK(k=2, order_by="n DESC", window=Tumbling(size="10 minutes")),
        (
            """
            time         | item | n:int | watermark
            10:00        | a    | 1     | -
            10:09:59.999 | b    | 2     | 10:09:59.998
            10:05        | c    | 3     | 10:09:59.999
            10:10        | d    | 4     | -
            -            | e    | 5     | -
            """,
        ),
        """
        window      | rank | item | n
        10:00-10:10 | 1    | b    | 2
        10:00-10:10 | 2    | a    | 1
        10:10-10:20 | 1    | d    | 4
        """,
    ),
    Example(
        "with its own windows: rows of equal order are ranked by arrival",
        TopK(k=2, order_by="n", window=Tumbling(size="10 minutes"), allowed_lateness="1 minute"),
        (
            """
            time  | item | n:int | batch | watermark
            10:00 | c    | 1     | 1     | -
            10:01 | b    | 1     | 1     | -
            10:02 | a    | 1     | 2     | 10:10
            10:03 | d    | 0     | 2     | 10:10
            10:03 | e    | 0     | 3     | 10:11
            """,
        ),
        """
        window      | rank | item | n
        10:00-10:10 | 1    | d    | 0
        10:00-10:10 | 2    | c    | 1
        """,
    ),
]

BIDS = """
    batch | auction | bidder | price:int
    1     | a       | x      | 5
    1     | a       | y      | 7
    2     | a       | z      | 7
    3     | a       | w      | 9
    2     | -       | x      | 1
    3     | -       | y      | -
"""
ORDERS = """
    batch | seller | order | price:int | change
    1     | a      | o1    | 5         | +I
    1     | a      | o2    | 7         | +I
    2     | a      | o2    | 7         | -U
    2     | a      | o2    | 4         | +U
    3     | a      | o1    | 5         | -D
    4     | b      | o3    | 9         | -D
"""

TOP_N = [
    Example(
        "the first rows of each partition; of equal rows the first to arrive; a null partition and a null value are ordinary",
        TopN(by="auction", order_by="price DESC", rank_end=2),
        (BIDS,),
        """
        auction | rank | bidder | price
        a       | 1    | w      | 9
        a       | 2    | y      | 7
        -       | 1    | x      | 1
        -       | 2    | y      | -
        """,
    ),
    Example(
        "rank: ties have the same rank, so the result can have more than rank_end rows",
        TopN(by="auction", order_by="price DESC", rank_end=2, function="rank"),
        (BIDS,),
        """
        auction | rank | bidder | price
        a       | 1    | w      | 9
        a       | 2    | y      | 7
        a       | 2    | z      | 7
        -       | 1    | x      | 1
        -       | 2    | y      | -
        """,
    ),
    Example(
        "dense_rank: the rank after ties is the next number; a range starts at rank_start",
        TopN(by="auction", order_by="price DESC", rank_start=2, rank_end=3, function="dense_rank"),
        (BIDS,),
        """
        auction | rank | bidder | price
        a       | 2    | y      | 7
        a       | 2    | z      | 7
        a       | 3    | x      | 5
        -       | 2    | y      | -
        """,
    ),
    Example(
        "rank_end from a column: a partition uses the value of its first row; with a null it has no result",
        TopN(by="auction", order_by="price DESC", rank_end="seats"),
        (
            """
            batch | auction | bidder | price:int | seats:int
            1     | a       | x      | 5         | 1
            2     | a       | y      | 7         | 3
            1     | b       | x      | 5         | -
            2     | b       | y      | 7         | 3
            """,
        ),
        """
        auction | rank | bidder | price
        a       | 1    | y      | 7
        """,
    ),
    Example(
        "unique_key: a row replaces the row of its key, also in another partition, and is ranked after its ties",
        TopN(by="auction", order_by="price DESC", rank_end=2, unique_key="bidder"),
        (
            """
            batch | auction | bidder | price:int
            1     | a       | x      | 5
            1     | a       | y      | 5
            1     | b       | z      | 1
            2     | a       | x      | 5
            2     | a       | z      | 1
            """,
        ),
        """
        auction | rank | bidder | price
        a       | 1    | y      | 5
        a       | 2    | x      | 5
        """,
    ),
    Example(
        "change: rows are updated and deleted by key; a delete of a row that does not exist is ignored",
        TopN(by="seller", order_by="price DESC", rank_end=2, unique_key="order", change="change"),
        (ORDERS,),
        """
        seller | rank | order | price
        a      | 1    | o2    | 4
        """,
    ),
    Example(
        "change without a key: a delete removes the oldest of equal rows, but no row that arrives later",
        TopN(by="item", order_by="price", rank_end=3, change="change"),
        (
            """
            batch | item | price:int | change
            1     | a    | 5         | +I
            2     | a    | 5         | +I
            3     | a    | 5         | -D
            1     | b    | 5         | -D
            2     | b    | 5         | +I
            """,
        ),
        """
        item | rank | price | seq
        a    | 1    | 5     | 2
        b    | 1    | 5     | 2
        """,
    ),
    Example(
        "ttl: a partition without a row for longer than the ttl starts again",
        TopN(by="auction", order_by="price DESC", rank_end=3, ttl="10 minutes"),
        (
            """
            batch | time         | auction | bidder | price:int
            1     | 10:00        | a       | x      | 9
            1     | 10:10        | a       | y      | 5
            2     | 10:20:00.001 | a       | z      | 1
            1     | 10:00        | b       | x      | 9
            1     | 10:10        | b       | y      | 5
            """,
        ),
        """
        auction | rank | bidder | price
        a       | 1    | z      | 1
        b       | 1    | x      | 9
        b       | 2    | y      | 5
        """,
    ),
]

CLICKS = """
    batch | user | time  | page
    1     | a    | 10:05 | p1
    2     | a    | 10:01 | p2
    2     | a    | 10:01 | p3
    3     | a    | 10:12 | p4
    1     | -    | 10:03 | p5
    1     | b    | -     | p6
"""

DEDUPLICATE = [
    Example(
        "first by event time: the earliest row, of equal times the first to arrive; rows without a time are dropped",
        Deduplicate(by="user", keep="first"),
        (CLICKS,),
        """
        user | time  | page
        a    | 10:01 | p2
        -    | 10:03 | p5
        """,
    ),
    Example(
        "last by event time",
        Deduplicate(by="user", keep="last"),
        (CLICKS,),
        """
        user | time  | page
        a    | 10:12 | p4
        -    | 10:03 | p5
        """,
    ),
    Example(
        "first by arrival: the event time does not matter and can be null",
        Deduplicate(by="user", keep="first", order="arrival"),
        (CLICKS,),
        """
        user | time  | page
        a    | 10:05 | p1
        -    | 10:03 | p5
        b    | -     | p6
        """,
    ),
    Example(
        "with a window: one row of each key and window, of the rows that arrived before it closed",
        Deduplicate(by="user", keep="last", window=Tumbling(size="10 minutes")),
        (
            """
            user | time  | page | watermark
            a    | 10:01 | p1   | -
            a    | 10:05 | p2   | 10:09:59.998
            a    | 10:07 | p3   | 10:09:59.999
            a    | 10:12 | p4   | -
            """,
        ),
        """
        user | time  | page | window      | result_time  | final_at
        a    | 10:05 | p2   | 10:00-10:10 | 10:09:59.999 | 10:09:59.999
        a    | 10:12 | p4   | 10:10-10:20 | 10:19:59.999 | 10:19:59.999
        """,
    ),
]


@dataclass(frozen=True)
class Changes:
    """A Top-N, its rows batch by batch, and the changes of its result in each batch."""

    id: str
    operator: TopN
    rows: str
    changes: dict[int, str]


CHANGES = [
    Changes(
        "a new row updates the ranks of the rows after it, and the last of them leaves the result",
        TopN(by="auction", order_by="price DESC", rank_end=2),
        """
        batch | auction | bidder | price:int
        1     | a       | x      | 5
        2     | a       | y      | 7
        3     | a       | z      | 6
        4     | a       | w      | 1
        """,
        {
            1: """
            change | rank | bidder | price
            +I     | 1    | x      | 5
            """,
            2: """
            change | rank | bidder | price
            -U     | 1    | x      | 5
            +U     | 1    | y      | 7
            +I     | 2    | x      | 5
            """,
            3: """
            change | rank | bidder | price
            -U     | 2    | x      | 5
            +U     | 2    | z      | 6
            """,
            4: """
            change | rank | bidder | price
            """,
        },
    ),
    Changes(
        "without the rank column, a row of which only the rank changes causes no change",
        TopN(by="auction", order_by="price DESC", rank_end=2, with_rank=False),
        """
        batch | auction | bidder | price:int
        1     | a       | x      | 5
        2     | a       | y      | 7
        3     | a       | z      | 6
        """,
        {
            1: """
            change | bidder | price
            +I     | x      | 5
            """,
            2: """
            change | bidder | price
            +I     | y      | 7
            """,
            3: """
            change | bidder | price
            -D     | x      | 5
            +I     | z      | 6
            """,
        },
    ),
    Changes(
        "after a delete, the next row enters the result",
        TopN(by="seller", order_by="price DESC", rank_end=1, unique_key="order", change="change"),
        ORDERS,
        {
            1: """
            change | rank | order | price
            +I     | 1    | o2    | 7
            """,
            2: """
            change | rank | order | price
            -U     | 1    | o2    | 7
            +U     | 1    | o1    | 5
            """,
            3: """
            change | rank | order | price
            -U     | 1    | o1    | 5
            +U     | 1    | o2    | 4
            """,
            4: """
            change | rank | order | price
            """,
        },
    ),
]


@pytest.mark.parametrize("example", TOP_K, ids=lambda example: example.id)
def test_top_k(spark: SparkSession, example: Example) -> None:
    check(spark, example)


@pytest.mark.parametrize("example", TOP_N, ids=lambda example: example.id)
def test_top_n(spark: SparkSession, example: Example) -> None:
    check(spark, example)


@pytest.mark.parametrize("example", CHANGES, ids=lambda example: example.id)
def test_top_n_changes(spark: SparkSession, example: Changes) -> None:
    last = max(example.changes)
    tables = [example.operator(read(spark, example.rows, batches=batch)) for batch in range(last + 1)]
    changes = {f"batch {n}": difference(tables[n - 1], tables[n], key=example.operator.emits.key) for n in example.changes}
    expected = {f"batch {n}": parse(text) for n, text in example.changes.items()}
    found = cells_of_each(changes, {batch: header for batch, (header, _) in expected.items()})
    assert {batch: sorted(cells) for batch, cells in found.items()} == {batch: sorted(rows) for batch, (_, rows) in expected.items()}


@pytest.mark.parametrize("example", DEDUPLICATE, ids=lambda example: example.id)
def test_deduplicate(spark: SparkSession, example: Example) -> None:
    check(spark, example)
