"""Checks that each operator can read its kinds of inputs: rows of sources, final results, or rows of upserted tables."""

from collections.abc import Mapping

from assets.contract_checks import ContractError
from assets.contracts import DerivedAsset
from assets.operator_parameters import has_ttl, is_purging
from operators.as_of_join import AsOfJoin
from operators.contract import DecidesLateness
from operators.interval_join import IntervalJoin
from operators.select import Select


def check_inputs(table: DerivedAsset, tables: Mapping[str, DerivedAsset]) -> None:
    """Raise if an operator cannot read an input of its kind.

    - A Structured Streaming query reads no table.
    - A ranking of windows reads only tables of windows, which have one result for each window.
    - An operator without closed ranges reads sources, or one table alone. With a TTL it reads no upserted table, and with a TTL in
      processing time no table.
    - Sessions read only sources, or only tables.
    - The versions of a join are not rows of an upserted table.
    - A join by arrival reads no table.

    Args:
        table: the table whose inputs are checked.
        tables: all tables, by name; an input that is not one of them is a source.

    Raises:
        ContractError: the table breaks one of these rules.
    """
    upstream_tables = [tables[name] for name in table.inputs if name in tables]
    if upstream_tables and table.streams_as == "query":
        reason = f"a query reads event logs, and {upstream_tables[0].name!r} is a table, whose results are corrected and rebuilt"
        raise ContractError.bad_value("streams_as", table.streams_as, f"'ranges' for table {table.name!r}: {reason}")
    if not table.operator.reads.closes_ranges:
        _check_new_rows(table, upstream_tables)
        return
    kind = type(table.operator).__name__
    for name in table.inputs:
        problem = _why_no_windows(tables[name]) if name in tables else "is a source"
        if table.operator.reads.results and problem:
            legal = f"tables of windows: {kind} reads the results of a windowed operator, and {name!r} {problem}"
            raise _illegal(table, name, f"{legal}; give {kind} a window of its own")
    _check_looked_up_inputs(table, tables)
    reads_both = 0 < len(upstream_tables) < len(table.inputs)
    if reads_both and isinstance(table.operator, DecidesLateness) and table.operator.reads.recorded:
        names = ", ".join(upstream.name for upstream in upstream_tables)
        reason = f"sessions decide for each batch which rows are late, and rows of {names} belong to no batch"
        way_out = "read a table that is computed from the source instead of the source"
        raise _illegal(table, table.inputs, f"only sources, or only tables; {reason}: {way_out}")


def _why_no_windows(upstream: DerivedAsset) -> str | None:
    """Why the results of a table cannot be ranked by their windows, as the end of a sentence about the table; None if they can."""
    if upstream.operator.emits.upserts or isinstance(upstream.operator, IntervalJoin | AsOfJoin | Select):
        return "has no windows"
    return "adds several results of a window, at different times" if is_purging(upstream.operator) else None


def _check_looked_up_inputs(table: DerivedAsset, tables: Mapping[str, DerivedAsset]) -> None:
    """Raise if the versions of a join are rows of an upserted table, or if a join by arrival reads a table."""
    reads, kind = table.operator.reads, type(table.operator).__name__
    for index, name in enumerate(table.inputs):
        if reads.is_versioned(index) and name in tables and tables[name].operator.emits.upserts:
            reason = f"{name!r} keeps only the current row of each key, and {kind} looks up earlier ones"
            raise _illegal(table, name, f"sources, and tables of final results; {reason}: read the source of the versions")
    upstream_names = [name for name in table.inputs if name in tables]
    if upstream_names and any(reads.is_by_arrival(index) for index in range(len(table.inputs))):
        reason = f"{kind} compares the batches in which rows arrived, and the rows of {upstream_names[0]!r} belong to no batch"
        raise _illegal(table, upstream_names[0], f"sources; {reason}: join by event time")


def _check_new_rows(table: DerivedAsset, upstream_tables: list[DerivedAsset]) -> None:
    """Raise if an operator without closed ranges reads a table and another input, or if its TTL cannot be computed from a table's rows."""
    if not upstream_tables:
        return
    kind = type(table.operator).__name__
    if len(table.inputs) > 1:
        raise _illegal(table, table.inputs, f"sources, or one table alone: {kind} reads its changes; join the inputs first")
    if not has_ttl(table.operator):
        return
    name, way_out = upstream_tables[0].name, "give the `ttl` to the operator that reads the source"
    if upstream_tables[0].operator.emits.upserts:
        reason = f"rows of the upserted table {name!r} are replaced and deleted, so they do not show when a key had its last row"
        raise _illegal(table, name, f"sources, and tables of final results: {kind} has a `ttl`, and {reason}; {way_out}")
    if (ttl_by := table.operator.reads.ttl_by) != "event":
        reason = f"rows of the table {name!r} belong to no batch, so they have no processing time"
        raise ContractError.bad_value("ttl_by", ttl_by, f"event, for {table.name!r}: {reason}; or {way_out}")


def _illegal(table: DerivedAsset, value: object, legal: str) -> ContractError:
    return ContractError.bad_value("inputs", value, f"for {table.name!r}, {legal}")
