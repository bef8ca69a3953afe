"""The late rows of a source, found without a Spark session: by the bounds that operators give, or by recorded lateness decisions."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Any

from pyspark.sql.types import StructField, StructType

from operators.contract import NEVER_LATE, late_before
from operators.engine_columns import ARRIVAL, EVENT_TIME, SEQ
from platform_defs.engine.advance.advance import Advance
from platform_defs.engine.formats.json_values import has_json_value, json_value
from platform_defs.engine.inputs.lateness_decisions import has_decisions
from platform_defs.engine.inputs.schemas import event_schema
from platform_defs.engine.inputs.timelines import operator_timeline
from platform_defs.engine.lake.sql_rows import sql_rows
from platform_defs.engine.ledger import watermarks
from platform_defs.engine.ledger.snapshot import last_with_rows

_EVENTS, _DECISIONS, _BOUNDS = "events", "decisions", "bounds"


@dataclass(frozen=True)
class LateRows:
    """Finds late rows.

    Args:
        snapshot: returns a snapshot of an asset and its inputs, which needs no session.
    """

    snapshot: Callable[[str], Advance]

    def __call__(self, asset: str, source: str, limit: int) -> tuple[int, list[dict[str, Any]]] | None:
        """The number of a source's rows that arrived too late for an asset, and the first of them.

        Args:
            asset: the asset.
            source: a source that it reads. If it reads the source twice, the rows are those that are late for the first of these inputs.
            limit: the maximum number of rows.

        Returns:
            The number of rows, and rows ordered by `seq` and `arrival`, as plain data that equals the JSON of `Views.late`. None if
            only Spark can find them: some rows may be late, and the asset prepares the source, its operator gives no bound
            (see `BoundsLateness`), or a column has a type or a value that only Spark converts.

        Raises:
            LakeError: the event log lacks a data file.
            LedgerError: the ledger lacks a batch that the asset has handled.
            ProgressError: the asset's table was made with other settings, or an input was replaced since.
        """
        advance = self.snapshot(asset)
        query = _query_of_decisions(advance, source) if advance.asset.operator.reads.recorded else _query_by_bounds(advance, source)
        if query is None:
            return 0, []
        if advance.asset.prepares(source) or not query.is_complete:
            return None
        return query.rows(advance, source, limit)


@dataclass(frozen=True)
class _Query:
    """A query of the late rows.

    Args:
        tables: the tables that it reads in addition to the event log.
        sql: the rest of the query, from its first join.
        is_complete: whether it finds all late rows; if not, only Spark can find them.
    """

    tables: Mapping[str, str]
    sql: str
    is_complete: bool = True

    def rows(self, advance: Advance, source: str, limit: int) -> tuple[int, list[dict[str, Any]]] | None:
        """The number of late rows and the first of them; None if only Spark can convert the rows to JSON."""
        lake, contract = advance.workspace.lake, advance.workspace.sources[source]
        tables = {_EVENTS: contract.log, **self.tables}
        stored_fields = {field.name.lower(): field for field in lake.schema(contract.log).fields}
        schema = StructType([StructField(f.name, stored_fields.get(f.name.lower(), f).dataType) for f in event_schema(contract).fields])
        if not has_json_value(schema):
            return None
        columns = [f"{_stored(stored_fields.get(name.lower()))} AS {_quoted(name)}" for name in schema.fieldNames()]
        condition = f"{self.sql} AND {_EVENTS}.{SEQ} <= {last_with_rows(advance.workspace.ledger, source)}"
        [row_count] = sql_rows(lake, tables, f"SELECT count(*) AS n FROM {_EVENTS} {condition}").to_pylist()
        first = f"ORDER BY {_EVENTS}.{SEQ}, {_EVENTS}.{ARRIVAL} LIMIT {limit}"
        late_rows = sql_rows(lake, tables, f"SELECT {', '.join(columns)} FROM {_EVENTS} {condition} {first}")
        try:
            return row_count["n"], [json_value(row, schema) for row in late_rows.to_pylist()]
        except (ValueError, OverflowError):  # a time that Python does not represent, or a float that Java versions write differently
            return None


def _stored(column: StructField | None) -> str:
    """A column of the event log in SQL; null if the log lacks it."""
    return "NULL" if column is None else f"{_EVENTS}.{_quoted(column.name)}"


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _query_by_bounds(advance: Advance, source: str) -> _Query | None:
    """A query of the rows with event times before the bound of their batch; None if there can be no such rows."""
    workspace, operator = advance.workspace, advance.asset.operator
    if operator.reads.is_by_arrival(advance.asset.inputs.index(source)):
        return None
    ledger, timeline = workspace.ledger, operator_timeline(workspace, advance.asset)
    watermark_by_batch = watermarks.possibly_late_batches(ledger.source(source), timeline, 0, ledger.head)
    bounds = {seq: late_before(operator, watermark) for seq, watermark in watermark_by_batch.items()}
    if None in bounds.values():
        return _Query({}, "", is_complete=False)
    bounds_with_late_rows = {seq: bound for seq, bound in bounds.items() if bound is not None and bound != NEVER_LATE}
    if not bounds_with_late_rows:
        return None
    joined = f"JOIN ({bounds_in_sql(bounds_with_late_rows)}) AS {_BOUNDS} ON {_EVENTS}.{SEQ} = {_BOUNDS}.batch"
    pruned = f"{_EVENTS}.{SEQ} >= {min(bounds_with_late_rows)} AND {_EVENTS}.{EVENT_TIME} < {_instant(max(bounds_with_late_rows.values()))}"
    return _Query({}, f"{joined} WHERE {_EVENTS}.{EVENT_TIME} < {_BOUNDS}.late_before AND {pruned}")


def bounds_in_sql(bounds: Mapping[int, int]) -> str:
    """A query for the columns `batch` and `late_before` of bounds.

    Successive batches with the same bound are one range, with the batches between them, which have no late rows. The ranges are in three
    text literals: a literal for each value would take seconds and much memory for a long ledger.

    Args:
        bounds: by the number of a batch that may contain late rows, ascending, the bound in epoch ms.
    """
    ranges = [(bound, [seq for seq, _ in batches]) for bound, batches in groupby(bounds.items(), key=itemgetter(1))]
    columns = {
        "first": (seqs[0] for _, seqs in ranges),
        "last": (seqs[-1] for _, seqs in ranges),
        "bound": (bound * 1000 for bound, _ in ranges),
    }
    lists = ", ".join(
        f"CAST(unnest(string_to_array('{' '.join(map(str, values))}', ' ')) AS BIGINT) AS {name}" for name, values in columns.items()
    )
    return f"SELECT unnest(generate_series(first, last)) AS batch, {_as_instant('bound')} AS late_before FROM (SELECT {lists}) AS ranges"


def _query_of_decisions(advance: Advance, source: str) -> _Query | None:
    """A query of the rows that were recorded as late; None if no decision was recorded."""
    if not has_decisions(advance.workspace.lake, advance.asset):
        return None
    joined = f"JOIN {_DECISIONS} ON {_EVENTS}.{SEQ} = {_DECISIONS}.{SEQ} AND {_EVENTS}.{ARRIVAL} = {_DECISIONS}.{ARRIVAL}"
    is_late = f"{_DECISIONS}.which = {advance.asset.inputs.index(source)} AND {_DECISIONS}.session IS NULL"
    return _Query({_DECISIONS: advance.asset.decisions}, f"{joined} WHERE {is_late}")


def _instant(epoch_ms: int) -> str:
    """An instant in SQL, of the type of a log's event times."""
    return _as_instant(str(epoch_ms * 1000))


def _as_instant(epoch_us: str) -> str:
    return f"""arrow_cast({epoch_us}, 'Timestamp(Microsecond, Some("UTC"))')"""
