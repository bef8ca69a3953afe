"""Generated SQL queries: the plan of each query gives the same rows as the query.

DuckDB runs both: the text of the query, and the plan, which `tests/operators/sql/duck.py` translates to SQL from the parameters of its
operators. A wrong bound, key, side, name or condition in a plan gives other rows. Other tests compare the operators themselves with their
models.
"""

import random
import re
from collections import Counter
from collections.abc import Callable

import duckdb
import pytest

from operators import IntervalJoin
from operators.sql.plan import plan
from operators.sql.relations import Apply, Input, walk
from tests.operators.sql.duck import sql_of
from tests.support.example_counts import example_count

TABLES = {name: Input(name, ("id", "k", "v", "t"), ("t",)) for name in ("a", "b", "c")}
UNITS = {"SECOND": 1, "MINUTE": 60}
MIRRORED = {">=": "<=", "<=": ">=", ">": "<", "<": ">", "=": "="}
CASES = [40, pytest.param(1_000, marks=pytest.mark.soak)]
"""The number of queries of each kind: in `make test`, and in `make test-soak`."""


def fill(database: duckdb.DuckDBPyConnection, rng: random.Random) -> None:
    """Create two small tables with few keys, some of them null, and times within a few minutes. Times are distinct within a table."""
    for number, name in enumerate(TABLES):
        times = rng.sample(range(0, 400, 5), 12)
        keys = [rng.choice(["'x'", "'y'", "'z'", "NULL"]) for _ in times]
        rows = [
            f"({number * 100 + n}, {k}, {rng.randrange(5)}, epoch_ms({t * 1000}))" for n, (t, k) in enumerate(zip(times, keys, strict=True))
        ]
        database.execute(f"CREATE OR REPLACE TABLE {name} AS SELECT * FROM (VALUES {', '.join(rows)}) AS {name} (id, k, v, t)")


def shifted(rng: random.Random, column: str, seconds: int) -> str:
    """SQL for a time column plus a number of seconds, written in one of several ways."""
    if seconds == 0 and rng.random() < 0.5:
        return column
    sign = "-" if seconds < 0 else "+"
    unit = rng.choice([u for u, length in UNITS.items() if seconds % length == 0])
    return f"{column} {sign} INTERVAL '{abs(seconds) // UNITS[unit]}' {unit}"


def bounds(rng: random.Random, one: str, other: str) -> list[str]:
    """Conditions that limit the difference of two tables' times from below and above, written in one of several ways."""
    if rng.random() < 0.1:
        return [f"{one}.t = {other}.t"]
    low, high = sorted(rng.choice([rng.randrange(-120, 121), 60 * rng.randrange(-3, 4)]) for _ in range(2))
    if rng.random() < 0.4:
        return [f"{one}.t BETWEEN {shifted(rng, f'{other}.t', low)} AND {shifted(rng, f'{other}.t', high)}"]
    limits = [(">=" if rng.random() < 0.7 else ">", low), ("<=" if rng.random() < 0.7 else "<", high)]
    return [_compared(rng, one, other, *limit) for limit in rng.sample(limits, 2)]


def _compared(rng: random.Random, one: str, other: str, operation: str, seconds: int) -> str:
    """The condition `one.t operation other.t + seconds`. The shift may be on either side, and the sides may be swapped."""
    left, right = (
        (f"{one}.t", shifted(rng, f"{other}.t", seconds)) if rng.random() < 0.7 else (shifted(rng, f"{one}.t", -seconds), f"{other}.t")
    )
    return f"{left} {operation} {right}" if rng.random() < 0.6 else f"{right} {MIRRORED[operation]} {left}"


def _items(either: str) -> list[str]:
    """The items that a query of a join selects from."""
    return ["a.id AS x", "b.id AS y", "a.k AS p", "b.k", "a.v + b.v AS total", either, "a.t AS moment", "b.t", "b.v"]


def a_join(rng: random.Random) -> str:
    how = rng.choice(["INNER", "LEFT", "RIGHT", "FULL", ","])
    one, other = rng.sample(["a", "b"], 2)
    key = rng.choice(["{0}.k = {1}.k", "{1}.k = {0}.k", "{0}.k = {1}.k AND {0}.v = {1}.v", "UPPER({0}.k) = UPPER({1}.k)"]).format(
        one, other
    )
    extra = rng.choice([[], [], [f"{one}.v < {other}.v"], [f"{other}.v > 1"], [f"{one}.v <> 2", f"{other}.id > 3"]])
    conditions = [key, *bounds(rng, one, other), *extra]
    rng.shuffle(conditions)
    items = _items("COALESCE(a.k, b.k) AS either")
    selected = rng.sample(items, rng.randrange(1, len(items)))
    tables = {"a": "a", "b": rng.choice(["b", "b", "b", "a AS b"])}  # now and then a join of a table with itself
    select = f"SELECT {', '.join(selected)} FROM {tables[one]}"
    if how == ",":
        return f"{select}, {tables[other]} WHERE {' AND '.join(conditions)}"
    where = f" WHERE {rng.choice(['a.v > 1', 'b.k IS NOT NULL', 'a.id + b.v > 3'])}" if rng.random() < 0.3 else ""
    return f"{select} {how} JOIN {tables[other]} ON {' AND '.join(conditions)}{where}"


def a_semi_join(rng: random.Random) -> str:
    conditions = ["a.k = b.k", *bounds(rng, *rng.sample(["a", "b"], 2)), *rng.choice([[], ["b.v > 1"], ["a.v < b.v"], ["a.v > 1"]])]
    rng.shuffle(conditions)
    exists = f"{rng.choice(['', 'NOT '])}EXISTS (SELECT 1 FROM b WHERE {' AND '.join(conditions)})"
    where = f"{exists} AND a.v <> 2" if rng.random() < 0.3 else exists
    return f"SELECT {rng.choice(['id, k', 'a.id AS x, t', '*', 'a.v + 1 AS w'])} FROM a WHERE {where}"


def an_as_of_join(rng: random.Random) -> str:
    """A temporal join in Flink's SQL; `in_duckdb_sql` translates it."""
    items = _items("COALESCE(b.k, a.k) AS either")
    where = f" WHERE {rng.choice(['a.v > 1', 'b.v > 2', 'a.v < b.v', 'b.id IS NOT NULL'])}" if rng.random() < 0.5 else ""
    key = rng.choice(["a.k = b.k", "b.k = a.k", "a.k = b.k AND a.v = b.v", "UPPER(a.k) = b.k"])
    select = f"SELECT {', '.join(rng.sample(items, rng.randrange(1, len(items))))}"
    return f"{select} FROM a {rng.choice(['', 'LEFT '])}JOIN b FOR SYSTEM_TIME AS OF a.t ON {key}{where}"


def joins_in_a_row(rng: random.Random) -> str:
    """An interval join, and a join of its results: a temporal join, or another interval join of the time that is its event time."""
    items = ["a.id AS x", "b.id AS y", "c.id AS z", "a.k", "b.v AS w", "c.v", "a.t AS moment", "c.t"]
    select = f"SELECT {', '.join(rng.sample(items, rng.randrange(1, len(items))))} FROM a"
    first = f"{rng.choice(['', 'LEFT '])}JOIN b ON a.k = b.k AND b.t BETWEEN a.t AND {shifted(rng, 'a.t', rng.randrange(1, 200))}"
    key = rng.choice(["a.k = c.k", "c.v = a.v"])
    if rng.random() < 0.5:
        return f"{select} {first} {rng.choice(['', 'LEFT '])}JOIN c FOR SYSTEM_TIME AS OF b.t ON {key}"
    how = rng.choice(["", "LEFT ", "RIGHT ", "FULL "])
    where = rng.choice(["", " WHERE a.v > 1", " WHERE b.v < 4 AND c.v > 0", " WHERE a.v > 1 OR c.v > 1"])
    return f"{select} {first} {how}JOIN c ON {key} AND {' AND '.join(bounds(rng, 'c', 'b'))}{where}"


def in_duckdb_sql(text: str) -> str:
    """A query in DuckDB's SQL, in which a temporal join is an `ASOF JOIN`."""
    temporal = r"(LEFT )?JOIN (\w) FOR SYSTEM_TIME AS OF (\w)\.t ON (.*?)(?= WHERE|$)"
    return re.sub(temporal, r"ASOF \1JOIN \2 ON \4 AND \3.t >= \2.t", text)


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


BOOLEANS = ["v > 3 OR id > 5", "v > 1 AND k = 'x'", "v > 1 OR k IS NULL", "NOT v > 2"]
OVER_A_BOOLEAN = ["hot", "NOT hot", "hot AND v < 4", "hot IS NULL", "hot = (k = 'x')", "v + 1 > 2 OR NOT hot"]


def an_aggregate(rng: random.Random) -> str:
    """An aggregate with computed columns and a HAVING condition, which may use aggregates that are not in the SELECT list."""
    by = rng.choice([["k"], ["k", "v"], ["UPPER(k)"], []])
    has_k = by[:1] == ["k"]
    values, conditions = ([t for t in of if has_k or not re.search(r"\bk\b", t)] for of in (VALUES, HAVING))
    values = [*rng.sample(values, 2), *(rng.sample(OF_KEYS, rng.randrange(2)) if has_k else [])]
    rng.shuffle(values)
    having = rng.choice(["", *(f" HAVING {one}" for one in conditions)])
    where = rng.choice(["", " WHERE v > 1"])
    sources = ["a", "(SELECT id, k, v FROM a WHERE id > 2)", "(SELECT id + 1 AS id, k, v FROM (SELECT * FROM a WHERE v < 4))"]
    sources.append("(SELECT v, k, id FROM a) AS swapped (id, k, v)")
    if by:  # no row may be left, and a total of no rows has no result
        sources.append(f"(SELECT id, k, v FROM (SELECT *, {rng.choice(BOOLEANS)} AS hot FROM a) WHERE {rng.choice(OVER_A_BOOLEAN)})")
    source = rng.choice(sources)
    if not by:
        return f"SELECT {', '.join(values)} FROM {source}{where}{having}"
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


GENERATORS = [a_join, an_as_of_join, joins_in_a_row, a_ranking, an_aggregate, over_an_aggregate, a_semi_join]


def test_not_exists_within_an_interval_is_an_anti_interval_join():
    text = "SELECT id FROM a WHERE NOT EXISTS (SELECT 1 FROM b WHERE a.k = b.k AND b.t BETWEEN a.t AND a.t + INTERVAL '1' HOUR)"
    [joined] = [one.operator for one in walk(plan(text, TABLES).plans[0].relation) if isinstance(one, Apply)]
    assert isinstance(joined, IntervalJoin)
    assert (joined.how, joined.lower, joined.upper) == ("anti", "0 ms", "1 hour")


def compare_plans(
    database: duckdb.DuckDBPyConnection, seed: int, make: Callable[[random.Random], tuple[str, str]], cases: int
) -> tuple[int, Counter[str]]:
    """Compare the rows of generated queries with those of their plans; returns the number of rows, and that of each kind of operator.

    Args:
        database: has the tables.
        seed: the seed of the queries and of the tables' rows.
        make: makes a query in Flink's SQL and in DuckDB's.
        cases: the number of queries.
    """
    rng, rows_compared, operators = random.Random(seed), 0, Counter[str]()
    for number in range(cases):
        if number % 20 == 0:
            fill(database, rng)
        text, in_duckdb = make(rng)
        relation = plan(text, TABLES).plans[0].relation
        operators.update(type(part.operator).__name__ for part in walk(relation) if isinstance(part, Apply))
        of_query, of_plan = (Counter(map(str, database.execute(sql).fetchall())) for sql in (in_duckdb, sql_of(relation)))
        assert of_plan == of_query, f"{text}\n{relation}"
        rows_compared += of_query.total()
    assert operators.total() >= cases
    return rows_compared, operators


@pytest.mark.parametrize("cases", CASES)
@pytest.mark.parametrize("make", GENERATORS, ids=lambda make: make.__name__)
def test_a_plan_gives_the_rows_of_its_query(database: duckdb.DuckDBPyConnection, make: Callable[[random.Random], str], cases: int):
    def in_both(rng: random.Random) -> tuple[str, str]:
        text = make(rng)
        return text, in_duckdb_sql(text)

    cases = example_count(cases)
    rows_compared, operators = compare_plans(database, 7, in_both, cases)
    assert rows_compared > cases
    if make is a_ranking:
        assert min(operators["TopN"], operators["Deduplicate"], operators["Aggregate"]) > cases // 20
