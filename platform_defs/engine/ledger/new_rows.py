"""Reads new rows of a ledger into columns, by source.

Operands are Arrow scalars: Arrow would load pandas for an operand that is a Python value (see `arrow_values`).
"""

from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass

import pyarrow as pa

from platform_defs.engine.ledger.arrow_values import arrow_array, arrow_scalar, cast_values
from platform_defs.engine.ledger.columns import pc
from platform_defs.engine.ledger.summary import Summary

_INT, _BOOL = pa.int64(), pa.bool_()
COLUMNS = (
    "seq",
    "kind",
    "source",
    "ingested_at",
    "clock",
    "watermark",
    "idle",
    "first_event_time",
    "last_event_time",
    "accepted",
    "rows_read",
    "quarantined",
    "spread",
    "summary",
)
"""The columns of a ledger that are read when it is opened."""
COLUMN_TYPES = {
    "seq": pa.int32(),
    "watermark": _INT,
    "idle": _BOOL,
    "idle_rule": pa.int32(),
    "first_event_time": _INT,
    "last_event_time": _INT,
    "accepted": _INT,
}
_INACTIVE, _SILENT, _SUMMARY = (arrow_scalar(kind, pa.string()) for kind in ("inactive", "silent", "summary"))
ACTIVE, IDLE_FIRST_RULE, IDLE_SECOND_RULE, IDLE = range(4)
"""Whether a batch records a source as active, or by which rule as idle (see `watermarks.table_idleness`). New batches use `IDLE`."""
_IDLE_RULES = [arrow_scalar(rule, pa.int32()) for rule in (ACTIVE, IDLE_FIRST_RULE, IDLE_SECOND_RULE, IDLE)]
_UNCHANGED, _ZERO = arrow_scalar(None, pa.int32()), arrow_scalar(0, _INT)
_SETS_WATERMARK = arrow_array(["watermark", "drain"], pa.string())
_KEEPS_IDLE_RULE = arrow_array(["retry", "summary"], pa.string())


@dataclass(frozen=True)
class NewSourceRows:
    """New rows of one source, by batch number.

    Args:
        columns: the columns of `COLUMN_TYPES`.
        spread: `seq` and `spread` of the batches that record quantiles of event times.
        active_in: the newest batch that read rows of the source, or set its watermark; None if there is none.
        rejected_in: the newest batch with quarantined rows; None if there is none.
        accepted_in: the newest batch with accepted rows; None if there is none.
    """

    columns: dict[str, pa.ChunkedArray]
    spread: pa.Table
    active_in: int | None
    rejected_in: int | None
    accepted_in: int | None


@dataclass(frozen=True)
class NewLedgerRows:
    """New rows of the ledger by source, and `seq`, `time` and `clock` of each batch.

    `are_consistent` is whether all rows of a batch have the same time, and all rows of a summary have the same document.
    """

    sources: dict[str, NewSourceRows]
    batches: pa.Table
    are_consistent: bool
    rows: int
    summary: Summary | None


def read_rows(parts: Iterable[pa.Table]) -> NewLedgerRows:
    """Group rows by source while they are read. Less than a third of each part is kept in memory."""
    parts_by_source: dict[str, list[NewSourceRows]] = {}
    batch_parts, rows, summaries = list[pa.Table](), 0, set[str]()
    for part in parts:
        rows += part.num_rows
        batch_parts.append(_drop_repeated(_batches(part)))
        summaries.update(pc.unique(part["summary"].drop_null()).to_pylist())
        for name in pc.unique(part["source"]):
            parts_by_source.setdefault(name.as_py(), []).append(_columns_of_source(part.filter(pc.equal(part["source"], name))))
    batches = _drop_repeated(_order_by_seq(pa.concat_tables(batch_parts))) if batch_parts else pa.table({})
    is_consistent = not rows or len(batches) == len(pc.unique(batches["seq"]))
    summary = _summary(summaries)
    is_consistent = is_consistent and len(summaries) == (0 if summary is None else 1)
    return NewLedgerRows(
        {name: _join_parts(source_parts) for name, source_parts in parts_by_source.items()}, batches, is_consistent, rows, summary
    )


def _summary(texts: Collection[str]) -> Summary | None:
    """The summary that the rows' JSON documents contain; None if there is none or it is damaged."""
    with suppress(ValueError):
        return Summary.parse(min(texts, default=""))
    return None


def _batches(part: pa.Table) -> pa.Table:
    clock = pc.coalesce(part["clock"], part["ingested_at"])
    return _order_by_seq(pa.table({"seq": part["seq"].cast(pa.int32()), "time": part["ingested_at"], "clock": clock}))


def _columns_of_source(rows: pa.Table) -> NewSourceRows:
    computed = {"idle_rule": _idle_rule, "accepted": _accepted_rows}
    columns = {name: cast_values(computed[name](rows) if name in computed else rows[name], kind) for name, kind in COLUMN_TYPES.items()}
    spread = rows.select(["seq", "spread"]).filter(pc.list_value_length(rows["spread"]).cast(_BOOL))
    is_active = pc.or_(rows["rows_read"].cast(_BOOL), pc.is_in(rows["kind"], value_set=_SETS_WATERMARK))
    is_batch = pc.not_equal(rows["kind"], _SUMMARY)

    def newest_with(mask: pa.ChunkedArray) -> int | None:
        return pc.max(rows["seq"].filter(pc.and_(is_batch, mask))).as_py()

    return NewSourceRows(
        columns,
        spread.set_column(0, "seq", spread["seq"].cast(pa.int32())),
        active_in=newest_with(is_active),
        rejected_in=newest_with(rows["quarantined"].cast(_BOOL)),
        accepted_in=newest_with(rows["accepted"].cast(_BOOL)),
    )


def _idle_rule(rows: pa.Table) -> pa.ChunkedArray:
    active, first, second, present = _IDLE_RULES
    earlier = pc.if_else(pc.equal(rows["kind"], _SILENT), second, first)
    rule = pc.if_else(rows["idle"].cast(_BOOL), pc.if_else(pc.equal(rows["kind"], _INACTIVE), present, earlier), active)
    return pc.if_else(pc.is_in(rows["kind"], value_set=_KEEPS_IDLE_RULE), _UNCHANGED, rule)


def _accepted_rows(rows: pa.Table) -> pa.ChunkedArray:
    return pc.if_else(pc.equal(rows["kind"], _SUMMARY), _ZERO, rows["accepted"])


def _join_parts(parts: Sequence[NewSourceRows]) -> NewSourceRows:
    """Join the parts of a source, ordered by batch. Columns are joined one after the other, to save memory."""
    parts = sorted(parts, key=lambda part: part.columns["seq"][0].as_py())
    seq = pa.chunked_array([chunk for part in parts for chunk in part.columns["seq"].chunks])
    order = None if is_rising(seq) else pc.sort_indices(seq)
    columns: dict[str, pa.ChunkedArray] = {}
    for name in COLUMN_TYPES:
        column = pa.chunked_array([chunk for part in parts for chunk in part.columns.pop(name).chunks])
        columns[name] = column if order is None else column.take(order)
    spread = _order_by_seq(pa.concat_tables([part.spread for part in parts]))
    return NewSourceRows(
        columns,
        spread,
        active_in=newest(*[part.active_in for part in parts]),
        rejected_in=newest(*[part.rejected_in for part in parts]),
        accepted_in=newest(*[part.accepted_in for part in parts]),
    )


def newest(*seqs: int | None) -> int | None:
    """The newest of batches; None if there is none."""
    return max((seq for seq in seqs if seq is not None), default=None)


def _drop_repeated(rows: pa.Table) -> pa.Table:
    """Ordered rows, without each row that is equal to the row before it."""
    if len(rows) < 2:
        return rows
    equals_previous = [pc.equal(column.slice(0, len(rows) - 1), column.slice(1)) for column in rows.columns]
    differs = pc.invert(pc.and_(pc.and_(equals_previous[0], equals_previous[1]), equals_previous[2]))
    return rows.filter(pa.chunked_array([*pc.is_valid(rows["seq"].slice(0, 1)).chunks, *differs.chunks]))


def _order_by_seq(rows: pa.Table) -> pa.Table:
    return rows if is_rising(rows["seq"]) else rows.sort_by("seq")


def is_rising(values: pa.ChunkedArray, strictly: bool = False) -> bool:
    """Whether no value is less than the one before it; with `strictly`, whether each value is greater."""
    compare = pc.less if strictly else pc.less_equal
    return len(values) < 2 or pc.all(compare(values.slice(0, len(values) - 1), values.slice(1))).as_py()
