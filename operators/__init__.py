"""Temporal operators for Spark. Each is a frozen, validated specification that is called as a pure function of DataFrames."""

from operators.accounting import FindsPairs, TracesInputs
from operators.aggregate import Aggregate
from operators.as_of_join import AsOfJoin
from operators.changelog import difference, fold
from operators.cogroup import CoGroup
from operators.consecutive import Consecutive
from operators.contract import (
    NEVER_LATE,
    BoundsLateness,
    DecidesLateness,
    Early,
    EarlyByWindow,
    Incremental,
    KeepsRows,
    KeepsVersions,
    Operator,
)
from operators.count_windows import CountWindowAggregate
from operators.deduplicate import Deduplicate
from operators.errors import ColumnError, DurationError, OperatorError, StreamingError, TidemarkError, WindowError
from operators.evictors import CountEvictor, DeltaEvictor, Evictor, TimeEvictor
from operators.interval_join import IntervalJoin
from operators.process_count_window import ProcessCountWindow
from operators.process_window import ProcessWindow
from operators.select import Select
from operators.sql.errors import SqlError
from operators.sql.execution import sql
from operators.steps import Append, ByKey, ByTimeRange, Kept, NewRows, Upsert
from operators.timing import ClosedRange, Interval
from operators.top_k import TopK
from operators.top_n import TopN
from operators.triggers import EveryInterval, EveryRows, EveryStep, Trigger, TriggerContext
from operators.triggers import Moment as Moment
from operators.window_join import WindowJoin
from operators.windowed_aggregate import WindowedAggregate
from operators.windows import Cumulative, Session, Sliding, Tumbling

__all__ = [
    "NEVER_LATE",
    "Aggregate",
    "Append",
    "AsOfJoin",
    "BoundsLateness",
    "ByKey",
    "ByTimeRange",
    "ClosedRange",
    "CoGroup",
    "ColumnError",
    "Consecutive",
    "CountEvictor",
    "CountWindowAggregate",
    "Cumulative",
    "DecidesLateness",
    "Deduplicate",
    "DeltaEvictor",
    "DurationError",
    "Early",
    "EarlyByWindow",
    "EveryInterval",
    "EveryRows",
    "EveryStep",
    "Evictor",
    "FindsPairs",
    "Incremental",
    "Interval",
    "IntervalJoin",
    "KeepsRows",
    "KeepsVersions",
    "Kept",
    "NewRows",
    "Operator",
    "OperatorError",
    "ProcessCountWindow",
    "ProcessWindow",
    "Select",
    "Session",
    "Sliding",
    "SqlError",
    "StreamingError",
    "TidemarkError",
    "TimeEvictor",
    "TopK",
    "TopN",
    "TracesInputs",
    "Trigger",
    "TriggerContext",
    "Tumbling",
    "Upsert",
    "WindowError",
    "WindowJoin",
    "WindowedAggregate",
    "difference",
    "fold",
    "sql",
]
