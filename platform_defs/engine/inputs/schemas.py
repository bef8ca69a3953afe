"""The schemas of the tables that ingest writes."""

from pyspark.sql.types import LongType, StructField, StructType, TimestampType

from assets.contracts import EVENT_TIME_RAW, SourceContract
from operators.engine_columns import ARRIVAL, EVENT_TIME, SEQ


def log_schema(contract: SourceContract) -> StructType:
    """The columns of an event log: the row's `seq` and `arrival`, its time, and the source's own columns."""
    columns = [StructField(f.name, f.dataType) for f in contract.struct.fields]
    return StructType(
        [
            StructField(SEQ, LongType()),
            StructField(ARRIVAL, LongType()),
            StructField(EVENT_TIME, TimestampType()),
            StructField(EVENT_TIME_RAW, TimestampType()),
            *columns,
        ]
    )


def event_schema(contract: SourceContract) -> StructType:
    """The columns of a source that an operator reads: those of the log without the raw time."""
    return StructType([f for f in log_schema(contract).fields if f.name != EVENT_TIME_RAW])
