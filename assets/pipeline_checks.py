"""Checks of a pipeline's sources and tables against each other."""

from collections.abc import Mapping, Sequence
from typing import Any

from assets.contract_checks import ContractError
from assets.contracts import DerivedAsset, SourceContract
from assets.expressions import check_columns_exist, check_expression
from assets.names import first_twice, folded
from operators.changelog import CHANGE, CHANGED_AT, STEP
from operators.contract import ARRIVAL, EVENT_TIME, SEQ, NamesColumns
from operators.errors import OperatorError


def checked_tables(sources: Mapping[str, SourceContract], tables: Mapping[str, DerivedAsset]) -> dict[str, DerivedAsset]:
    """The tables, checked, each after those that it reads.

    Args:
        sources: the sources, by name.
        tables: the tables, by name, in any order.

    Raises:
        ContractError: two of them have the same name, an input does not exist, tables read each other in a circle, an operator does not
            accept the columns of its inputs or reads one that they do not have, or a result has a column that its changelog adds.
    """
    for name, named in [*sources.items(), *tables.items()]:
        if name != named.name:
            raise ContractError.bad_value("name", name, f"{named.name!r}, the name of the source or table under this key")
    if (again := first_twice([*sources, *tables])) is not None:
        raise ContractError.bad_value("name", again, "names of sources and tables that differ in more than case; rename one of the two")
    ordered = in_order(sources, tables)
    _check_changelogs(sources, ordered)
    _check_expressions(sources, ordered)
    return ordered


def in_order(sources: Mapping[str, SourceContract], assets: Mapping[str, DerivedAsset]) -> dict[str, DerivedAsset]:
    """The assets, each after those that it reads, and otherwise in the given order.

    Raises:
        ContractError: an input does not exist, or there is a circle.
    """
    ordered: dict[str, DerivedAsset] = {}

    def put(name: str, readers: Sequence[str]) -> None:
        if name in readers:
            circle = " -> ".join([*readers[readers.index(name) :], name])
            raise ContractError.bad_value(
                "inputs", circle, "assets that do not read each other in a circle; let one of these read a source"
            )
        if name in ordered or name in sources:
            return
        if name not in assets:
            legal = f"names of sources and tables: {', '.join([*sources, *assets])}"
            raise ContractError.bad_value("inputs", name, f"{legal}; {readers[-1]!r} reads it")
        for of in assets[name].inputs:
            put(of, [*readers, name])
        ordered[name] = assets[name]

    for name in assets:
        put(name, [])
    return ordered


def _check_changelogs(sources: Mapping[str, SourceContract], assets: Mapping[str, DerivedAsset]) -> None:
    """Raise if a result has a column that its changelog adds: the changelog could never be written."""
    known: dict[str, Sequence[str]] = {n: [*s.struct.fieldNames(), EVENT_TIME, SEQ, ARRIVAL] for n, s in sources.items()}
    for name, asset in assets.items():
        _check_kind_column(asset, assets, known)
        columns = _columns(asset, assets, known)
        if columns is None or not asset.operator.emits.upserts:
            continue
        known[name] = columns
        for column in columns:
            if folded(column) in (CHANGE, CHANGED_AT, STEP):
                kind = type(asset.operator).__name__
                way_out = f"rename it in the source's schema, or if it has change kinds, give its name to {kind} as `change`"
                legal = f"columns other than {CHANGE}, {CHANGED_AT} and {STEP}, which the changelog of {name!r} adds; {way_out}"
                raise ContractError.bad_value("operator", column, legal)


def _check_expressions(sources: Mapping[str, SourceContract], tables: Mapping[str, DerivedAsset]) -> None:
    """Raise if an operator of one input reads a column that the input does not have, as far as its columns are known."""
    known: dict[str, Sequence[str]] = {name: source.struct.fieldNames() for name, source in sources.items()}
    for name, table in tables.items():
        columns = known.get(table.inputs[0]) if len(table.inputs) == 1 else None
        if columns is None:
            continue
        operator: Any = table.operator
        added, of = [EVENT_TIME, SEQ, ARRIVAL, *filter(None, [operator.reads.change])], repr(table.inputs[0])
        by, order = getattr(operator, "by", ()), getattr(operator, "order", ())
        check_columns_exist("by", [by] if isinstance(by, str) else by, columns, of, added)
        check_columns_exist("order_by", [] if isinstance(order, str) else [o.column for o in order], columns, of, added)
        for expression in getattr(operator, "aggregates", {}).values():
            check_expression("aggregates", expression, columns, of, added)
        if isinstance(operator, NamesColumns) and table.shape is None:
            known[name] = operator.result_columns(columns)


def _columns(asset: DerivedAsset, assets: Mapping[str, DerivedAsset], known: Mapping[str, Sequence[str]]) -> Sequence[str] | None:
    """The columns of an asset's rows; None if they are known only from its rows.

    Raises:
        ContractError: the operator does not accept the columns of its inputs.
    """
    if not isinstance(asset.operator, NamesColumns) or not all(name in known for name in asset.inputs):
        return None
    kind = asset.operator.reads.change
    added = [kind] if kind else []
    try:
        found = asset.operator.result_columns(*[[*known[name], *(added if name in assets else [])] for name in asset.inputs])
    except OperatorError as error:
        legal = f"inputs whose columns the operator of {asset.name!r} accepts: {error}"
        raise ContractError.bad_value("inputs", asset.inputs, legal) from error
    return None if asset.shape else found


def _check_kind_column(asset: DerivedAsset, assets: Mapping[str, DerivedAsset], known: Mapping[str, Sequence[str]]) -> None:
    """Raise if the column in which an asset reads the change kind has the name of a column of the upstream table."""
    kind = asset.operator.reads.change
    for name in asset.inputs:
        if kind and name in assets and folded(kind) in map(folded, known.get(name, ())):
            legal = f"a name that is no column of {name!r}: {asset.name!r} reads the change kind of a row of {name!r} in it"
            raise ContractError.bad_value("change", kind, legal)
