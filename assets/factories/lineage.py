"""The columns of a derived table as metadata: their types, and the columns of sources that they come from."""

from collections.abc import Sequence
from itertools import chain
from typing import Any

import dagster as dg

from assets.contracts import DerivedAsset, SourceContract
from assets.factories.keys import event_key
from assets.factories.metadata import COLUMN_DESCRIPTIONS, ENGINE_DESCRIPTIONS, table_schema
from assets.operator_parameters import first_operator
from assets.ports import EnginePort
from assets.shape import Shape
from operators.accounting import TracesInputs
from operators.aggregate import Aggregate
from operators.as_of_join import AsOfJoin
from operators.cogroup import CoGroup
from operators.contract import Operator
from operators.count_windows import CountWindowAggregate
from operators.engine_columns import ARRIVAL, EVENT_TIME, SEQ
from operators.interval_join import IntervalJoin
from operators.process_count_window import ProcessCountWindow
from operators.process_window import ProcessWindow
from operators.window_join import WindowJoin
from operators.windowed_aggregate import WindowedAggregate

_ENGINE_COLUMNS = (SEQ, ARRIVAL, EVENT_TIME)


def column_metadata(engine: EnginePort, derived: DerivedAsset) -> dict[str, Any]:
    """The schema and the lineage of a table that exists, as Dagster shows them."""
    schema = engine.views.table(derived.name).schema
    described = column_descriptions(engine, derived, schema.names)
    lineage = column_lineage(engine, derived, schema.names)
    of_sources = lineage.deps_by_column.keys() - ENGINE_DESCRIPTIONS.keys()  # a source may have a column `rank`
    added = {name: text for name, text in COLUMN_DESCRIPTIONS.items() if name not in of_sources}
    return {"dagster/column_schema": table_schema(schema, described, added), "dagster/column_lineage": lineage}


def column_descriptions(engine: EnginePort, derived: DerivedAsset, columns: Sequence[str]) -> dict[str, str]:
    """The descriptions of a table's columns: its own, else those of the columns that they come from.

    Args:
        engine: the engine.
        derived: the table.
        columns: its columns.
    """
    columns_of_inputs = [column for column in columns if _has_values_of_an_input(derived, column)]
    descriptions: dict[str, str] = {}
    for index, name in reversed([*enumerate(derived.inputs)]):  # the first input's description replaces that of the others
        if name in engine.assets:
            descriptions |= _descriptions_from_table(engine, derived, index, columns_of_inputs)
        else:
            descriptions |= _descriptions_from_source(engine, derived, engine.sources[name], columns_of_inputs)
    return descriptions | dict(derived.columns)


def _has_values_of_an_input(derived: DerivedAsset, column: str) -> bool:
    """Whether a column with the name of an input's column also has the values of that column: no aggregate or function computes it."""
    if not _is_from_operator(derived, column):
        return False
    match first := first_operator(derived.operator):
        case CoGroup() | ProcessCountWindow() | ProcessWindow():  # a function computes the other columns
            return column in first.key
        case Aggregate() | CountWindowAggregate() | WindowedAggregate():
            return column not in first.aggregates
        case _:
            return True


def _descriptions_from_table(engine: EnginePort, derived: DerivedAsset, index: int, columns: Sequence[str]) -> dict[str, str]:
    """The descriptions of columns of an input that is a table: under the same name, or with the prefix that a join adds."""
    join = first_operator(derived.operator)
    prefix = (join.left_prefix, join.right_prefix)[index] if isinstance(join, AsOfJoin | IntervalJoin | WindowJoin) else ""
    names_in_input = {column: column.removeprefix(prefix) for column in columns}
    # each once, because otherwise their number would double with each table of a chain
    candidates = [*dict.fromkeys([*columns, *names_in_input.values()])]
    input_descriptions = {**COLUMN_DESCRIPTIONS, **column_descriptions(engine, engine.assets[derived.inputs[index]], candidates)}
    return {
        column: text for column, name in names_in_input.items() if (text := input_descriptions.get(column) or input_descriptions.get(name))
    }


def _descriptions_from_source(engine: EnginePort, derived: DerivedAsset, source: SourceContract, columns: Sequence[str]) -> dict[str, str]:
    """The descriptions of columns that are computed from one column of a source."""
    comments = {field.name: field.metadata.get("comment") for field in source.struct.fields}
    descriptions: dict[str, str] = {}
    for column in columns:
        origins = {dep.column_name for dep in _column_deps(engine, derived, column) if dep.asset_key == event_key(source.name)}
        texts = [comments.get(name) or ENGINE_DESCRIPTIONS.get(name) for name in origins]
        if len(texts) == 1 and texts[0]:
            descriptions[column] = texts[0]
    return descriptions


def column_lineage(engine: EnginePort, derived: DerivedAsset, columns: Sequence[str]) -> dg.TableColumnLineage:
    """The columns of sources from which the result's columns come. A column of an input that is a table has no lineage here."""
    columns_of_inputs = [column for column in columns if _has_values_of_an_input(derived, column)]
    return dg.TableColumnLineage({column: deps for column in columns_of_inputs if (deps := _column_deps(engine, derived, column))})


def _is_from_operator(derived: DerivedAsset, column: str) -> bool:
    """Whether a column is one of the operator's result. If a function shapes the table, it may have computed every column."""
    return derived.shape is None or (isinstance(derived.shape, Shape) and column not in derived.shape.added)


def _column_deps(engine: EnginePort, derived: DerivedAsset, column: str) -> list[dg.TableColumnDep]:
    """The columns of sources that a column of the result comes from, by its name."""
    all_deps: list[dg.TableColumnDep] = []
    columns_by_index = {
        index: _columns_read(derived, index, engine.sources[name]) for index, name in enumerate(derived.inputs) if name in engine.sources
    }
    for index, name in enumerate(derived.inputs):
        others = {other for other in range(len(derived.inputs)) if other != index}
        columns_of_others = {*_ENGINE_COLUMNS, *chain.from_iterable(columns_by_index[other] for other in others & columns_by_index.keys())}
        has_other_table = bool(others - columns_by_index.keys())  # a table may have a column of the same name
        source_columns = [
            source_column
            for read_column, source_columns_of_it in columns_by_index.get(index, {}).items()
            if column == _result_name(derived, read_column, index, read_column in columns_of_others)
            or (has_other_table and column == _result_name(derived, read_column, index, True))
            for source_column in source_columns_of_it
        ]
        all_deps += [dg.TableColumnDep(event_key(name), source_column) for source_column in source_columns]
    return all_deps


def _columns_read(derived: DerivedAsset, index: int, source: SourceContract) -> dict[str, list[str]]:
    """The columns of the source at input `index` as the operator reads them, each with the source's columns from which it is computed."""
    source_columns = source.struct.fieldNames()
    preparation = derived.preparation(index)
    columns = (
        {column: [column] for column in source_columns} if preparation is None else preparation.lineage(source_columns, _ENGINE_COLUMNS)
    )
    return columns | {column: [column] for column in _ENGINE_COLUMNS}


def _result_name(derived: DerivedAsset, column: str, index: int, is_shared: bool) -> str | None:
    """The result's name of a column of input `index`; None if the result has no column of this input."""
    name = _names_of_shared(first_operator(derived.operator), column)[index]
    return name if is_shared or name is None else column


def _names_of_shared(operator: Operator, column: str) -> tuple[str | None, ...]:
    """For each input, the result's name of a column that every input has; None if the result has no column of this input."""
    if isinstance(operator, WindowJoin):
        has_left_rows_only = operator.how in ("semi", "anti")
        return (operator.names.left_only_name(column), None) if has_left_rows_only else operator.names.traced_names(column)
    return operator.traced(column) if isinstance(operator, TracesInputs) else (column,) * len(operator.inputs)
