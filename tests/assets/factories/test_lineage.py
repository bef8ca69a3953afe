"""The lineage of a table's columns, as Dagster shows it: also of columns that a preparation renames or computes."""

from dataclasses import is_dataclass, replace
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql.types import StringType, StructField, StructType

import operators
from assets.contracts import DerivedAsset, Preparation, Shape, SourceContract
from assets.factories.lineage import column_descriptions, column_lineage, column_metadata
from assets.factories.metadata import COLUMN_DESCRIPTIONS
from operators import (
    Aggregate,
    AsOfJoin,
    CoGroup,
    Consecutive,
    CountWindowAggregate,
    Deduplicate,
    IntervalJoin,
    Operator,
    ProcessCountWindow,
    ProcessWindow,
    Select,
    TopK,
    TopN,
    Tumbling,
    WindowedAggregate,
    WindowJoin,
)
from operators._support.count_windows import WINDOW_NUMBER
from operators._support.firings import FIRING
from operators.contract import NamesColumns
from operators.engine_columns import ARRIVAL, EVENT_TIME, SEQ
from tests.support.example_operators import RunningTotal
from tests.support.small_sources import ROW

SOURCES = {name: SourceContract(name=name, schema=ROW, event_time="ts") for name in ("l", "r")}
HOUR, ROWS = Tumbling(size="1 hour"), "transform(elements, e -> struct(e.v AS v))"
JOIN = IntervalJoin(on="id", lower=0, upper="1 hour")


def counts_of(by: str, **aggregates: str) -> WindowedAggregate:
    return WindowedAggregate(by=by, window=Tumbling(size="1 hour"), aggregates=aggregates)


def lineage(derived: DerivedAsset, *columns: str) -> dict[str, list[tuple[str, str]]]:
    """Each column with the source and the source's column from which it is computed."""
    engine: Any = SimpleNamespace(sources=SOURCES)
    found = column_lineage(engine, derived, columns).deps_by_column
    return {column: [(dep.asset_key.path[-1], dep.column_name) for dep in deps] for column, deps in found.items()}


def test_a_column_of_both_inputs_has_its_sides_prefix_and_the_key_comes_from_both():
    join = DerivedAsset(name="pairs", inputs=("l", "r"), operator=IntervalJoin(on="k", lower=0, upper="1 hour"))
    found = lineage(join, "k", "left_v", "right_seq", "result_time")
    assert found == {"k": [("l", "k"), ("r", "k")], "left_v": [("l", "v")], "right_seq": [("r", "seq")]}


def test_a_result_of_left_rows_has_no_column_of_the_right_input():
    semi = IntervalJoin(on="k", lower=0, upper="1 hour", how="semi")
    of_sources = DerivedAsset(name="paid", inputs=("l", "r"), operator=semi)
    assert lineage(of_sources, "k", "v", "seq", "result_time") == {"k": [("l", "k")], "v": [("l", "v")], "seq": [("l", "seq")]}
    of_table = DerivedAsset(name="paid", inputs=("a_table", "r"), operator=semi)
    assert lineage(of_table, "k", "v") == {}


def test_a_prepared_column_comes_from_the_columns_that_its_sql_reads():
    prepare = {"l": Preparation(select="k AS id, v + 1 AS more"), "r": Preparation(select="concat(k, v) AS id, ts")}
    found = lineage(DerivedAsset(name="pairs", inputs=("l", "r"), operator=JOIN, prepare=prepare), "id", "more", "ts", "v")
    assert found == {"id": [("l", "k"), ("r", "k"), ("r", "v")], "more": [("l", "v")], "ts": [("r", "ts")]}


def test_a_column_has_its_own_description_or_that_of_the_column_it_comes_from():
    texts = {"k": "the key", "v": "the value", "ts": "the time"}
    schema = ", ".join(f"{name} {kind} COMMENT '{texts[name]}'" for name, kind in (("k", "STRING"), ("v", "BIGINT"), ("ts", "TIMESTAMP")))
    sources = {name: SourceContract(name=name, schema=schema, event_time="ts") for name in ("l", "r")}
    prepare = {"l": Preparation(select="k AS id, v AS value, k || v AS both, ts"), "r": Preparation(select="k AS id, ts")}
    pairs = DerivedAsset(name="pairs", inputs=("l", "r"), operator=JOIN, prepare=prepare)
    counts = counts_of("id", value="max(value)", n="count(*)")
    made = DerivedAsset(name="counts", inputs=("pairs",), operator=counts, columns={"n": "how many pairs"})
    top = TopK(k=1, order_by="value DESC")
    ranked = DerivedAsset(name="ranked", inputs=("l",), operator=Consecutive(of=counts_of("k", value="max(v)", v="sum(v)"), then=top))
    again = DerivedAsset(name="again", inputs=("r", "pairs"), operator=IntervalJoin(on="id", lower=0, upper=0, right_prefix="pair_"))
    shaped = replace(pairs, name="shaped", shape=lambda rows: rows)
    engine: Any = SimpleNamespace(sources=sources, assets={"pairs": pairs, "counts": made, "again": again})
    of_pairs = column_descriptions(engine, pairs, ["id", "value", "both", "left_seq"])
    assert of_pairs == {"id": "the key", "value": "the value", "left_seq": COLUMN_DESCRIPTIONS["seq"]}
    assert column_descriptions(engine, made, ["id", "value", "n"]) == {"id": "the key", "n": "how many pairs"}
    assert column_descriptions(engine, ranked, ["k", "v", "value"]) == {"k": "the key"}
    found = column_descriptions(engine, again, ["left_v", "pair_value", "pair_left_seq", "pair_event_time"])
    assert found == {"left_v": "the value", "pair_value": "the value"} | {
        "pair_left_seq": COLUMN_DESCRIPTIONS["seq"],
        "pair_event_time": COLUMN_DESCRIPTIONS["event_time"],
    }
    assert column_descriptions(engine, shaped, ["id", "value"]) == {}
    added = replace(pairs, name="added", shape=Shape(select="*, upper(id) AS k"))
    assert column_descriptions(engine, added, ["id", "k"]) == {"id": "the key"}
    assert [*column_lineage(engine, added, ["id", "k"]).deps_by_column] == ["id"]


@pytest.mark.parametrize("is_ranked", [False, True])
def test_a_column_below_a_prefix_of_a_window_join_is_described(is_ranked: bool):
    schema = "k STRING COMMENT 'the key', v BIGINT COMMENT 'the value', ts TIMESTAMP"
    sources = {name: SourceContract(name=name, schema=schema, event_time="ts") for name in ("l", "r")}
    pairs = WindowJoin(on="k", window=HOUR, left_prefix="a_", right_prefix="b_")
    operator = Consecutive(of=pairs, then=TopK(k=1, order_by="a_v")) if is_ranked else pairs
    ranked = DerivedAsset(name="ranked", inputs=("l", "r"), operator=operator)
    values = {"a_v": "the value", "b_v": "the value", "b_arrival": COLUMN_DESCRIPTIONS[ARRIVAL]}
    engine: Any = SimpleNamespace(sources=sources, assets={})
    assert column_descriptions(engine, ranked, ["k", "v", *values, "rank"]) == {"k": "the key"} | values
    assert [*column_lineage(engine, ranked, ["k", "v", *values, "rank"]).deps_by_column] == ["k", *values]
    semi = replace(ranked, operator=replace(pairs, how="semi"))
    assert column_descriptions(engine, semi, ["v", "a_v", "b_v"]) == {"v": "the value"}
    assert lineage(semi, "k", "v", "b_v") == {"k": [("l", "k")], "v": [("l", "v")]}
    engine.assets |= {name: DerivedAsset(name=name, inputs=(name[-1],), operator=Deduplicate(by="k")) for name in ("of_l", "of_r")}
    over_tables = replace(ranked, inputs=("of_l", "of_r"))
    assert column_descriptions(engine, over_tables, ["a_v", "b_v"]) == {"a_v": "the value", "b_v": "the value"}


class Own(Deduplicate):
    """An operator of one's own, whose attributes are no parameters of Tidemark's operators."""

    aggregates, rows, of, left_prefix = 5, "last", None, 7


@pytest.mark.parametrize(
    ("operator", "described"),
    [
        (ProcessWindow(by="k", window=HOUR, rows=ROWS), ["k"]),
        (ProcessCountWindow(by="k", size=2, rows=ROWS), ["k"]),
        (CoGroup(on="k", window=HOUR, rows="transform(left, l -> l.v)"), ["k"]),
        (Consecutive(of=ProcessWindow(by="k", window=HOUR, rows=ROWS), then=TopK(k=1, order_by="v")), ["k"]),
        (CountWindowAggregate(by="k", size=2, aggregates={"v": "max(v)"}), ["k"]),
        (Aggregate(by="k", aggregates={"v": "max(v)"}), ["k"]),
        (Deduplicate(by="k"), ["k", "v"]),
        (Own(by="k"), ["k", "v"]),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Operator) else ",".join(value),
)
def test_a_column_that_an_operator_computes_has_no_description_of_an_input(operator: Operator, described: list[str]):
    schema = "k STRING COMMENT 'the key', v BIGINT COMMENT 'the value', ts TIMESTAMP"
    sources = {name: SourceContract(name=name, schema=schema, event_time="ts") for name in ("l", "r")}
    engine: Any = SimpleNamespace(sources=sources, assets={})
    table = DerivedAsset(name="t", inputs=("l", "r")[: len(operator.inputs)], operator=operator)
    assert [*column_descriptions(engine, table, ["k", "v"])] == described
    engine.assets["t"] = replace(table, operator=Deduplicate(by="k"), inputs=("l",))
    over_table = replace(table, name="over", inputs=("t", "r")[: len(operator.inputs)])
    assert [*column_descriptions(engine, over_table, ["k", "v"])] == described


EXAMPLES: tuple[Operator, ...] = (
    Aggregate(by="k", aggregates={"n": "count(*)"}),
    AsOfJoin(on="k"),
    CoGroup(on="k", window=HOUR),
    Consecutive(of=WindowedAggregate(by="k", window=HOUR, aggregates={"n": "count(*)"}), then=TopK(k=1, order_by="n")),
    CountWindowAggregate(by="k", size=2, aggregates={"n": "count(*)"}),
    Deduplicate(by="k"),
    IntervalJoin(on="k", lower=0, upper="1 hour"),
    ProcessCountWindow(by="k", size=2),
    ProcessWindow(by="k", window=HOUR),
    Select(),
    TopK(by="k", k=1, order_by="v", window=HOUR),
    TopN(by="k", rank_end=1, order_by="v"),
    WindowJoin(on="k", window=HOUR),
    WindowedAggregate(by="k", window=HOUR, aggregates={"n": "count(*)"}),
)


def test_there_is_an_example_of_every_operator():
    public = [getattr(operators, name) for name in operators.__all__]
    assert {*map(type, EXAMPLES)} == {one for one in public if is_dataclass(one) and hasattr(one, "emits")}


@pytest.mark.parametrize("input_kind", ["source", "table"])
@pytest.mark.parametrize("operator", [*EXAMPLES, RunningTotal()], ids=lambda operator: type(operator).__name__)
def test_dagster_shows_the_columns_of_every_operator(operator: Operator, input_kind: str):
    table = DerivedAsset(name="t", inputs=("l", "r")[: len(operator.inputs)], operator=operator)
    read = [["k", "v", EVENT_TIME, SEQ, ARRIVAL]] * len(operator.inputs)
    columns = operator.result_columns(*read) if isinstance(operator, NamesColumns) else None
    schema = StructType([StructField(column, StringType()) for column in columns or ("k", "total")])
    described = "k STRING COMMENT 'the key', v BIGINT, ts TIMESTAMP"
    sources = {name: SourceContract(name=name, schema=described, event_time="ts") for name in ("s", "l", "r")}
    upstream = {name: DerivedAsset(name=name, inputs=("s",), operator=Deduplicate(by="k")) for name in ("l", "r")}
    engine: Any = SimpleNamespace(
        sources=sources if input_kind == "source" else {"s": sources["s"]},
        assets={} if input_kind == "source" else upstream,
        views=SimpleNamespace(table=lambda _: SimpleNamespace(schema=schema)),
    )
    shown = column_metadata(engine, table)["dagster/column_schema"].columns
    assert [column.name for column in shown] == schema.names
    assert {column.name: column.description for column in shown}["k"] == "the key"


def test_the_description_of_a_joined_key_is_that_of_the_first_input():
    of = {name: SourceContract(name=name, schema=f"id STRING COMMENT 'of {name}', ts TIMESTAMP", event_time="ts") for name in ("z", "a")}
    engine: Any = SimpleNamespace(sources=of, assets={})
    assert column_descriptions(engine, DerivedAsset(name="both", inputs=("z", "a"), operator=JOIN), ["id"]) == {"id": "of z"}


def test_the_columns_that_only_some_operators_add_are_described() -> None:
    assert {FIRING, WINDOW_NUMBER} <= COLUMN_DESCRIPTIONS.keys()
