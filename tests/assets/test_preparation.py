"""A preparation is checked when it is made: SQL over one row, with a name for each column."""

from functools import partial

import pytest

from assets.contracts import ContractError, DerivedAsset, Preparation, SourceContract
from assets.pipeline import Pipeline
from operators import Aggregate, AsOfJoin, IntervalJoin, TopK, TopN, Tumbling, WindowedAggregate
from tests.support.small_sources import ROW

COLUMNS = ["a", "b", "kind"]


@pytest.mark.parametrize(
    ("select", "columns"),
    [
        ("*", {"a": "`a`", "b": "`b`", "kind": "`kind`"}),
        ("a AS id, b", {"id": "a AS id", "b": "b"}),
        ("*, a + b AS c", {"a": "`a`", "b": "`b`", "kind": "`kind`", "c": "a + b AS c"}),
        ("* EXCEPT (A, kind), a + 1 AS a", {"b": "`b`", "a": "a + 1 AS a"}),
        ("'it''s, so' AS c, struct(a, b) d", {"c": "'it''s, so' AS c", "d": "struct(a, b) d"}),
        ("concat_ws(',', array(a, b)) AS both", {"both": "concat_ws(',', array(a, b)) AS both"}),
        ("a::MAP<STRING, ARRAY<INT>> AS m, b", {"m": "a::MAP<STRING, ARRAY<INT>> AS m", "b": "b"}),
        ("a.map < 3 AS few, b", {"few": "a.map < 3 AS few", "b": "b"}),
        ("a < 3 AS few, b > 2 AS many", {"few": "a < 3 AS few", "many": "b > 2 AS many"}),
    ],
)
def test_the_columns_are_those_of_sqls_select(select: str, columns: dict[str, str]) -> None:
    assert Preparation(select=select).columns(COLUMNS) == columns


ONE_ROW, NO_CLOCK = "legal: expressions over one row", "legal: expressions without random numbers and the clock"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"where": ""}, r"`where` is ''; legal: a SQL expression"),
        ({"where": "a >"}, r"`where` is 'a >'; legal: SQL over the columns"),
        ({"where": "a, b"}, r"`where` is 'a, b'; legal: SQL over the columns"),
        ({"where": "a > 0;"}, r"`where` is 'a > 0;'; legal: SQL over the columns"),
        ({"where": "x.*"}, r"`where` is 'x\.\*'; legal: SQL over the columns"),
        ({"select": "a, b;"}, r"`select` is 'a, b;'; legal: SQL over the columns"),
        ({"where": "a AS b"}, r"`where` is 'a AS b'; legal: SQL over the columns"),
        ({"where": "a GROUP BY a"}, r"legal: SQL over the columns"),
        ({"where": "sum(a) > 1"}, ONE_ROW),
        ({"where": "a IN (SELECT 1)"}, ONE_ROW),
        ({"where": "row_number() OVER (ORDER BY a) = 1"}, ONE_ROW),
        ({"where": "rand() < 0.1"}, NO_CLOCK),
        ({"where": "a > now()"}, NO_CLOCK),
        ({"where": "a > current_date"}, NO_CLOCK),
        ({"where": "a > unix_timestamp()"}, NO_CLOCK),
        ({"select": "uuid() AS id"}, NO_CLOCK),
        ({"select": "monotonically_increasing_id() AS id"}, NO_CLOCK),
        ({"select": "explode(a) AS b"}, ONE_ROW),
        ({"where": "a > localtimestamp()"}, NO_CLOCK),
        ({"where": "a > timestamp 'now'"}, NO_CLOCK),
        ({"where": "a > 'yesterday'"}, NO_CLOCK),
        ({"where": "to_date('TODAY UTC') > a"}, NO_CLOCK),
        ({"where": "a > system.builtin.current_timestamp()"}, NO_CLOCK),
        ({"where": "a > current_timestamp"}, NO_CLOCK),
        ({"where": "a > CAST(' Today' AS DATE)"}, NO_CLOCK),
        ({"where": "a > r'now'"}, NO_CLOCK),
        ({"where": "a > 'tomorrow Europe/Berlin'"}, NO_CLOCK),
        ({"where": "uniform(1, 2) = 1"}, NO_CLOCK),
        ({"select": "aes_encrypt(a, b) AS c"}, NO_CLOCK),
        ({"select": "java_method('java.lang.System', 'nanoTime') AS c"}, NO_CLOCK),
        ({"select": "inline_outer(a) AS c"}, ONE_ROW),
        ({"select": "window(a, '10 minutes', '5 minutes').start AS c"}, ONE_ROW),
        ({"select": "* REPLACE (a + 1 AS a)"}, r"`select` is '\* REPLACE \(a \+ 1 AS a\)'; legal: \* or \* EXCEPT"),
        ({"select": "* RENAME (a AS b)"}, r"legal: \* or \* EXCEPT"),
        ({"select": "* ILIKE 'a%'"}, r"legal: \* or \* EXCEPT"),
        ({"select": "stack(2, 1, 2) AS (a, b)"}, ONE_ROW),
        ({"select": 3}, r"`select` is 3; legal: a SQL expression"),
        ({"select": "a,"}, r"`select` is ''; legal: SQL"),
        ({"select": "a FROM b"}, r"legal: SQL over the columns"),
        ({"select": "a; DROP TABLE b"}, r"legal: SQL over the columns"),
        ({"select": "a + 1"}, r"`select` is 'a \+ 1'; legal: a name for each computed column: a \+ 1 AS name"),
        ({"select": "a AS event_time"}, r"legal: names other than seq, arrival, event_time"),
        ({"select": "a AS `b c`"}, r"legal: letters, digits.*; write another name after AS"),
        ({"select": "t.*"}, r"write another name after AS, or \* alone for all columns"),
        ({"select": "a AS _b"}, r"not starting with '_'"),
    ],
)
def test_other_sql_is_refused_with_what_is_legal(given: dict[str, str], message: str) -> None:
    with pytest.raises(ContractError, match=message):
        Preparation(**given)


def test_a_time_that_is_read_from_a_column_is_no_clock():
    Preparation(where="localtimestamp > now AND user = 'nowhere'").check(["now", "User", "localtimestamp"], "'l'", [])
    assert Preparation(where="unix_timestamp(a) > 0 AND exists(array(b), x -> x > 1)").columns(["a"]) == {"a": "`a`"}


def test_a_text_that_only_starts_like_a_time_of_the_clock_is_no_clock():
    where = "a = 'now or never' OR a LIKE 'Today%' OR a <> 'Yesterday was bad news' OR a = 'now UTC' OR a RLIKE '^today$'"
    Preparation(where=where).check(["a"], "'l'", [])


def test_the_lineage_of_a_column_is_the_columns_that_its_sql_reads():
    prepared = Preparation(select="* EXCEPT (a), a + B AS c, transform(array(a), x -> x + b) AS d, 1 AS e")
    assert prepared.lineage(COLUMNS) == {"b": ["b"], "kind": ["kind"], "c": ["a", "b"], "d": ["a", "b"], "e": []}
    assert Preparation(select="event_time AS t").lineage(COLUMNS, ["event_time"]) == {"t": ["event_time"]}


def test_a_column_is_replaced_only_if_it_is_left_out_first():
    with pytest.raises(ContractError, match=r"`select` is 'a'; legal: each column once: .*`prepare` may write \* EXCEPT \(a\)"):
        Preparation(select="*, a + 1 AS a").columns(COLUMNS)


def test_rows_of_a_table_have_no_batch() -> None:
    seconds = WindowedAggregate(by="k", window=Tumbling(size="1 second"), aggregates={"n": "count(*)"})
    best = DerivedAsset(name="best", inputs=("count",), operator=TopK(k=1, order_by="n"), prepare={"count": Preparation(where="seq > 1")})
    with pytest.raises(ContractError, match=r"`where` is 'seq > 1'; legal: 'seq' is no column of 'count'"):
        Pipeline(sources=[L], tables=[table(operator=seconds), best])


L, R, PAYMENTS = (SourceContract(name=name, schema=ROW, event_time="ts") for name in ("l", "r", "payments"))
COUNT = Aggregate(by="k", aggregates={"n": "count(*)"})
JOIN = IntervalJoin(on="id", lower=0, upper="1 hour")


def table(**changes: object) -> DerivedAsset:
    """A count of a source's rows."""
    return DerivedAsset(**{"name": "count", "inputs": ("l",), "operator": COUNT, **changes})  # pyright: ignore[reportArgumentType]


def test_only_inputs_are_prepared_and_each_under_one_name() -> None:
    with pytest.raises(ContractError, match=r"`prepare` is 'v > 0'; legal: Preparation\(where=..., select=...\)"):
        table(prepare={"l": "v > 0"})
    with pytest.raises(ContractError, match=r"^table 'count': `prepare` is 'm'; legal: names of the table's inputs: l$"):
        Pipeline(sources=[L], tables=[table(prepare={"m": Preparation()})])
    with pytest.raises(ContractError, match=r"^table 'count': `prepare` is 'payment'; legal: .*: payments; did you mean 'payments'\?$"):
        Pipeline(sources=[PAYMENTS], tables=[table(inputs=("payments",), prepare={"payment": Preparation()})])
    both = DerivedAsset(name="pairs", inputs=("l", "l"), operator=JOIN, prepare={"l": Preparation(), "left": Preparation()})
    with pytest.raises(ContractError, match=r"^table 'pairs': `prepare` is 'l'; legal: either 'l' for both sides, or only left and right$"):
        Pipeline(sources=[L], tables=[both])


def test_an_unknown_input_is_reported_before_the_preparation_of_the_right_name() -> None:
    pairs = DerivedAsset(name="pairs", inputs=("l", "paymentz"), operator=JOIN, prepare={"payments": Preparation()})
    message = (
        r"^`inputs` is 'paymentz'; legal: names of sources and tables: l, payments, pairs; 'pairs' reads it; did you mean 'payments'\?$"
    )
    with pytest.raises(ContractError, match=message):
        Pipeline(sources=[L, PAYMENTS], tables=[pairs])


@pytest.mark.parametrize(
    ("preparation", "message"),
    [
        (Preparation(where="w > 0"), r"`where` is 'w > 0'; legal: 'w' is no column of 'l'; the columns of 'l' are k, v, ts"),
        (Preparation(select="w AS x"), r"`select` is 'w AS x'; legal: 'w' is no column of 'l'"),
        (Preparation(select="* EXCEPT (kk)"), r"`select` is 'kk'; legal: the columns of 'l' are k, v, ts; did you mean 'k'\?"),
        (Preparation(select="v, ts"), r"`by` is 'k'; legal: the columns of 'l' as prepared are v, ts"),
        (Preparation(where="k = user"), "legal: expressions without random numbers and the clock"),
        (Preparation(where="ts > localtimestamp"), "legal: expressions without random numbers and the clock"),
        (Preparation(where="result_time > ts"), r"'result_time' is no column of 'l'"),
        (Preparation(select="*, v AS K"), r"`select` is 'K'; legal: each column once"),
    ],
)
def test_a_column_that_does_not_exist_is_refused_when_the_pipeline_is_made(preparation: Preparation, message: str) -> None:
    with pytest.raises(ContractError, match=message):
        Pipeline(sources=[L], tables=[table(prepare={"l": preparation})])


def test_the_inputs_of_a_join_may_have_keys_of_other_names():
    as_id = Preparation(select="k AS id, v")
    pairs = DerivedAsset(name="pairs", inputs=("l", "r"), operator=JOIN, prepare={"l": as_id, "r": Preparation(select="*, k AS id")})
    assert [*Pipeline(sources=[L, R], tables=[pairs]).tables_by_name] == ["pairs"]
    wrong = DerivedAsset(name="pairs", inputs=("l", "r"), operator=JOIN, prepare={"l": Preparation(select="k AS id, x"), "r": as_id})
    with pytest.raises(ContractError, match=r"`select` is 'x'; legal: the columns of 'l' are k, v, ts"):
        Pipeline(sources=[L, R], tables=[wrong])


def test_an_upserted_table_is_prepared_and_rows_with_change_kinds_are_not_filtered():
    best = TopN(by="k", order_by="n DESC", rank_end=1, unique_key="k", change="change")
    of_count = DerivedAsset(name="best", inputs=("count",), operator=best, prepare={"count": Preparation(select="k, n")})
    assert [made.name for made in Pipeline(sources=[L], tables=[table(), of_count]).tables] == ["count", "best"]
    as_of = partial(DerivedAsset, name="priced", inputs=("l", "r"), operator=AsOfJoin(on="k", change="kind"))
    assert as_of(prepare={"l": Preparation(where="v > 0"), "r": Preparation(select="*, x + 1 AS y")}).prepares("l")
    with pytest.raises(ContractError, match=r"`where` is 'x > 0'; legal: no condition for 'r', whose rows have change kinds"):
        as_of(prepare={"r": Preparation(where="x > 0")})
    with pytest.raises(ContractError, match=r"`where` is 'n > 0'; legal: no condition for 'l', whose rows have change kinds"):
        table(operator=best, prepare={"l": Preparation(where="n > 0")})
