"""The lineage of a table's columns, as Dagster shows it: also of columns that a preparation renames or computes."""

from collections.abc import Mapping
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

COMMENTED = "k STRING COMMENT 'the key', v BIGINT COMMENT 'the value', ts TIMESTAMP COMMENT 'the time'"
SOURCES = {name: SourceContract(name=name, schema=COMMENTED, event_time="ts") for name in ("l", "r")}
HOURLY, ROWS = Tumbling(size="1 hour"), "transform(elements, e -> struct(e.v AS v))"
JOIN = IntervalJoin(on="id", lower=0, upper="1 hour")


def hourly_aggregate(by: str, **aggregates: str) -> WindowedAggregate:
    return WindowedAggregate(by=by, window=HOURLY, aggregates=aggregates)


def engine_of(*tables: DerivedAsset, sources: Mapping[str, SourceContract] = SOURCES, schema: StructType | None = None) -> Any:
    """An engine with sources and tables, of which each has the schema."""
    views = SimpleNamespace(table=lambda _: SimpleNamespace(schema=schema))
    return SimpleNamespace(sources=sources, assets={table.name: table for table in tables}, views=views)


def lineage(derived: DerivedAsset, *columns: str) -> dict[str, list[tuple[str, str]]]:
    """Each column with the source and the source's column from which it is computed."""
    found = column_lineage(engine_of(), derived, columns).deps_by_column
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


PAIRS = DerivedAsset(
    name="pairs",
    inputs=("l", "r"),
    operator=JOIN,
    prepare={
        "l": Preparation(select="k AS id, v AS value, k || v AS both, ts"),
        "r": Preparation(select="k AS id, ts"),
    },
)
COUNTS = DerivedAsset(
    name="counts",
    inputs=("pairs",),
    operator=hourly_aggregate("id", value="max(value)", n="count(*)"),
    columns={"n": "how many pairs"},
)
LARGEST = DerivedAsset(
    name="largest",
    inputs=("l",),
    operator=Consecutive(of=hourly_aggregate("k", value="max(v)", v="sum(v)"), then=TopK(k=1, order_by="value DESC")),
)
JOINED_WITH_PAIRS = DerivedAsset(
    name="joined_with_pairs", inputs=("r", "pairs"), operator=IntervalJoin(on="id", lower=0, upper=0, right_prefix="pair_")
)
FUNCTION_OF_PAIRS = replace(PAIRS, name="function_of_pairs", shape=lambda rows: rows)
EXTENDED_PAIRS = replace(PAIRS, name="extended_pairs", shape=Shape(select="*, upper(id) AS k"))


@pytest.mark.parametrize(
    ("table", "descriptions"),
    [
        pytest.param(
            PAIRS,
            {"id": "the key", "value": "the value", "both": None, "left_seq": COLUMN_DESCRIPTIONS[SEQ]},
            id="renamed and computed columns of a source",
        ),
        pytest.param(COUNTS, {"id": "the key", "value": None, "n": "how many pairs"}, id="a description of the table itself"),
        pytest.param(LARGEST, {"k": "the key", "v": None, "value": None}, id="an aggregate with the name of a column"),
        pytest.param(
            JOINED_WITH_PAIRS,
            {
                "left_v": "the value",
                "pair_value": "the value",
                "pair_left_seq": COLUMN_DESCRIPTIONS[SEQ],
                "pair_event_time": COLUMN_DESCRIPTIONS[EVENT_TIME],
            },
            id="prefixed columns of a source and a table",
        ),
        pytest.param(FUNCTION_OF_PAIRS, {"id": None, "value": None}, id="a shape that is a function"),
        pytest.param(EXTENDED_PAIRS, {"id": "the key", "k": None}, id="a column that the shape adds"),
    ],
)
def test_a_column_has_its_own_description_or_that_of_the_column_it_comes_from(table: DerivedAsset, descriptions: dict[str, str | None]):
    found = column_descriptions(engine_of(PAIRS, COUNTS), table, [*descriptions])
    assert found == {column: text for column, text in descriptions.items() if text}


def test_a_column_that_a_shape_adds_has_no_lineage():
    assert [*lineage(EXTENDED_PAIRS, "id", "k")] == ["id"]


def test_a_table_that_a_function_shapes_has_no_lineage_because_the_function_may_compute_every_column():
    assert lineage(FUNCTION_OF_PAIRS, "id", "value") == {}


@pytest.mark.parametrize("is_ranked", [False, True])
def test_a_prefixed_column_of_a_window_join_is_described(is_ranked: bool):
    pairs = WindowJoin(on="k", window=HOURLY, left_prefix="a_", right_prefix="b_")
    operator = Consecutive(of=pairs, then=TopK(k=1, order_by="a_v")) if is_ranked else pairs
    ranked = DerivedAsset(name="ranked", inputs=("l", "r"), operator=operator)
    values = {"a_v": "the value", "b_v": "the value", "b_arrival": COLUMN_DESCRIPTIONS[ARRIVAL]}
    assert column_descriptions(engine_of(), ranked, ["k", "v", *values, "rank"]) == {"k": "the key"} | values
    assert [*lineage(ranked, "k", "v", *values, "rank")] == ["k", *values]
    semi = replace(ranked, operator=replace(pairs, how="semi"))
    assert column_descriptions(engine_of(), semi, ["v", "a_v", "b_v"]) == {"v": "the value"}
    assert lineage(semi, "k", "v", "b_v") == {"k": [("l", "k")], "v": [("l", "v")]}
    tables = [DerivedAsset(name=f"of_{name}", inputs=(name,), operator=Deduplicate(by="k")) for name in ("l", "r")]
    over_tables = replace(ranked, inputs=("of_l", "of_r"))
    assert column_descriptions(engine_of(*tables), over_tables, ["a_v", "b_v"]) == {"a_v": "the value", "b_v": "the value"}


class UserOperator(Deduplicate):
    """A user's operator: its attributes have the names of parameters of Tidemark's operators, but another meaning."""

    aggregates, rows, of, left_prefix = 5, "last", None, 7


@pytest.mark.parametrize(
    ("operator", "described"),
    [
        (ProcessWindow(by="k", window=HOURLY, rows=ROWS), ["k"]),
        (ProcessCountWindow(by="k", size=2, rows=ROWS), ["k"]),
        (CoGroup(on="k", window=HOURLY, rows="transform(left, l -> l.v)"), ["k"]),
        (Consecutive(of=ProcessWindow(by="k", window=HOURLY, rows=ROWS), then=TopK(k=1, order_by="v")), ["k"]),
        (CountWindowAggregate(by="k", size=2, aggregates={"v": "max(v)"}), ["k"]),
        (Aggregate(by="k", aggregates={"v": "max(v)"}), ["k"]),
        (Deduplicate(by="k"), ["k", "v"]),
        (UserOperator(by="k"), ["k", "v"]),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Operator) else ",".join(value),
)
def test_a_column_that_an_operator_computes_has_no_description_or_lineage_of_an_input(operator: Operator, described: list[str]):
    table = DerivedAsset(name="t", inputs=("l", "r")[: len(operator.inputs)], operator=operator)
    assert [*column_descriptions(engine_of(), table, ["k", "v"])] == described
    assert [*lineage(table, "k", "v")] == described
    upstream = DerivedAsset(name="upstream", inputs=("l",), operator=Deduplicate(by="k"))
    over_table = replace(table, inputs=("upstream", "r")[: len(operator.inputs)])
    assert [*column_descriptions(engine_of(upstream), over_table, ["k", "v"])] == described


EXAMPLES: tuple[Operator, ...] = (
    Aggregate(by="k", aggregates={"n": "count(*)"}),
    AsOfJoin(on="k"),
    CoGroup(on="k", window=HOURLY),
    Consecutive(of=WindowedAggregate(by="k", window=HOURLY, aggregates={"n": "count(*)"}), then=TopK(k=1, order_by="n")),
    CountWindowAggregate(by="k", size=2, aggregates={"n": "count(*)"}),
    Deduplicate(by="k"),
    IntervalJoin(on="k", lower=0, upper="1 hour"),
    ProcessCountWindow(by="k", size=2),
    ProcessWindow(by="k", window=HOURLY),
    Select(),
    TopK(by="k", k=1, order_by="v", window=HOURLY),
    TopN(by="k", rank_end=1, order_by="v"),
    WindowJoin(on="k", window=HOURLY),
    WindowedAggregate(by="k", window=HOURLY, aggregates={"n": "count(*)"}),
)


def test_there_is_an_example_of_every_operator():
    public = [getattr(operators, name) for name in operators.__all__]
    assert {*map(type, EXAMPLES)} == {one for one in public if is_dataclass(one) and hasattr(one, "emits")}


@pytest.mark.parametrize("input_kind", ["source", "table"])
@pytest.mark.parametrize("operator", [*EXAMPLES, RunningTotal()], ids=lambda operator: type(operator).__name__)
def test_the_key_of_every_operator_has_the_description_of_the_source(operator: Operator, input_kind: str):
    """It also has the lineage of the source, if the operator reads the source itself."""
    names = ("l", "r")[: len(operator.inputs)]
    table = DerivedAsset(name="t", inputs=names, operator=operator)
    read = [["k", "v", EVENT_TIME, SEQ, ARRIVAL]] * len(operator.inputs)
    columns = operator.result_columns(*read) if isinstance(operator, NamesColumns) else None
    schema = StructType([StructField(column, StringType()) for column in columns or ("k", "total")])
    upstream = [DerivedAsset(name=name, inputs=("s",), operator=Deduplicate(by="k")) for name in names]
    of_tables = {"s": replace(SOURCES["l"], name="s")}
    engine = engine_of(schema=schema) if input_kind == "source" else engine_of(*upstream, sources=of_tables, schema=schema)
    shown = column_metadata(engine, table)
    assert {column.name: column.description for column in shown["dagster/column_schema"].columns}["k"] == "the key"
    deps = [(dep.asset_key.path[-1], dep.column_name) for dep in shown["dagster/column_lineage"].deps_by_column.get("k", ())]
    assert deps == ([(name, "k") for name in names] if input_kind == "source" else [])


def test_the_description_of_a_joined_key_is_that_of_the_first_input():
    schema = "id STRING COMMENT 'of {}', ts TIMESTAMP"
    sources = {name: SourceContract(name=name, schema=schema.format(name), event_time="ts") for name in ("z", "a")}
    both = DerivedAsset(name="both", inputs=("z", "a"), operator=JOIN)
    assert column_descriptions(engine_of(sources=sources), both, ["id"]) == {"id": "of z"}


def test_a_sources_column_with_the_name_of_an_operators_column_is_not_described_as_that() -> None:
    sources = {"l": SourceContract(name="l", schema="k STRING, rank INT, ts TIMESTAMP", event_time="ts")}
    first = DerivedAsset(name="first", inputs=("l",), operator=Deduplicate(by="k"))
    schema = StructType([StructField(name, StringType()) for name in ("k", "rank", "firing")])
    shown = column_metadata(engine_of(first, sources=sources, schema=schema), first)
    described = {column.name: column.description for column in shown["dagster/column_schema"].columns}
    assert described == {"k": None, "rank": None, "firing": COLUMN_DESCRIPTIONS[FIRING]}


def test_the_literal_names_in_column_descriptions_are_those_of_the_operators() -> None:
    assert {FIRING, WINDOW_NUMBER} <= COLUMN_DESCRIPTIONS.keys()
