"""The columns of a derived table as metadata: their types, and the input columns that they come from."""

from collections.abc import Sequence
from typing import Any

import dagster as dg

from assets.contracts import DerivedAsset, SourceContract
from assets.factories.keys import event_key
from assets.factories.metadata import COLUMN_DESCRIPTIONS, table_schema
from assets.ports import EnginePort
from operators.contract import ARRIVAL, EVENT_TIME, SEQ, TracesInputs

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
    found: dict[str, str] = {}
    for name in derived.inputs:
        if name in engine.assets:
            found |= column_descriptions(engine, engine.assets[name], columns)
    comments = {(event_key(s.name), f.name): f.metadata.get("comment") for s in engine.sources.values() for f in s.struct.fields}
    for column, deps in column_lineage(engine, derived, columns).deps_by_column.items():
        text = comments.get((deps[0].asset_key, deps[0].column_name)) or COLUMN_DESCRIPTIONS.get(deps[0].column_name)
        if text and all(dep.column_name == deps[0].column_name for dep in deps):  # else it is computed from several columns
            found[column] = text
    computed = getattr(derived.operator, "aggregates", {})
    return {column: text for column, text in found.items() if column not in computed} | dict(derived.columns)


def column_lineage(engine: EnginePort, derived: DerivedAsset, columns: Sequence[str]) -> dg.TableColumnLineage:
    """The lineage of the result's columns that come from an input's column: under the same name, or under the name that a join gives it."""
    return dg.TableColumnLineage({column: found for column in columns if (found := _deps(engine, derived, column))})


def _deps(engine: EnginePort, derived: DerivedAsset, column: str) -> list[dg.TableColumnDep]:
    found: list[dg.TableColumnDep] = []
    read = {name: _columns_read(derived, engine.sources[name]) for name in derived.inputs if name in engine.sources}
    for which, name in enumerate(derived.inputs):
        others = {c for n in read if n != name for c in read[n]} | {*_ENGINE_COLUMNS}
        deps = [dep for c, of in read.get(name, {}).items() if column == _named(derived, c, which, c in others) for dep in of]
        found += [dg.TableColumnDep(event_key(name), dep) for dep in deps]
    return found


def _columns_read(derived: DerivedAsset, source: SourceContract) -> dict[str, list[str]]:
    """The columns of a source as the operator reads them, each with the source's columns from which it is computed."""
    own = source.struct.fieldNames()
    prepared = derived.prepare.get(source.name)
    columns = {column: [column] for column in own} if prepared is None else prepared.lineage(own, _ENGINE_COLUMNS)
    return columns | {column: [column] for column in _ENGINE_COLUMNS}


def _named(derived: DerivedAsset, column: str, which: int, shared: bool) -> str:
    operator = derived.operator
    return operator.traced(column)[which] if shared and isinstance(operator, TracesInputs) else column
