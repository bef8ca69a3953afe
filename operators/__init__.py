"""Temporal operators for Spark: frozen, checked specs that are pure functions of DataFrames."""

from operators.aggregate import Aggregate
from operators.changelog import difference, fold
from operators.cogroup import CoGroup
from operators.consecutive import Consecutive
from operators.contract import Accountable, Append, Closed, Early, Entries, Folding, Judging, Operator, Touched, Upsert
from operators.deduplicate import Deduplicate
from operators.errors import ColumnError, DurationError, OperatorError, StreamingError, WindowError
from operators.evictors import CountEvictor, TimeEvictor
from operators.interval_join import IntervalJoin
from operators.timing import ClosedRange, Interval
from operators.top_k import TopK
from operators.top_n import TopN
from operators.triggers import EveryInterval, EveryRows, EveryStep
from operators.window_join import WindowJoin
from operators.windowed_aggregate import WindowedAggregate
from operators.windows import Cumulative, Session, Sliding, Tumbling

__all__ = [
    "Accountable",
    "Aggregate",
    "Append",
    "Closed",
    "ClosedRange",
    "CoGroup",
    "ColumnError",
    "Consecutive",
    "CountEvictor",
    "Cumulative",
    "Deduplicate",
    "DurationError",
    "Early",
    "Entries",
    "EveryInterval",
    "EveryRows",
    "EveryStep",
    "Folding",
    "Interval",
    "IntervalJoin",
    "Judging",
    "Operator",
    "OperatorError",
    "Session",
    "Sliding",
    "StreamingError",
    "TimeEvictor",
    "TopK",
    "TopN",
    "Touched",
    "Tumbling",
    "Upsert",
    "WindowError",
    "WindowJoin",
    "WindowedAggregate",
    "difference",
    "fold",
]
