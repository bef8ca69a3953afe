"""Temporal operators for Spark: frozen, checked specs that are pure functions of DataFrames."""

from operators.changelog import difference, fold
from operators.contract import Accountable, Append, Closed, Entries, Folding, Operator, Touched, Upsert
from operators.errors import ColumnError, DurationError, OperatorError, StreamingError
from operators.interval_join import IntervalJoin
from operators.timing import ClosedRange, Interval

__all__ = [
    "Accountable",
    "Append",
    "Closed",
    "ClosedRange",
    "ColumnError",
    "DurationError",
    "Entries",
    "Folding",
    "Interval",
    "IntervalJoin",
    "Operator",
    "OperatorError",
    "StreamingError",
    "Touched",
    "Upsert",
    "difference",
    "fold",
]
