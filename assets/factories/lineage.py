"""The columns of a derived table as metadata: their types, and the input columns that they come from."""

from collections.abc import Sequence
from typing import Any

import dagster as dg

from assets.contracts import DerivedAsset
from assets.factories.keys import event_key
from assets.factories.metadata import table_schema
from assets.ports import EnginePort
from operators.contract import ARRIVAL, EVENT_TIME, SEQ, TracesInputs


def column_metadata(engine: EnginePort, derived: DerivedAsset) -> dict[str, Any]:
    """The schema and the lineage of a table that exists, as Dagster shows them."""
    frame = engine.views.table(derived.name)
    return {"dagster/column_schema": table_schema(frame.schema), "dagster/column_lineage": column_lineage(engine, derived, frame.columns)}


def column_lineage(engine: EnginePort, derived: DerivedAsset, columns: Sequence[str]) -> dg.TableColumnLineage:
    """The lineage of the result's columns that come from an input's column: under the same name, or under the name that a join gives it."""
    return dg.TableColumnLineage({column: found for column in columns if (found := _deps(engine, derived, column))})


def _deps(engine: EnginePort, derived: DerivedAsset, column: str) -> list[dg.TableColumnDep]:
    found: list[dg.TableColumnDep] = []
    for which, name in enumerate(derived.inputs):
        if name not in engine.sources:
            continue
        own = [*engine.sources[name].struct.fieldNames(), SEQ, ARRIVAL, EVENT_TIME]
        others = {c for n in derived.inputs if n != name and n in engine.sources for c in engine.sources[n].struct.fieldNames()} | {
            SEQ,
            ARRIVAL,
            EVENT_TIME,
        }
        found += [dg.TableColumnDep(event_key(name), c) for c in own if column == _named(derived, c, which, c in others)]
    return found


def _named(derived: DerivedAsset, column: str, which: int, shared: bool) -> str:
    operator = derived.operator
    return operator.traced(column)[which] if shared and isinstance(operator, TracesInputs) else column
