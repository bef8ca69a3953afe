"""Derives from the input of a Top-N that a row which replaces another one comes before it, so that a step need not read older rows.

A count never falls, nor does a maximum, nor a sum of what a row rule keeps from being negative. If a `TopN` ranks the rows of an
`Aggregate` table by such columns, its rows only move up. If that does not hold for a step after all (the table upstream was repaired,
or rows were ingested before the rule existed), the engine finds it and computes the step from all rows.
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
    top, of = table.operator, tables.get(table.inputs[0])
    if not isinstance(top, TopN) or top.improving or not top.change or of is None or table.prepare:
        return table
    if not isinstance(of.operator, Aggregate) or of.shape or {*top.key} != {*of.operator.key}:
        return table
    if not {*of.inputs} <= {*sources}:  # rows of a table may be corrected or deleted
        return table
    why = _rises(top, of.operator, _never_negative(of, sources))
    return replace(table, operator=replace(top, rises=f"in {of.name!r}, {why}")) if why else table


def _rises(top: TopN, totals: Aggregate, never_negative: Collection[str]) -> str:
    """Why the rows of a ranking only move up; empty if they might not."""
    values = [order for order in top.order if order.column not in totals.key]  # the columns of the key are those of the same row
    reasons = [totals.moves(o.column, never_negative, is_descending=o.descending, nulls_first=o.nulls_first) for o in values]
    if not values or not all(reasons):
        return ""
    is_total = {*top.key} <= {*top.partition, *(order.column for order in top.order)}
    changes_rank = totals.changes_only([order.column for order in values])
    return ", ".join(reasons) if is_total or top.function == "rank" or changes_rank else ""


def _never_negative(of: DerivedAsset, sources: Mapping[str, SourceContract]) -> Sequence[str]:
    """The columns of a table's source that a row rule keeps from being negative."""
    [source] = of.inputs
    rules = [] if of.prepare else [rule for rule in sources[source].rules if rule.action != "warn"]
    found = [_RULE.fullmatch(rule.condition) for rule in rules]
    return [match[1].lower() for match in found if match]
