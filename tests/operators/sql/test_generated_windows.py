"""Generated SQL queries over windows: the plan of each query gives the same rows as the query.

DuckDB has no windowing functions. So each query is written twice from the same random choices, with the windowing function of Flink, and
with the rows in their windows as DuckDB's SQL. DuckDB runs the second text, and the plan of the first (see `test_generated_queries`).
"""

import random
from collections.abc import Callable

import duckdb
import pytest

from operators.windows import AnyWindow, Cumulative, Session, Sliding, Tumbling
from tests.operators.sql.duck import in_windows
from tests.operators.sql.test_generated_queries import HAVING, VALUES, compare_plans
from tests.support.example_counts import example_count

Query = tuple[str, str]
"""A query in Flink's SQL and in DuckDB's."""
CASES = [24, pytest.param(1_000, marks=pytest.mark.soak)]
"""The number of queries of each kind: in `make test`, and in `make test-soak`."""
OF_WINDOW = ["window_start", "window_end", "window_time"]
WINDOW_TIME = "epoch_ms(epoch_ms(window_end) - 1)"


def a_window(rng: random.Random, table: str, key: str = "") -> Query:
    """The rows of a table in windows; with a key, perhaps in sessions of it."""
    step = rng.choice([15, 20, 30, 60])
    offset = rng.choice([0, 0, 5, -10])
    named, shift = f"TABLE {table}", f", INTERVAL '{offset}' SECOND" if offset else ""
    kind, window = rng.choice(["TUMBLE", "HOP", "CUMULATE", *(["SESSION"] * bool(key))]), None
    match kind:
        case "TUMBLE":
            window, lengths = Tumbling(size=step * 1_000, offset=offset * 1_000), [step]
        case "HOP":
            size = step * rng.choice([1, 2, 3])
            window, lengths = Sliding(size=size * 1_000, slide=step * 1_000, offset=offset * 1_000), [step, size]
        case "CUMULATE":
            size = step * rng.choice([2, 3])
            window, lengths = Cumulative(size=size * 1_000, step=step * 1_000, offset=offset * 1_000), [step, size]
        case _:
            window, lengths, shift, named = Session(gap=step * 1_000), [step], "", f"TABLE {table} PARTITION BY {key}"
    arguments = ", ".join(f"INTERVAL '{length}' SECOND" for length in lengths)
    return f"TABLE({kind}({named}, DESCRIPTOR(t), {arguments}{shift}))", _rows_in(table, window, key)


def _rows_in(table: str, window: AnyWindow, key: str) -> str:
    return f"({in_windows(f'SELECT * FROM {table}', 't', window, [key] if key else [])})"


def both(text: str, *sources: Query) -> Query:
    """A query with its sources in both dialects; `window_time` is a column of Flink's rows in windows only."""
    flink, duck = (text.format(*[source[number] for source in sources]) for number in (0, 1))
    return flink, duck.replace("window_time", WINDOW_TIME)


def an_aggregate(rng: random.Random) -> Query:
    values, having = rng.sample(VALUES, 2), rng.choice(["", *(f" HAVING {one}" for one in HAVING)])
    rows = a_window(rng, "a", "k")
    where = "" if "SESSION" in rows[0] else rng.choice(["", " WHERE v > 1"])
    bounds = rng.sample(OF_WINDOW[:2], rng.randrange(3))
    columns = ["k", *bounds, *rng.choice([[], ["window_time AS at"]]), *values]
    rng.shuffle(columns)
    return both(f"SELECT {', '.join(columns)} FROM {{}}{where} GROUP BY {', '.join(['k', *OF_WINDOW])}{having}", rows)


def an_aggregate_of_an_aggregate(rng: random.Random) -> Query:
    """Results of tumbling windows, by the same windows."""
    size = rng.choice([20, 60])
    source = (f"TABLE(TUMBLE(TABLE a, DESCRIPTOR(t), INTERVAL '{size}' SECOND))", _rows_in("a", Tumbling(size=size * 1_000), ""))
    inner = f"SELECT k, window_start, window_end, {rng.choice(['SUM(v)', 'COUNT(*)'])} AS s FROM {{}} GROUP BY k, window_start, window_end"
    value = rng.choice(["SUM(s) AS total", "MAX(s) AS most, COUNT(*) AS n"])
    having = rng.choice(["", " HAVING COUNT(*) > 1"])
    return both(f"SELECT window_start, window_end, {value} FROM ({inner}) GROUP BY window_start, window_end{having}", source)


def a_ranking(rng: random.Random) -> Query:
    """A Top-N of the rows of a window, or the first or last row of a key."""
    key, last = rng.choice(["", "k"]), rng.randrange(1, 4)
    order = rng.choice(["t", "t DESC"]) if key and rng.random() < 0.5 else rng.choice(["v DESC, id", "v, id DESC", "v NULLS LAST, id"])
    rows = a_window(rng, "a", key)
    where = "" if "SESSION" in rows[0] else rng.choice(["", " WHERE v > 1"])
    by = ", ".join(filter(None, ["window_start", "window_end", key]))
    inner = f"SELECT *, ROW_NUMBER() OVER (PARTITION BY {by} ORDER BY {order}) AS n FROM {{}}{where}"
    limit = rng.choice([f"n <= {last}", f"n < {last + 1}", "n = 1"])
    columns = rng.choice(["id, n", "id, k, window_end", "v, id, window_start, n"])
    return both(f"SELECT {columns} FROM ({inner}) WHERE {limit}", rows)


def a_ranking_of_an_aggregate(rng: random.Random) -> Query:
    value = rng.choice(["SUM(id)", "COUNT(*)", "MAX(v)"])
    sums = f"SELECT k, window_start, window_end, {value} AS s FROM {{}} GROUP BY k, window_start, window_end"
    rank = f"ROW_NUMBER() OVER (PARTITION BY window_start, window_end ORDER BY s {rng.choice(['', 'DESC'])}, k) AS n"
    columns = rng.choice(["k, n", "k, s, window_start", "s, n, window_end"])
    return both(f"SELECT {columns} FROM (SELECT *, {rank} FROM ({sums})) WHERE n <= {rng.randrange(1, 3)}", a_window(rng, "a", "k"))


def a_join(rng: random.Random) -> Query:
    """A join of the rows of two tables in the same windows; in Flink, sessions of two sides have bounds of their own."""
    left, right = (_same_window(rng.getstate(), table) for table in ("a", "b"))
    key = rng.choice(["l.k = r.k", "l.k = r.k AND l.v = r.v"])
    extra = rng.choice(["", "", " AND l.v < r.v", " AND r.v > 1", " AND l.v > 1"])
    equal = f"{key} AND l.window_start = r.window_start AND l.window_end = r.window_end{extra}"
    rows = "(SELECT * FROM {}) l", "(SELECT * FROM {}) r"
    if rng.random() < 0.3:
        exists = f"{rng.choice(['', 'NOT '])}EXISTS (SELECT 1 FROM {rows[1]} WHERE {equal})"
        return both(f"SELECT l.id, l.k, l.window_start FROM {rows[0]} WHERE {exists}", left, right)
    how = rng.choice(["INNER", "LEFT", "RIGHT", "FULL"])
    columns = rng.sample(["l.id AS x", "r.id AS y", "l.k AS p", "r.k AS q", "l.v + r.v AS total", "COALESCE(l.k, r.k) AS either"], 4)
    columns += [f"COALESCE(l.{bound}, r.{bound}) AS {bound}" for bound in rng.sample(OF_WINDOW[:2], 1)]
    return both(f"SELECT {', '.join(columns)} FROM {rows[0]} {how} JOIN {rows[1]} ON {equal}", left, right)


def _same_window(state: object, table: str) -> Query:
    rng = random.Random()
    rng.setstate(state)  # pyright: ignore[reportArgumentType]
    return a_window(rng, table)


GENERATORS: list[Callable[[random.Random], Query]] = [
    an_aggregate,
    an_aggregate_of_an_aggregate,
    a_ranking,
    a_ranking_of_an_aggregate,
    a_join,
]


@pytest.mark.parametrize("cases", CASES)
@pytest.mark.parametrize("make", GENERATORS, ids=lambda make: make.__name__)
def test_a_plan_gives_the_rows_of_its_query(database: duckdb.DuckDBPyConnection, make: Callable[[random.Random], Query], cases: int):
    cases = example_count(cases)
    rows_compared, _ = compare_plans(database, 11, make, cases)
    assert rows_compared > cases
