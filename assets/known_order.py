"""Finds out whether the rows that a Top-N ranks only move up: a new row of a key then always comes before the row that it replaces.

A step of this Top-N need not read older rows. Rows only move up under these conditions:
- A `TopN` ranks the rows of an `Aggregate` table, without a preparation, and has the key of the `Aggregate` as its `unique_key`.
- It ranks them by columns of the key, and by columns whose values only move forward in its order: in descending order a count, a maximum,
  and a sum of values that a row rule keeps from being negative; in ascending order a minimum. Except for a count, nulls must come last,
  since a value is null until a row has one; in ascending order that needs `NULLS LAST`.
- Each update changes the order of its row. This is not needed if no two rows have the same order, or if they have the same rank (`rank`).
- The `Aggregate` reads sources only, without a TTL, and its table has all of its results.

A row may still move down in a step if the upstream table was repaired, or if rows were ingested before the rule existed. The engine
detects this, and computes the step from all rows.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from assets.contracts import DerivedAsset, SourceContract
from operators.aggregate import Aggregate
from operators.top_n import TopN

_NOT_NEGATIVE = re.compile(r"\s*`?(\w+)`?\s*>=?\s*\d+(?:\.\d+)?\s*")
"""The condition of a rule that keeps a column from being negative, such as `amount >= 0`."""


def with_known_order(table: DerivedAsset, tables: Mapping[str, DerivedAsset], sources: Mapping[str, SourceContract]) -> DerivedAsset:
    """The table. If its input guarantees that its rows only move up, its operator contains the reason (`TopN.rises`).

    Args:
        table: the table.
        tables: all tables, by name.
        sources: the sources, by name.
    """
    top, upstream = table.operator, tables.get(table.inputs[0])
    if not isinstance(top, TopN) or top.monotonic or not top.change or upstream is None or table.prepare:
        return table
    if not isinstance(upstream.operator, Aggregate) or not upstream.has_every_result or {*top.key} != {*upstream.operator.key}:
        return table
    if not {*upstream.inputs} <= {*sources}:  # rows of another table may be corrected or deleted, which can lower a count
        return table
    reason = _why_rows_rise(top, upstream.operator, _never_negative(upstream, sources))
    return replace(table, operator=replace(top, rises=f"in {upstream.name!r}, {reason}")) if reason else table


def _why_rows_rise(top: TopN, totals: Aggregate, never_negative: Collection[str]) -> str:
    """Why the rows of a ranking only move up; empty if they might not."""
    orders = [order for order in top.order if order.column not in totals.key]  # a row and the row that it replaces have the same key
    reasons = [totals.why_never_moves_back(o.column, never_negative, is_descending=o.descending, nulls_first=o.nulls_first) for o in orders]
    if not orders or not all(reasons):
        return ""
    has_no_ties = {*top.key} <= {*top.partition, *(order.column for order in top.order)}
    # If an update may leave the order of a row as it is, it may move the row to the end of its ties.
    changes_order = totals.always_changes_one_of([order.column for order in orders])
    return ", ".join(reasons) if has_no_ties or top.function == "rank" or changes_order else ""


def _never_negative(upstream: DerivedAsset, sources: Mapping[str, SourceContract]) -> Sequence[str]:
    """The columns, in lower case, of a table's source that a row rule keeps from being negative."""
    [source] = upstream.inputs
    # a preparation may compute another column under the name that a rule checks
    rules = [] if upstream.prepare else [rule for rule in sources[source].rules if rule.action != "warn"]
    matches = [_NOT_NEGATIVE.fullmatch(rule.condition) for rule in rules]
    return [match[1].lower() for match in matches if match]
