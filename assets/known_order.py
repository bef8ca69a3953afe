"""Derives from the input of a Top-N that its rows only move up: a row that replaces another one comes before it in the order.

A step then need not read older rows. A count, a maximum, and a sum of values that a row rule keeps from being negative never fall. If a
`TopN` ranks the rows of an `Aggregate` table by such columns, its rows only move up. That may not hold for a step if the upstream table
was repaired, or if rows were ingested before the rule existed. The engine detects this and computes the step from all rows.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from assets.contracts import DerivedAsset, SourceContract
from operators.aggregate import Aggregate
from operators.top_n import TopN

_RULE = re.compile(r"\s*`?(\w+)`?\s*>=?\s*\d+(?:\.\d+)?\s*")


def with_known_order(table: DerivedAsset, tables: Mapping[str, DerivedAsset], sources: Mapping[str, SourceContract]) -> DerivedAsset:
    """A table whose Top-N records why its rows only move up, if that follows from its input; else the table itself.

    Args:
        table: the table.
        tables: all tables, by name.
        sources: the sources, by name.
    """
    top, upstream = table.operator, tables.get(table.inputs[0])
    if not isinstance(top, TopN) or top.improving or not top.change or upstream is None or table.prepare:
        return table
    if not isinstance(upstream.operator, Aggregate) or not upstream.has_every_result or {*top.key} != {*upstream.operator.key}:
        return table
    if not {*upstream.inputs} <= {*sources}:  # rows of a table may be corrected or deleted
        return table
    why = _why_rows_rise(top, upstream.operator, _never_negative(upstream, sources))
    return replace(table, operator=replace(top, rises=f"in {upstream.name!r}, {why}")) if why else table


def _why_rows_rise(top: TopN, totals: Aggregate, never_negative: Collection[str]) -> str:
    """Why the rows of a ranking only move up; empty if they might not."""
    values = [order for order in top.order if order.column not in totals.key]  # the columns of the key are those of the same row
    reasons = [totals.moves(o.column, never_negative, is_descending=o.descending, nulls_first=o.nulls_first) for o in values]
    if not values or not all(reasons):
        return ""
    is_total = {*top.key} <= {*top.partition, *(order.column for order in top.order)}
    changes_rank = totals.changes_only([order.column for order in values])
    return ", ".join(reasons) if is_total or top.function == "rank" or changes_rank else ""


def _never_negative(upstream: DerivedAsset, sources: Mapping[str, SourceContract]) -> Sequence[str]:
    """The columns of a table's source that a row rule keeps from being negative."""
    [source] = upstream.inputs
    rules = [] if upstream.prepare else [rule for rule in sources[source].rules if rule.action != "warn"]
    matches = [_RULE.fullmatch(rule.condition) for rule in rules]
    return [match[1].lower() for match in matches if match]
