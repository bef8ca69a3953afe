"""Which tables can read a source with a `retention`."""

from collections.abc import Mapping

from assets.contract_checks import ContractError
from assets.contracts import DerivedAsset, SourceContract
from assets.operator_parameters import has_ttl
from operators.timing import FOREVER


def check_retention(table: DerivedAsset, tables: Mapping[str, DerivedAsset], sources: Mapping[str, SourceContract]) -> None:
    """Raise if a table may read rows of any age of a source that has a `retention`, because no row could ever be removed.

    Args:
        table: the table.
        tables: all tables, by name.
        sources: the sources, by name.

    Raises:
        ContractError: the table reads such rows. The error names the source and the way out.
    """
    for index, name in enumerate(table.inputs):
        if name not in sources or sources[name].retention is None:
            continue
        if (reason := _reads_any_age(table, index) or _corrected_at_any_age(table, tables)) is not None:
            legal = f"None for source {name!r}: table {table.name!r} reads rows of any age, since {reason}"
            raise ContractError.bad_value("retention", sources[name].retention, legal)


def _reads_any_age(table: DerivedAsset, index: int) -> str | None:
    """Why the steps of a table may read rows of any age of an input; None if they do not."""
    reads, kind = table.operator.reads, type(table.operator).__name__
    if reads.merges_rows:
        if table.has_every_result:
            return None
        way_out = "remove the condition, and filter in the tables that read this one"
        return f"its `shape` leaves out results of {kind}, so a step must read every row of the keys that it computes; {way_out}"
    if not reads.closes_ranges:
        ttl = ", and a `ttl` does not end that: a key that never expires needs its first row for ever" if has_ttl(table.operator) else ""
        return f"{kind} reads all rows of a key again{ttl}; use a window, or an operator that merges new rows"
    if reads.is_by_arrival(index):
        return f"{kind} looks up versions by arrival; look them up by event time, with a `max_age`"
    if reads.lookback_of(index) is None:
        return f"{kind} looks up versions of any age; give it a `max_age`"
    if reads.lateness >= FOREVER:
        return f"{kind} joins late rows of any age; set an `allowed_lateness` instead of `late_rows='join'`"
    return None


def _corrected_at_any_age(table: DerivedAsset, tables: Mapping[str, DerivedAsset]) -> str | None:
    """Why results of a table may be corrected at any age; None if they are not."""
    if not table.operator.reads.closes_ranges:
        return None
    for name in (name for name in table.inputs if name in tables):
        upstream = tables[name]
        if upstream.operator.emits.upserts:
            return f"{name!r}, which it reads too, may change at any age; read a table of final results"
        if upstream.operator.reads.lateness >= FOREVER or _corrected_at_any_age(upstream, tables):
            return f"results of {name!r}, which it reads too, may be corrected at any age; read a table whose results are final"
    return None
