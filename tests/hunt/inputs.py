"""The rows of inputs and tables from memory. Watermarks and the choice of batches with late rows are the engine's own."""

from typing import Any

from assets.contracts import DerivedAsset
from platform_defs.engine.accounting.counted_rows import _wide_span
from platform_defs.engine.accounting.day_accounts import Scope
from platform_defs.engine.advance.advance import Advance
from platform_defs.engine.inputs.span import ALL_TIMES, Span
from platform_defs.engine.inputs.timelines import operator_timeline
from platform_defs.engine.inputs.workspace import Workspace
from platform_defs.engine.ledger import watermarks
from platform_defs.engine.ledger.snapshot import last_with_rows
from tests.hunt.frames import COUNTS, LOG, PAIRS, Rows
from tests.hunt.lake import rows_of
from tests.hunt.operators import SimAsOf, SimJoin


def read_input(workspace: Workspace, asset: DerivedAsset, index: int, head: int, span: Span = ALL_TIMES, after: int = 0) -> Rows:
    """The rows of an input that are not late."""
    name = asset.inputs[index]
    if name in workspace.assets:
        return _read_results(workspace, name, span)
    return Rows(LOG, [row[:-1] for row in input_with_lateness(workspace, asset, index, head, span, after) if not row[-1]])


def input_with_lateness(workspace: Workspace, asset: DerivedAsset, index: int, head: int, span: Span = ALL_TIMES, after: int = 0) -> Rows:
    """All rows of an input, with whether each is late."""
    name = asset.inputs[index]
    if name in workspace.assets:
        rows = _read_results(workspace, name, span)
        return Rows((*rows.columns, "late"), [(*row, False) for row in rows])
    rows = _read_log(workspace, name, head, span, after)
    ends, timeline = (span.first, span.last), operator_timeline(workspace, asset)
    watermark_by_batch = watermarks.possibly_late_batches(workspace.ledger.source(name), timeline, after, head, ends)
    operator: Any = asset.operator
    return Rows((*LOG, "late"), [(*row, operator.is_late(row[2], watermark_by_batch.get(row[0]))) for row in rows])


def counted_inputs(advance: Advance, scope: Scope) -> list[Rows]:
    """The rows of each input that an account counts, with whether each is late."""
    workspace, asset, span = advance.workspace, advance.asset, _wide_span(advance, scope)
    return [input_with_lateness(workspace, asset, index, workspace.ledger.head, span) for index in range(len(asset.inputs))]


def read_table(workspace: Workspace, name: str, column: str, span: Span) -> Rows:
    """The rows of a table whose time in a column lies in a span; none if there is no table yet."""
    columns = PAIRS if isinstance(workspace.assets[name].operator, SimJoin | SimAsOf) else COUNTS
    return rows_of(workspace.lake, name, columns).between(column, span.first, span.last)


def _read_results(workspace: Workspace, name: str, span: Span) -> Rows:
    rows = read_table(workspace, name, "result_time", span)
    return Rows(tuple("event_time" if c == "result_time" else c for c in rows.columns), rows.rows)


def _read_log(workspace: Workspace, source: str, head: int, span: Span, after: int) -> Rows:
    lake: Any = workspace.lake
    memo, key = lake.sim.store.memo, ("last", id(workspace.ledger.history), source, head)
    if key not in memo:
        memo[key] = last_with_rows(workspace.ledger, source, head), workspace.ledger.history
    head = memo[key][0]
    rows = rows_of(lake, workspace.sources[source].log, LOG)
    return Rows(LOG, [row for row in rows.between("event_time", span.first, span.last) if after < row[0] <= head])
