"""Generated queries: the plan of each, as its operators are defined, gives the rows that DuckDB gives for the query itself.

DuckDB runs both: the text of the query, which it reads as SQL, and the plan, which `tests/operators/sql/duck.py` writes as SQL from the
definitions of the operators. A wrong bound, key, side, name or condition of a plan gives other rows. The operators themselves are
compared with their models in other tests.
"""

import random
import re
from collections import Counter
from collections.abc import Iterator
from typing import get_args

import duckdb
import pytest

from operators import IntervalJoin, OperatorError
from operators.interval_join import How
from operators.sql.plan import plan
from operators.sql.relations import Apply, Input, walk
from tests.operators.sql.duck import sql_of

TABLES = {name: Input(name, ("id", "k", "v", "t"), ("t",)) for name in ("a", "b")}
UNITS = {"SECOND": 1, "MINUTE": 60}
MIRRORED = {">=": "<=", "<=": ">=", ">": "<", "<": ">", "=": "="}
CASES = [150, pytest.param(1_000, marks=pytest.mark.soak)]
"""How many queries of a kind `make test` and `make test-soak` have time for."""


@pytest.fixture
def database() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        connection.sql("SET default_null_order = 'nulls_first_on_asc_last_on_desc'")
        yield connection


def fill(database: duckdb.DuckDBPyConnection, rng: random.Random) -> None:
    """Two small tables with few keys, some null, and times within a few minutes; each time occurs once in a table."""
    for number, name in enumerate(TABLES):
        times = rng.sample(range(0, 400, 5), 12)
        keys = [rng.choice(["'x'", "'y'", "'z'", "NULL"]) for _ in times]
        rows = [
            f"({number * 100 + n}, {k}, {rng.randrange(5)}, epoch_ms({t * 1000}))" for n, (t, k) in enumerate(zip(times, keys, strict=True))
        ]
        database.sql(f"CREATE OR REPLACE TABLE {name} AS SELECT * FROM (VALUES {', '.join(rows)}) AS {name} (id, k, v, t)")


def shifted(rng: random.Random, column: str, seconds: int) -> str:
    """A time and a shift, written in one of several ways."""
    if seconds == 0 and rng.random() < 0.5:
        return column
    sign = "-" if seconds < 0 else "+"
    unit = rng.choice([u for u, length in UNITS.items() if seconds % length == 0])
    return f"{column} {sign} INTERVAL '{abs(seconds) // UNITS[unit]}' {unit}"


def bounds(rng: random.Random, one: str, other: str) -> list[str]:
    """Conditions that bound the times of two sides from both ends, written in one of several ways."""
    if rng.random() < 0.1:
        return [f"{one}.t = {other}.t"]
    low, high = sorted(rng.choice([rng.randrange(-120, 121), 60 * rng.randrange(-3, 4)]) for _ in range(2))
    if rng.random() < 0.4:
        return [f"{one}.t BETWEEN {shifted(rng, f'{other}.t', low)} AND {shifted(rng, f'{other}.t', high)}"]
    made = [(">=" if rng.random() < 0.7 else ">", low), ("<=" if rng.random() < 0.7 else "<", high)]
    return [_compared(rng, one, other, *end) for end in rng.sample(made, 2)]


def _compared(rng: random.Random, one: str, other: str, operation: str, seconds: int) -> str:
    """`one.t operation other.t + seconds`: the shift at either side, and the sides in either order."""
    left, right = (
        (f"{one}.t", shifted(rng, f"{other}.t", seconds)) if rng.random() < 0.7 else (shifted(rng, f"{one}.t", -seconds), f"{other}.t")
    )
    return f"{left} {operation} {right}" if rng.random() < 0.6 else f"{right} {MIRRORED[operation]} {left}"


def a_join(rng: random.Random) -> str:
    how = rng.choice(["INNER", "LEFT", "RIGHT", "FULL", ","])
    one, other = rng.sample(["a", "b"], 2)
    key = rng.choice(["{0}.k = {1}.k", "{1}.k = {0}.k", "{0}.k = {1}.k AND {0}.v = {1}.v", "UPPER({0}.k) = UPPER({1}.k)"]).format(
        one, other
    )
    extra = rng.choice([[], [], [f"{one}.v < {other}.v"], [f"{other}.v > 1"], [f"{one}.v <> 2", f"{other}.id > 3"]])
    conditions = [key, *bounds(rng, one, other), *extra]
    rng.shuffle(conditions)
    items = [
        "a.id AS x",
        "b.id AS y",
        "a.k AS p",
        "b.k",
        "a.v + b.v AS total",
        "COALESCE(a.k, b.k) AS either",
        "a.t AS moment",
        "b.t",
        "b.v",
    ]
    chosen = rng.sample(items, rng.randrange(1, len(items)))
    select = f"SELECT {', '.join(chosen)} FROM {one}"
    if how == ",":
        return f"{select}, {other} WHERE {' AND '.join(conditions)}"
    where = f" WHERE {rng.choice(['a.v > 1', 'b.k IS NOT NULL', 'a.id + b.v > 3'])}" if rng.random() < 0.3 else ""
    return f"{select} {how} JOIN {other} ON {' AND '.join(conditions)}{where}"


def a_semi_join(rng: random.Random) -> str:
    conditions = ["a.k = b.k", *bounds(rng, *rng.sample(["a", "b"], 2)), *rng.choice([[], ["b.v > 1"], ["a.v < b.v"], ["a.v > 1"]])]
    rng.shuffle(conditions)
    exists = f"{rng.choice(['', 'NOT '])}EXISTS (SELECT 1 FROM b WHERE {' AND '.join(conditions)})"
    where = f"{exists} AND a.v <> 2" if rng.random() < 0.3 else exists
    return f"SELECT {rng.choice(['id, k', 'a.id AS x, t', '*', 'a.v + 1 AS w'])} FROM a WHERE {where}"


def an_as_of_join(rng: random.Random) -> str:
    """A temporal join; `of_duckdb` writes it as DuckDB's."""
    items = ["a.id AS x", "b.id AS y", "a.k AS p", "b.k", "a.v + b.v AS total", "a.t AS moment", "b.t", "b.v"]
    where = f" WHERE {rng.choice(['a.v > 1', 'b.v > 2', 'a.v < b.v', 'b.id IS NOT NULL'])}" if rng.random() < 0.5 else ""
    key = rng.choice(["a.k = b.k", "b.k = a.k", "a.k = b.k AND a.v = b.v", "UPPER(a.k) = b.k"])
    select = f"SELECT {', '.join(rng.sample(items, rng.randrange(1, len(items))))}"
    return f"{select} FROM a {rng.choice(['', 'LEFT '])}JOIN b FOR SYSTEM_TIME AS OF a.t ON {key}{where}"


def of_duckdb(text: str) -> str:
    """A query in DuckDB's SQL, which has another form for temporal joins."""
    return re.sub(r"(LEFT )?JOIN b FOR SYSTEM_TIME AS OF a\.t ON (.*?)(?= WHERE|$)", r"ASOF \1JOIN b ON \2 AND a.t >= b.t", text)


def a_ranking(rng: random.Random) -> str:
    """A Top-N, a deduplication, or a Top-N of an aggregate; the order has no ties."""
    last = rng.randrange(1, 4)
    limit = rng.choice(
        [f"n <= {last}", f"n < {last + 1}", f"{last} >= n", f"n BETWEEN 1 AND {last}", f"n >= 2 AND n <= {last + 1}", "n = 1"]
    )
    where = rng.choice(["", " WHERE v > 1", " WHERE k <> 'x'"])
    if rng.random() < 0.4:
        order = rng.choice(["t", "t DESC", "t ASC"])
        inner = f"SELECT id, k, t, v, ROW_NUMBER() OVER (PARTITION BY k ORDER BY {order}) AS n FROM a{where}"
        return f"SELECT id, k FROM ({inner}) WHERE {limit}"
    if rng.random() < 0.5:
        order = rng.choice(["v DESC, id", "v, id DESC", "v NULLS LAST, id", "v * 2 DESC, id"])
        inner = f"SELECT *, ROW_NUMBER() OVER (PARTITION BY {rng.choice(['k', 'k, v'])} ORDER BY {order}) AS n FROM a{where}"
        return f"SELECT {rng.choice(['id, n', 'id, k', '*'])} FROM ({inner}) WHERE {limit}"
    sums = f"SELECT k, v, {rng.choice(['SUM(id)', 'COUNT(*)', 'MAX(id)'])} AS s FROM a{where} GROUP BY k, v"
    inner = f"SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY s {rng.choice(['', 'DESC'])}, v) AS n FROM ({sums})"
    return f"SELECT k, v, s{rng.choice(['', ', n'])} FROM ({inner}) WHERE {limit}"


VALUES = [
    "COUNT(*) AS c",
    "SUM(v) AS s",
    "SUM(v) + COUNT(*) AS m",
    "MAX(id) - MIN(id) AS r",
    "COUNT(*) FILTER (WHERE v > 1) AS f",
    "CONCAT(k, ':', SUM(v)) AS label",
    "CASE WHEN k = 'x' THEN COUNT(*) ELSE MIN(id) END AS w",
]
OF_KEYS = ["COALESCE(k, 'none') AS named", "k AS again"]
HAVING = [
    "COUNT(*) > 1",
    "SUM(v) > 2 AND MAX(id) > 3",
    "COUNT(*) < 4 OR k = 'y'",
    "k <> 'x' AND SUM(v) BETWEEN 1 AND 9",
    "k IN ('x', 'z')",
    "NOT (SUM(v) > 3 AND COUNT(*) FILTER (WHERE v > 1) = 1)",
    "MAX(v) - MIN(v) > COUNT(*) - 2",
]


def an_aggregate(rng: random.Random) -> str:
    """An aggregate, whose columns and condition are computed from the key and from aggregates that the list may not have."""
    by = rng.choice([["k"], ["k", "v"], ["UPPER(k)"]])
    values, conditions = ([t for t in of if by[0] == "k" or not re.search(r"\bk\b", t)] for of in (VALUES, HAVING))
    values = [*rng.sample(values, 2), *(rng.sample(OF_KEYS, rng.randrange(2)) if by[0] == "k" else [])]
    rng.shuffle(values)
    having = rng.choice(["", *(f" HAVING {one}" for one in conditions)])
    where = rng.choice(["", " WHERE v > 1"])
    source = rng.choice(["a", "(SELECT id, k, v FROM a WHERE id > 2)", "(SELECT id + 1 AS id, k, v FROM (SELECT * FROM a WHERE v < 4))"])
    return f"SELECT {', '.join([f'{by[0]} AS g', *by[1:], *values])} FROM {source}{where} GROUP BY {', '.join(by)}{having}"


def over_an_aggregate(rng: random.Random) -> str:
    """A filtered aggregate that another query reads: a Top-N, an aggregate of the results, or a condition and computed columns."""
    having = rng.choice(["", *(f" HAVING {one}" for one in HAVING)])
    inner = f"SELECT k, v, SUM(id) AS s, COUNT(*) AS n, CONCAT(k, v) AS label FROM a GROUP BY k, v{having}"
    if rng.random() < 0.4:
        rank = f"ROW_NUMBER() OVER (PARTITION BY k ORDER BY s {rng.choice(['', 'DESC'])}, v) AS place"
        return f"SELECT k, label, s - n AS rest, place FROM (SELECT *, {rank} FROM ({inner})) WHERE place <= 2 AND n < 4"
    if rng.random() < 0.5:
        return f"SELECT k AS g, SUM(s) AS total, MAX(label) AS last FROM ({inner}) WHERE n > 0 GROUP BY k HAVING SUM(n) > 1"
    return f"SELECT label AS l, s / n AS mean, k FROM ({inner}) WHERE s > {rng.randrange(20)}"


HAS_SEMI_JOINS = "semi" in get_args(How)
MADE = [a_join, an_as_of_join, a_ranking, an_aggregate, over_an_aggregate, *([a_semi_join] if HAS_SEMI_JOINS else [])]


def test_a_semi_join_within_an_interval_is_that_of_the_operator():
    """Whether the operator has these kinds or not, the plan asks it for them, and its own error says what it has."""
    text = "SELECT id FROM a WHERE NOT EXISTS (SELECT 1 FROM b WHERE a.k = b.k AND b.t BETWEEN a.t AND a.t + INTERVAL '1' HOUR)"
    if not HAS_SEMI_JOINS:
        with pytest.raises(OperatorError, match="`how` is 'anti'; legal: inner, left, right, full"):
            plan(text, TABLES)
        return
    [joined] = [one.operator for one in walk(plan(text, TABLES).plans[0].relation) if isinstance(one, Apply)]
    assert isinstance(joined, IntervalJoin)
    assert (joined.how, joined.lower, joined.upper) == ("anti", "0 ms", "1 hour")


@pytest.mark.parametrize("cases", CASES)
@pytest.mark.parametrize("make", MADE, ids=lambda make: make.__name__)
def test_a_plan_gives_the_rows_of_its_query(database: duckdb.DuckDBPyConnection, make, cases: int):
    rng, compared, kinds = random.Random(7), 0, Counter[str]()
    for number in range(cases):
        if number % 20 == 0:
            fill(database, rng)
        text = make(rng)
        relation = plan(text, TABLES).plans[0].relation
        kinds.update(type(one.operator).__name__ for one in walk(relation) if isinstance(one, Apply))
        wanted, found = (Counter(map(str, database.sql(sql).fetchall())) for sql in (of_duckdb(text), sql_of(relation)))
        assert found == wanted, f"{text}\n{relation}"
        compared += wanted.total()
    assert compared > 2 * cases
    assert sum(kinds.values()) >= cases
    if make is a_ranking:
        assert min(kinds["TopN"], kinds["Deduplicate"], kinds["Aggregate"]) > cases // 20
