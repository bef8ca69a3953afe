"""Which kinds of inputs an operator can read: rows of sources, final results, or the changes of an upserted table."""

from collections.abc import Mapping, Sequence
from itertools import chain

from assets.contract_checks import ContractError
from assets.contracts import DerivedAsset
from operators.contract import DecidesLateness
from operators.interval_join import IntervalJoin


def check_inputs(table: DerivedAsset, tables: Mapping[str, DerivedAsset]) -> None:
    """Raise if the operator of a table cannot read the kind of one of its inputs.

    Args:
        table: the table that reads.
        tables: all tables; other inputs are sources.

    Raises:
        ContractError: a windowed operator or a join reads an upserted table; a ranking of results reads a source; an operator that reads
            new rows reads final results, or several inputs; sessions read a source together with a table.
    """
    derived = [tables[name] for name in table.inputs if name in tables]
    if not table.operator.reads.closes_ranges:
        _check_new_rows(table, derived, tables)
        return
    kind = type(table.operator).__name__
    for name in table.inputs:
        if table.operator.reads.results and (name not in tables or isinstance(tables[name].operator, IntervalJoin)):
            problem = "has no windows" if name in tables else "is a source"
            legal = f"tables of windows: {kind} reads the results of a windowed operator, and {name!r} {problem}"
            raise _illegal(table, name, f"{legal}; give {kind} a window of its own")
    for of in derived:
        if of.operator.emits.upserts:
            why = f"the rows of {of.name!r} replace each other and are never final, so no time range of them can be read"
            raise _illegal(table, of.name, f"sources, and tables of final results; {why}: read {_listed(_sources(of, tables))}")
    if isinstance(table.operator, DecidesLateness) and table.operator.reads.recorded and 0 < len(derived) < len(table.inputs):
        names = ", ".join(of.name for of in derived)
        way_out = f"sessions decide for each batch which rows are late, and rows of {names} belong to no batch"
        raise _illegal(table, table.inputs, f"only sources, or only tables; {way_out}: read a table that is computed from the source")


def _check_new_rows(table: DerivedAsset, derived: Sequence[DerivedAsset], tables: Mapping[str, DerivedAsset]) -> None:
    if not derived:
        return
    [of, *_], kind = derived, type(table.operator).__name__
    if len(table.inputs) > 1:
        raise _illegal(table, table.inputs, f"sources, or one upserted table alone: {kind} reads its changes; join the inputs first")
    if not of.operator.emits.upserts:
        way_out = f"{kind} reads the rows of new batches, and the rows of {of.name!r} belong to no batch"
        raise _illegal(table, of.name, f"sources, or an upserted table; {way_out}: read {_listed(_sources(of, tables))}")
    if table.operator.reads.change is None:
        reads = (
            f"{kind} with `change`, the name of a column for the change kind,"
            if hasattr(table.operator, "change")
            else "a `TopN` with `change`"
        )
        why = f"the rows of {of.name!r} are updated and deleted, which {kind} does not read; {reads} reads them"
        raise _illegal(table, of.name, f"sources; {why}")
    if getattr(table.operator, "ttl", None) is not None:
        raise _illegal(table, of.name, f"sources: {kind} has a `ttl`, and the rows of the upserted table {of.name!r} have no event time")


def _sources(of: DerivedAsset, tables: Mapping[str, DerivedAsset]) -> list[str]:
    """The names of the sources from which a table is computed."""
    found = [_sources(tables[name], tables) if name in tables else [name] for name in of.inputs]
    return [*dict.fromkeys(chain.from_iterable(found))]


def _listed(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names))


def _illegal(table: DerivedAsset, value: object, legal: str) -> ContractError:
    return ContractError.bad_value("inputs", value, f"for {table.name!r}, {legal}")
