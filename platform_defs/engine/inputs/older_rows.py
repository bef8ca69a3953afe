"""Reads the rows of a source in a span of time, and the older rows of new batches without other old rows of the log."""

from collections.abc import Callable

from pyspark.sql import DataFrame

from platform_defs.engine.inputs.span import Span
from platform_defs.engine.ledger.history import SourceHistory


def with_older_rows(read: Callable[[Span, int], DataFrame], span: Span, history: SourceHistory, after: int, head: int) -> DataFrame:
    """The rows in a span of event times up to batch `head`, and all earlier rows of the new batches `after < seq <= head`.

    Args:
        read: returns the rows in a span that are in batches after a given one and up to `head`.
        span: the span.
        history: the source's batches.
        after: the batch before the new ones.
        head: the last batch.
    """
    rows = read(span, 0)
    if span.first is None:
        return rows
    oldest = min(history.batches_with_rows(after, head)["first_event_time"].to_pylist(), default=span.first)
    return rows if oldest >= span.first else rows.unionByName(read(Span(oldest, span.first - 1), after))
