"""The columns of a derived table as metadata: their types, and the input columns that they come from."""

from collections.abc import Sequence
from typing import Any

import dagster as dg

from assets.contracts import DerivedAsset, SourceContract
from assets.factories.keys import event_key
from assets.factories.metadata import COLUMN_DESCRIPTIONS, table_schema
from assets.ports import EnginePort
from assets.shape import Shape
from operators.accounting import TracesInputs
from operators.columns import names
from operators.engine_columns import ARRIVAL, EVENT_TIME, SEQ

_ENGINE_COLUMNS = (SEQ, ARRIVAL, EVENT_TIME)


def column_metadata(engine: EnginePort, derived: DerivedAsset) -> dict[str, Any]:
    """The schema and the lineage of a table that exists, as Dagster shows them."""
    schema = engine.views.table(derived.name).schema
    described = column_descriptions(engine, derived, schema.names)
    lineage = column_lineage(engine, derived, schema.names)
    return {"dagster/column_schema": table_schema(schema, described), "dagster/column_lineage": lineage}


def column_descriptions(engine: EnginePort, derived: DerivedAsset, columns: Sequence[str]) -> dict[str, str]:
    """The descriptions of a table's columns: its own, else those of the columns that they come from.

    Args:
        engine: the engine.
        derived: the table.
        columns: its columns.
    """
    traced = [column for column in columns if _has_values_of_an_input(derived, column)]
    descriptions: dict[str, str] = {}
    for which, name in reversed([*enumerate(derived.inputs)]):  # the first input's description replaces that of the others
        if name in engine.assets:
            descriptions |= _descriptions_from_table(engine, derived, which, traced)
        else:
            descriptions |= _descriptions_from_source(engine, derived, engine.sources[name], traced)
    return descriptions | dict(derived.columns)


def _has_values_of_an_input(derived: DerivedAsset, column: str) -> bool:
    """Whether a column with the name of an input's column also has the values of that column: no aggregate or function computes it."""
    operator: Any = derived.operator
    if derived.shape is not None and column not in _unshaped(derived, [column]):
        return False
    if hasattr(operator, "rows"):  # the function of a coGroup
        return column in names(operator.on)
    return column not in getattr(getattr(operator, "of", operator), "aggregates", {})


def _descriptions_from_table(engine: EnginePort, derived: DerivedAsset, which: int, columns: Sequence[str]) -> dict[str, str]:
    """The descriptions of columns of an input that is a table: under the same name, or below the prefix that a join gives it."""
    prefix = getattr(derived.operator, ("left_prefix", "right_prefix")[min(which, 1)], "")
    own = {column: column.removeprefix(prefix) for column in columns}
    candidates = [*dict.fromkeys([*columns, *own.values()])]  # each once: else their number would double with each table of a chain
    known = {**COLUMN_DESCRIPTIONS, **column_descriptions(engine, engine.assets[derived.inputs[which]], candidates)}
    return {column: text for column, name in own.items() if (text := known.get(column) or known.get(name))}


def _descriptions_from_source(engine: EnginePort, derived: DerivedAsset, source: SourceContract, columns: Sequence[str]) -> dict[str, str]:
    """The descriptions of columns that are computed from one column of a source."""
    comments = {field.name: field.metadata.get("comment") for field in source.struct.fields}
    descriptions: dict[str, str] = {}
    for column in columns:
        origins = {dep.column_name for dep in _column_deps(engine, derived, column) if dep.asset_key == event_key(source.name)}
        texts = [comments.get(name) or COLUMN_DESCRIPTIONS.get(name) for name in origins]
        if len(texts) == 1 and texts[0]:
            descriptions[column] = texts[0]
    return descriptions


def column_lineage(engine: EnginePort, derived: DerivedAsset, columns: Sequence[str]) -> dg.TableColumnLineage:
    """The lineage of the result's columns that come from a column of an input, with its name or with the name that a join gives it."""
    own = _unshaped(derived, columns) if isinstance(derived.shape, Shape) else columns
    return dg.TableColumnLineage({column: deps for column in own if (deps := _column_deps(engine, derived, column))})


def _unshaped(derived: DerivedAsset, columns: Sequence[str]) -> list[str]:
    """The columns that the table's shape does not change."""
    return [column for column in columns if isinstance(derived.shape, Shape) and column not in derived.shape.added]


def _column_deps(engine: EnginePort, derived: DerivedAsset, column: str) -> list[dg.TableColumnDep]:
    all_deps: list[dg.TableColumnDep] = []
    read = {name: _columns_read(derived, engine.sources[name]) for name in derived.inputs if name in engine.sources}
    for which, name in enumerate(derived.inputs):
        others = {c for n in read if n != name for c in read[n]} | {*_ENGINE_COLUMNS}
        unknown = any(n not in read for n in derived.inputs if n != name)  # a table may have a column of the same name
        deps = [
            dep
            for c, of in read.get(name, {}).items()
            if column == _result_name(derived, c, which, c in others) or (unknown and column == _result_name(derived, c, which, True))
            for dep in of
        ]
        all_deps += [dg.TableColumnDep(event_key(name), dep) for dep in deps]
    return all_deps


def _columns_read(derived: DerivedAsset, source: SourceContract) -> dict[str, list[str]]:
    """The columns of a source as the operator reads them, each with the source's columns from which it is computed."""
    own = source.struct.fieldNames()
    prepared = derived.prepare.get(source.name)
    columns = {column: [column] for column in own} if prepared is None else prepared.lineage(own, _ENGINE_COLUMNS)
    return columns | {column: [column] for column in _ENGINE_COLUMNS}


def _result_name(derived: DerivedAsset, column: str, which: int, shared: bool) -> str | None:
    """The result's name of a column of input `which`; None if the result has no column of this input."""
    name = derived.operator.traced(column)[which] if isinstance(derived.operator, TracesInputs) else column
    return name if shared or name is None else column
