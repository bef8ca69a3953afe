"""A pipeline in SQL gives, batch by batch, the rows that `operators.sql` gives for the same queries over all rows at once.

One file of statements is both: its INSERT INTO statements are the tables of a pipeline, whose rows arrive in several batches, and the same
queries run over frames. Rows are within the watermark's bound, so none is late.
"""

import json
import random
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

import operators
from platform_defs.declared.sql_pipeline import read_sql
from platform_defs.testing import Sandbox
from tests.operators.frames import frame_of_json
from tests.support.json_rows import json_rows_of, values_of

pytestmark = pytest.mark.spark
START = datetime(2026, 3, 1, 10, tzinfo=UTC)
BOUND_MINUTES = 5
DECLARED = f"""
CREATE TABLE orders (
  id STRING NOT NULL, item STRING, price INT, ms BIGINT, ordered_at AS TO_TIMESTAMP_LTZ(ms, 3),
  WATERMARK FOR ordered_at AS ordered_at - INTERVAL '{BOUND_MINUTES}' MINUTE
) WITH ('connector' = 'filesystem', 'format' = 'json');
CREATE TABLE payments (
  order_id STRING, amount INT, paid_at TIMESTAMP(3), WATERMARK FOR paid_at AS paid_at - INTERVAL '{BOUND_MINUTES}' MINUTE
) WITH ('connector' = 'filesystem', 'format' = 'json');
CREATE TABLE rates (
  item STRING, rate INT, since TIMESTAMP(3), WATERMARK FOR since AS since - INTERVAL '{BOUND_MINUTES}' MINUTE
) WITH ('connector' = 'filesystem', 'format' = 'json');
CREATE VIEW large AS SELECT id, item, price * 2 AS doubled, ordered_at FROM orders WHERE price > 2;
CREATE VIEW per_minute AS
  SELECT item AS what, window_time AS minute_time, COUNT(*) AS n, SUM(doubled) AS total
  FROM TABLE(TUMBLE(TABLE large, DESCRIPTOR(ordered_at), INTERVAL '1' MINUTE)) GROUP BY item, window_start, window_end, window_time;
"""
PAIRS = """
CREATE VIEW pairs AS SELECT o.id, item, amount, paid_at FROM orders o JOIN payments p
ON o.id = p.order_id AND paid_at BETWEEN ordered_at AND ordered_at + INTERVAL '3' MINUTE;
CREATE VIEW around AS SELECT o.id, item, price, GREATEST(ordered_at, paid_at) AS known_at FROM orders o JOIN payments p
ON o.id = p.order_id AND paid_at BETWEEN ordered_at - INTERVAL '1' MINUTE AND ordered_at + INTERVAL '1' MINUTE;
CREATE VIEW cheapest AS SELECT id AS number, item AS what, price, ordered_at, place FROM (
  SELECT *, ROW_NUMBER() OVER (PARTITION BY item ORDER BY price, id) AS place FROM orders) WHERE place <= 4;
CREATE VIEW dearest AS SELECT id, item AS what, ordered_at AS at_time FROM (
  SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end, item ORDER BY price DESC, id) AS place
  FROM TABLE(TUMBLE(TABLE orders, DESCRIPTOR(ordered_at), INTERVAL '2' MINUTE))) WHERE place <= 2;
"""
"""Views whose rows have the time of another operator's results."""
BEHIND_OTHERS = {
    "paid_per_window": """
        SELECT item, window_start, window_end, SUM(amount) AS amount, COUNT(*) AS n
        FROM TABLE(TUMBLE(TABLE pairs, DESCRIPTOR(paid_at), INTERVAL '2' MINUTE)) GROUP BY item, window_start, window_end
    """,
    "known_per_window": """
        SELECT window_start, window_end, COUNT(*) AS n, MAX(known_at) AS newest
        FROM TABLE(HOP(TABLE around, DESCRIPTOR(known_at), INTERVAL '1' MINUTE, INTERVAL '2' MINUTE)) GROUP BY window_start, window_end
    """,
    "pairs_with_rates": """
        SELECT p.id, p.item, p.amount, rate, p.paid_at
        FROM pairs p LEFT JOIN rates FOR SYSTEM_TIME AS OF p.paid_at AS r ON p.item = r.item
    """,
    "cheapest_per_window": """
        SELECT what, window_start, window_end, SUM(price) AS spent
        FROM TABLE(TUMBLE(TABLE cheapest, DESCRIPTOR(ordered_at), INTERVAL '4' MINUTE)) GROUP BY what, window_start, window_end
    """,
    "per_window_of_all": """
        SELECT window_start, window_end, SUM(n) AS orders, COUNT(*) AS items FROM (
          SELECT item, window_start, window_end, COUNT(*) AS n
          FROM TABLE(TUMBLE(TABLE orders, DESCRIPTOR(ordered_at), INTERVAL '2' MINUTE)) GROUP BY item, window_start, window_end)
        GROUP BY window_start, window_end
    """,
    "sessions": """
        SELECT item, window_start, window_end, SUM(price) AS spent,
          MAX(TIMESTAMPDIFF(SECOND, TIMESTAMP '2026-03-01 10:00:00', ordered_at)) AS second
        FROM TABLE(SESSION(TABLE orders PARTITION BY item, DESCRIPTOR(ordered_at), INTERVAL '30' SECOND))
        GROUP BY item, window_start, window_end
    """,
    "newest_of_dearest": "SELECT what, MAX(at_time) AS newest, COUNT(*) AS n FROM dearest GROUP BY what",
    "unpaid": """
        SELECT id, item, price FROM orders o WHERE NOT EXISTS (
          SELECT 1 FROM payments p WHERE p.order_id = o.id AND paid_at BETWEEN ordered_at - INTERVAL '1' MINUTE AND ordered_at)
    """,
}
"""Queries behind other operators, and of kinds that `QUERIES` does not have."""
QUERIES = {
    "paid": """
        SELECT o.id, item, price, amount FROM orders o FULL OUTER JOIN payments p
        ON o.id = p.order_id AND paid_at BETWEEN ordered_at - INTERVAL '1' MINUTE AND ordered_at + INTERVAL '3' MINUTE
    """,
    "rated": """
        SELECT o.id, o.item, price, rate, ordered_at
        FROM orders o LEFT JOIN rates FOR SYSTEM_TIME AS OF o.ordered_at AS r ON o.item = r.item
    """,
    "per_window": """
        SELECT what, window_start, window_end, SUM(n) AS orders, MAX(minute_time) AS newest
        FROM TABLE(HOP(TABLE per_minute, DESCRIPTOR(minute_time), INTERVAL '2' MINUTE, INTERVAL '4' MINUTE))
        WHERE total > 8 GROUP BY what, window_start, window_end
    """,
    "best": """
        SELECT window_start, window_end, item, spent, `rank` FROM (
          SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end ORDER BY spent DESC, item) AS `rank` FROM (
            SELECT window_start, window_end, item, SUM(price) AS spent
            FROM TABLE(CUMULATE(TABLE orders, DESCRIPTOR(ordered_at), INTERVAL '1' MINUTE, INTERVAL '5' MINUTE))
            GROUP BY window_start, window_end, item)) WHERE `rank` <= 2
    """,
    "leaders": """
        SELECT item, spent, `rank` FROM (
          SELECT *, ROW_NUMBER() OVER (ORDER BY spent DESC, item) AS `rank`
          FROM (SELECT item, SUM(doubled) AS spent FROM large GROUP BY item)) WHERE `rank` <= 3
    """,
    "newest": """
        SELECT id, item, price, ordered_at FROM (
          SELECT *, ROW_NUMBER() OVER (PARTITION BY item ORDER BY ordered_at DESC) AS n FROM orders) WHERE n = 1
    """,
    "quiet": """
        SELECT item AS name, window_end AS until, SUM(price) AS spent, CONCAT(item, '/', COUNT(*)) AS label
        FROM TABLE(HOP(TABLE orders, DESCRIPTOR(ordered_at), INTERVAL '2' MINUTE, INTERVAL '4' MINUTE))
        GROUP BY item, window_start, window_end HAVING COUNT(*) < 4 AND item <> 'd'
    """,
    "by_set": """
        SELECT window_start, item, price, GROUPING_ID(item, price) AS level, COUNT(*) AS n
        FROM TABLE(TUMBLE(TABLE orders, DESCRIPTOR(ordered_at), INTERVAL '2' MINUTE))
        GROUP BY window_start, window_end, CUBE (item, price) HAVING COUNT(*) > 1
    """,
    "small": """
        SELECT item AS name, SUM(price) AS spent, CONCAT(item, '/', COUNT(*)) AS label FROM orders GROUP BY item HAVING SUM(price) < 60
    """,
    "first_small": """
        SELECT name, spent FROM (SELECT *, ROW_NUMBER() OVER (ORDER BY spent DESC, name) AS place FROM small) WHERE place <= 2
    """,
    "cheap": """
        SELECT id, place, price * 2 AS doubled, ordered_at AS bought_at FROM (
          SELECT *, ROW_NUMBER() OVER (PARTITION BY item ORDER BY price DESC, id) AS place FROM orders) WHERE place <= 3 AND price < 8
    """,
    "products": """
        SELECT o.id AS number, price * amount AS product FROM orders o JOIN payments p
        ON o.id = p.order_id AND paid_at BETWEEN ordered_at AND ordered_at + INTERVAL '3' MINUTE
    """,
    "in_windows": """
        SELECT a.item, a.id, b.rate FROM (SELECT * FROM TABLE(TUMBLE(TABLE orders, DESCRIPTOR(ordered_at), INTERVAL '2' MINUTE))) a
        LEFT JOIN (SELECT * FROM TABLE(TUMBLE(TABLE rates, DESCRIPTOR(since), INTERVAL '2' MINUTE))) b
        ON a.item = b.item AND a.window_start = b.window_start AND a.window_end = b.window_end AND b.rate > a.price
    """,
}

ACCOUNTED = [
    *("paid", "rated", "per_window", "best", "leaders", "newest", "quiet", "by_set", "small", "cheap", "products", "in_windows"),
    *("sessions", "dearest", "unpaid", "paid_per_window", "known_per_window", "pairs_with_rates"),
]
"""Tables whose account is checked: of each operator and kind of join, and three with the time of another operator's results."""


def batches(rng: random.Random) -> list[dict[str, list[dict[str, object]]]]:
    """Rows in batches: each row is at most the watermark's bound behind the newest one before it."""
    made: list[dict[str, list[dict[str, object]]]] = []
    for batch in range(2):
        at = {f"o{batch}-{n}": batch * 240 + rng.randrange(240) for n in range(21)}
        orders = [{"id": i, "item": rng.choice("abcd"), "price": rng.randrange(1, 9), "ms": _ms(s)} for i, s in at.items()]
        paid = [(i, s + rng.randrange(-90, 240)) for i, s in at.items() if rng.random() < 0.7]
        payments = [{"order_id": i, "amount": n, "paid_at": _text(_ms(s))} for n, (i, s) in enumerate(paid)]
        moments = [batch * 240 + rng.randrange(240) for _ in range(4)]
        rates = [{"item": rng.choice("abc"), "rate": rng.randrange(9), "since": _text(_ms(s))} for s in moments]
        made.append({"orders": orders, "payments": payments, "rates": rates})
    return made


def _ms(seconds: int) -> int:
    return int((START + timedelta(seconds=seconds)).timestamp() * 1000)


def _text(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat().replace("+00:00", "Z")


def frames(spark: SparkSession, made: list[dict[str, list[dict[str, object]]]]) -> dict[str, DataFrame]:
    schemas = {
        "orders": "id string, item string, price int, ms bigint",
        "payments": "order_id string, amount int, paid_at timestamp",
        "rates": "item string, rate int, since timestamp",
    }
    read: dict[str, DataFrame] = {}
    for name, schema in schemas.items():
        read[name] = frame_of_json(spark, (row for batch in made for row in batch[name]), schema)
    return read


def test_a_pipeline_in_batches_gives_the_rows_of_its_queries(spark: SparkSession, tmp_path: Path):
    """The queries in `BEHIND_OTHERS` read the times of other operators' results."""
    declared, queries = DECLARED + PAIRS, QUERIES | BEHIND_OTHERS
    made = batches(random.Random(5))
    sandbox = Sandbox(read_sql(declared + ";".join(f"INSERT INTO {name} {query}" for name, query in queries.items())), tmp_path)
    engine = sandbox.engine
    for number, batch in enumerate(made):
        for source, rows in batch.items():
            sandbox.land(source, f"{number}.jsonl", "\n".join(map(json.dumps, rows)))
        engine.ingest()
        if number == len(made) - 1:
            engine.drain()
        for name in engine.assets:
            engine.advance(name)
    assert {type(engine.assets[name].operator) for name in ACCOUNTED} == {type(table.operator) for table in engine.assets.values()}
    assert [name for name in ACCOUNTED if not all(account.holds for account in engine.accounts.days(name))] == []
    assert [name for name in engine.assets if engine.accounts.count_differences(name)] == []
    given = frames(spark, made)
    views = f"{declared} CREATE VIEW small AS {QUERIES['small']};"
    wanted = {name: operators.sql(f"{views} {query}", given) for name, query in queries.items()}
    tables = {name: engine.views.table(name).select(*rows.columns) for name, rows in wanted.items()}
    assert {name: table.dtypes for name, table in tables.items()} == {name: rows.dtypes for name, rows in wanted.items()}
    found, expected = json_rows_of(tables), json_rows_of(wanted)
    for name in queries:
        assert found[name] == expected[name], name
        assert found[name], name
    assert sum(len(found[name]) for name in QUERIES) > 200
    assert sum(len(found[name]) for name in BEHIND_OTHERS) > 80
    late = {name: engine.views.late(name, "orders").select("id") for name in ("paid", "rated", "best")}
    read = values_of(late | {"changes": engine.views.table("changelog/small").select("change")})
    assert {change for (change,) in read.pop("changes")} == {"+I", "-U", "+U", "-D"}  # some sums of the first batch no longer match
    assert not any(read.values())
