"""Checks of a pipeline's sources and tables against each other."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from assets.contract_checks import ContractError
from assets.contracts import DerivedAsset, SourceContract
from assets.input_checks import check_inputs
from assets.known_order import with_known_order
from assets.names import first_duplicate, fold_case
from assets.operator_columns import check_columns_of_input, check_columns_of_sides
from assets.operator_parameters import is_by_arrival
from assets.retention_checks import check_retention
from assets.shape import Shape
from operators.aggregate import Aggregate
from operators.changelog import CHANGE, CHANGED_AT, STEP
from operators.columns import FINAL_AT, RESULT_TIME
from operators.contract import NamesColumns
from operators.engine_columns import ARRIVAL, EVENT_TIME, SEQ
from operators.errors import OperatorError, did_you_mean

_REFUSED_BY_DELTA = frozenset(" ,;{}()\n\t=")


def checked_tables(sources: Mapping[str, SourceContract], tables: Mapping[str, DerivedAsset]) -> dict[str, DerivedAsset]:
    """The tables, checked, each after those that it reads.

    Args:
        sources: the sources, by name.
        tables: the tables, by name, in any order.

    Raises:
        ContractError: two of them have the same name; an input does not exist; tables read each other in a cycle; a table prepares
            a name that is not an input, or describes a column that it does not have; an operator cannot read an input of its kind, reads
            rows of any age of a source with a `retention`, does not accept the columns or the types of its inputs, or reads a column
            that they do not have; a result has a column that Delta refuses or that its changelog adds; or a row of an upserted table
            would have no key.
    """
    for name, definition in [*sources.items(), *tables.items()]:
        if name != definition.name:
            raise ContractError.bad_value("name", name, f"{definition.name!r}, the name of the source or table under this key")
    if (duplicate := first_duplicate([*sources, *tables])) is not None:
        raise ContractError.bad_value("name", duplicate, "names of sources and tables that differ in more than case; rename one of the two")
    ordered = in_order(sources, tables)
    columns_by_name: dict[str, Sequence[str]] = {name: source.struct.fieldNames() for name, source in sources.items()}
    for name, table in ordered.items():
        check_inputs(table, tables)
        check_retention(table, ordered, sources)
        with _naming_table(table):
            _check_preparations(table, ordered, columns_by_name)
        _check_kind_column(table, ordered, columns_by_name)
        _check_rows_of_tables(table, ordered, columns_by_name)
        with _naming_table(table):
            _check_columns_read(table, ordered, columns_by_name)
        columns = _result_columns(table, ordered, columns_by_name)
        with _naming_table(table):
            _check_types(table, sources)
        if columns is None:
            continue
        with _naming_table(table):
            _check_names(columns)
        _check_described(table, columns)
        columns_by_name[name] = _readable(table, columns)
        if table.operator.emits.upserts:
            _check_changelog(table, columns)
            _check_key(table, columns)
    return {name: with_known_order(table, ordered, sources) for name, table in ordered.items()}


def columns_of_tables(sources: Mapping[str, SourceContract], ordered: Mapping[str, DerivedAsset]) -> dict[str, Sequence[str]]:
    """The columns of each table whose columns are known without its rows, by the table's name.

    Args:
        sources: the sources, by name.
        ordered: the tables as `checked_tables` returns them.
    """
    columns_by_name: dict[str, Sequence[str]] = {name: source.struct.fieldNames() for name, source in sources.items()}
    columns_by_table: dict[str, Sequence[str]] = {}
    for name, table in ordered.items():
        columns = _result_columns(table, ordered, columns_by_name)
        if columns is not None:
            columns_by_table[name], columns_by_name[name] = columns, _readable(table, columns)
    return columns_by_table


def _readable(table: DerivedAsset, columns: Sequence[str]) -> Sequence[str]:
    """The columns of a table that its readers can use, except those that the engine adds."""
    return columns if table.operator.emits.upserts else [c for c in columns if c not in (EVENT_TIME, RESULT_TIME, FINAL_AT)]


def in_order(sources: Mapping[str, SourceContract], assets: Mapping[str, DerivedAsset]) -> dict[str, DerivedAsset]:
    """The assets, each after those that it reads, and otherwise in the given order.

    Raises:
        ContractError: an input does not exist, or there is a cycle.
    """
    ordered: dict[str, DerivedAsset] = {}

    def visit(name: str, readers: Sequence[str]) -> None:
        if name in readers:
            cycle = " -> ".join([*readers[readers.index(name) :], name])
            raise ContractError.bad_value("inputs", cycle, "assets that do not read each other in a cycle; let one of these read a source")
        if name in ordered or name in sources:
            return
        if name not in assets:
            candidates = [candidate for candidate in (*sources, *assets) if candidate not in readers]
            legal = f"names of sources and tables: {', '.join([*sources, *assets])}"
            raise ContractError.bad_value("inputs", name, f"{legal}; {readers[-1]!r} reads it{did_you_mean(name, candidates)}")
        for input_name in assets[name].inputs:
            visit(input_name, [*readers, name])
        ordered[name] = assets[name]

    for name in assets:
        visit(name, [])
    return ordered


@contextmanager
def _naming_table(table: DerivedAsset) -> Iterator[None]:
    """Put the name of the table before a contract error: a pipeline can have the same parameter and value in several tables."""
    try:
        yield
    except ContractError as error:
        raise ContractError(f"table {table.name!r}: {error}") from error


def _check_preparations(table: DerivedAsset, tables: Mapping[str, DerivedAsset], columns_by_name: Mapping[str, Sequence[str]]) -> None:
    """Raise if a table prepares a name that is not an input, or one input under two names, or if a preparation reads an unknown column."""
    is_self_join = len({*table.inputs}) < len(table.inputs)
    keys = [*dict.fromkeys(table.inputs), *(table.operator.inputs if is_self_join else ())]
    for key in table.prepare:
        if key not in keys:
            legal = f"names of the table's inputs: {', '.join(keys)}{did_you_mean(key, keys)}"
            raise ContractError.bad_value("prepare", key, legal)
    if unused := [key for key in table.prepare if key not in map(table.preparation_key, range(len(table.inputs)))]:
        legal = f"either {unused[0]!r} for both sides, or only {' and '.join(table.operator.inputs)}"
        raise ContractError.bad_value("prepare", unused[0], legal)
    for index, name in enumerate(table.inputs):
        if (preparation := table.preparation(index)) is not None and name in columns_by_name:
            preparation.check(columns_by_name[name], repr(name), _engine_columns(table, tables.get(name)))


def _check_names(columns: Sequence[str]) -> None:
    """Raise if Delta refuses the name of a result's column: no step could write the table."""
    for column in columns:
        if not _REFUSED_BY_DELTA.isdisjoint(column):
            legal = "names of columns without white space and , ; { } ( ) =, which Delta refuses; rename it"
            raise ContractError.bad_value("operator", column, legal)


def _check_described(table: DerivedAsset, columns: Sequence[str]) -> None:
    """Raise if a table describes a column that it does not have."""
    for name in table.columns:
        if name not in columns:
            raise ContractError.bad_value("columns", name, f"columns of {table.name!r}: {', '.join(columns)}{did_you_mean(name, columns)}")


def _check_changelog(table: DerivedAsset, columns: Sequence[str]) -> None:
    """Raise if a result has a column that its changelog adds: the changelog could never be written."""
    for column in columns:
        if fold_case(column) in (CHANGE, CHANGED_AT, STEP):
            kind = type(table.operator).__name__
            way_out = f"rename it in the source's schema, or if it has change kinds, give its name to {kind} as `change`"
            legal = f"columns other than {CHANGE}, {CHANGED_AT} and {STEP}, which the changelog of {table.name!r} adds; {way_out}"
            raise ContractError.bad_value("operator", column, legal)


def _check_columns_read(table: DerivedAsset, tables: Mapping[str, DerivedAsset], columns_by_name: Mapping[str, Sequence[str]]) -> None:
    """Raise if an operator reads a column that its inputs do not have, as far as their columns are known."""
    if not all(name in columns_by_name for name in table.inputs):
        return
    owners = [repr(name) + (" as prepared" if table.preparation(index) else "") for index, name in enumerate(table.inputs)]
    [source, *other_inputs] = table.inputs
    if other_inputs:
        columns = [_all_columns(table, index, tables.get(name), columns_by_name[name]) for index, name in enumerate(table.inputs)]
        check_columns_of_sides(table.operator, columns, owners)
        return
    columns_read = table.columns_read(0, columns_by_name[source])
    check_columns_of_input(table.operator, columns_read, owners[0], _engine_columns(table, tables.get(source)))


def _check_types(table: DerivedAsset, sources: Mapping[str, SourceContract]) -> None:
    """Raise if the operator certainly cannot aggregate columns of the types that a source's contract declares."""
    [source, *_] = table.inputs
    if isinstance(table.operator, Aggregate) and source in sources and not table.prepare:
        try:
            table.operator.check_types(sources[source].struct)
        except OperatorError as error:
            raise ContractError(str(error)) from error


def _result_columns(
    asset: DerivedAsset, assets: Mapping[str, DerivedAsset], columns_by_name: Mapping[str, Sequence[str]]
) -> Sequence[str] | None:
    """The columns of an asset's rows; None if they are known only from its rows.

    Raises:
        ContractError: the operator does not accept the columns of its inputs.
    """
    if not isinstance(asset.operator, NamesColumns) or not all(name in columns_by_name for name in asset.inputs):
        return None
    columns_by_input = [_all_columns(asset, index, assets.get(name), columns_by_name[name]) for index, name in enumerate(asset.inputs)]
    try:
        columns = asset.operator.result_columns(*columns_by_input)
    except OperatorError as error:
        legal = f"inputs whose columns the operator of {asset.name!r} accepts: {error}"
        raise ContractError.bad_value("inputs", asset.inputs, legal) from error
    return None if columns is None else _shaped_columns(asset, columns)


def _shaped_columns(asset: DerivedAsset, results: Sequence[str]) -> Sequence[str] | None:
    """The columns of an asset's rows; None if a function makes them of the results.

    Raises:
        ContractError: the shape reads a column that results do not have, or adds one that they have.
    """
    if not isinstance(asset.shape, Shape):
        return None if asset.shape else results
    with _naming_table(asset):
        asset.shape.check(results, f"the results of {asset.name!r}", ())
        if (duplicate := first_duplicate([*results, *asset.shape.added])) is not None:
            raise ContractError.bad_value("select", duplicate, f"names that are no column of the operator's results: {', '.join(results)}")
    return [*results, *asset.shape.added]


def _engine_columns(reader: DerivedAsset, upstream: DerivedAsset | None) -> list[str]:
    """The columns that the engine adds to an input: a source (`upstream` is None), final results, or an upserted table."""
    if upstream is None:
        return [EVENT_TIME, SEQ, ARRIVAL]
    kind = [*filter(None, [reader.operator.reads.change])]
    return kind if upstream.operator.emits.upserts else [EVENT_TIME, *kind]


def _all_columns(reader: DerivedAsset, index: int, upstream: DerivedAsset | None, columns: Sequence[str]) -> list[str]:
    """The columns of an input that an operator reads, with those that the engine adds or keeps: a preparation keeps `event_time`.

    Args:
        reader: the asset that reads.
        index: the input's index.
        upstream: the table, if the input is one.
        columns: the columns of its rows.
    """
    columns_read = reader.columns_read(index, columns)
    kept = [EVENT_TIME] if EVENT_TIME in columns and EVENT_TIME not in columns_read else []
    return [*columns_read, *kept, *_engine_columns(reader, upstream)]


def _check_rows_of_tables(asset: DerivedAsset, assets: Mapping[str, DerivedAsset], columns_by_name: Mapping[str, Sequence[str]]) -> None:
    """Raise if an asset needs a column of an input table that the table's rows do not have: the event time, or the order of arrival."""
    kind = type(asset.operator).__name__
    for index, name in enumerate(asset.inputs):
        if name not in assets or name not in columns_by_name:
            continue
        columns = _all_columns(asset, index, assets[name], columns_by_name[name])
        if asset.operator.reads.closes_ranges and EVENT_TIME not in columns:
            way_out = f"let {name!r} have it, for example as an aggregate: {EVENT_TIME}: max({EVENT_TIME})"
            legal = f"tables whose rows have an {EVENT_TIME!r}, by which {kind} reads them; {way_out}"
            raise ContractError.bad_value("inputs", name, f"for {asset.name!r}, {legal}")
        if is_by_arrival(asset.operator) and not {SEQ, ARRIVAL} <= {*columns}:
            legal = f"event_time: rows of the table {name!r} have no order of arrival ({SEQ} and {ARRIVAL})"
            raise ContractError.bad_value("order", ARRIVAL, f"for {asset.name!r}, {legal}")


def _check_key(asset: DerivedAsset, columns: Sequence[str]) -> None:
    """Raise if a row of an upserted table would have no key."""
    missing = [c for c in asset.operator.emits.key if c not in columns]
    if missing:
        kind = type(asset.operator).__name__
        legal = f"a {kind} whose rows have a key: {', '.join(missing)} are columns of rows of sources only; give it a `unique_key`"
        raise ContractError.bad_value("operator", kind, f"for {asset.name!r}, {legal}, or the rank of `row_number`")


def _check_kind_column(asset: DerivedAsset, assets: Mapping[str, DerivedAsset], columns_by_name: Mapping[str, Sequence[str]]) -> None:
    """Raise if the column in which an asset reads the change kind has the name of a column of the upstream table."""
    kind = asset.operator.reads.change
    for name in asset.inputs:
        if kind and name in assets and fold_case(kind) in map(fold_case, columns_by_name.get(name, ())):
            legal = f"a name that is no column of {name!r}: {asset.name!r} reads the change kind of a row of {name!r} in it"
            raise ContractError.bad_value("change", kind, legal)
