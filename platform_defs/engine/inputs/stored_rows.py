"""The rows of event logs and of tables, as they are stored."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from assets.contracts import EVENT_TIME_RAW
from operators.columns import parameter
from operators.engine_columns import EVENT_TIME, SEQ
from platform_defs.engine.inputs.retained import removed_rows_of
from platform_defs.engine.inputs.schemas import log_schema
from platform_defs.engine.inputs.span import ALL_TIMES, Span
from platform_defs.engine.inputs.workspace import Workspace
from platform_defs.engine.lake.small_queries import collect
from platform_defs.engine.ledger.columns import pc
from platform_defs.engine.ledger.snapshot import last_with_rows


def read_log(
    workspace: Workspace, source: str, head: int, span: Span = ALL_TIMES, after: int = 0, *, with_raw_time: bool = True
) -> DataFrame:
    """The rows of a source's event log in a span of event times, of the batches `after < seq <= head`.

    Rows after the newest of these batches that has rows of the source are uncommitted, and left out (see `last_with_rows`).
    """
    contract, seq = workspace.sources[source], F.col(SEQ)
    head = last_with_rows(workspace.ledger, source, head)
    ranges = {EVENT_TIME: (span.first, span.last), SEQ: (after + 1, head)}
    schema = StructType([field for field in log_schema(contract) if with_raw_time or field.name != EVENT_TIME_RAW])
    is_read = (seq <= parameter(head, SEQ)) & span.holds(EVENT_TIME)
    is_read = is_read & (seq > parameter(after, SEQ)) if after else is_read
    return workspace.lake.read(workspace.spark, contract.log, schema, ranges).where(is_read)


def rows_by_batch(workspace: Workspace, source: str, head: int, after: int) -> dict[int, int]:
    """The number of rows that `read_log` returns for each batch `after < seq <= head`."""
    last = last_with_rows(workspace.ledger, source, head)
    values = workspace.lake.few_numbers(workspace.sources[source].log, SEQ, {SEQ: (after + 1, last)})
    if values is None:
        return {row[SEQ]: row["count"] for row in collect(read_log(workspace, source, head, after=after).groupBy(SEQ).count())}
    counts = pc.value_counts(values.drop_null()).to_pylist()
    return {count["values"]: count["counts"] for count in counts if after < count["values"] <= last}


def first_batch_in_log(workspace: Workspace, source: str, upto: int | None = None) -> int | None:
    """The first batch up to `upto` (None: of all batches) of which the source's log still has rows; None if there is none."""
    removed, rows = removed_rows_of(workspace.lake, workspace.sources[source]), workspace.ledger.source(source).batches_with_rows(0, upto)
    batches = zip(*[rows[column].to_pylist() for column in ("seq", "accepted", "last_event_time")], strict=True)
    return next((seq for seq, accepted, last in batches if removed is None or removed.remaining_rows(seq, accepted, last)), None)


def read_table(workspace: Workspace, name: str, column: str, span: Span) -> DataFrame:
    """The rows of an existing table whose time in a column lies in a span."""
    return span.rows_of(workspace.lake.read(workspace.spark, name, within={column: (span.first, span.last)}), column)
