"""Runs SQL over tables of the lake without a Spark session, by Apache DataFusion, which deltalake contains."""

from collections.abc import Mapping

import pyarrow as pa
from deltalake import QueryBuilder
from deltalake.exceptions import DeltaError

from platform_defs.engine.lake.errors import LakeError
from platform_defs.engine.lake.missing_files import naming_lost_files
from platform_defs.engine.lake.tables import Lake


def sql_rows(lake: Lake, tables: Mapping[str, str], sql: str) -> pa.Table:
    """The result of a query.

    Args:
        lake: the lake, or a snapshot of it.
        tables: by the lower-case name that the query uses, the path of an existing table in the lake.
        sql: the query. It must not contain text from data.

    Raises:
        LakeError: a data file of a table is missing or damaged, or a table cannot be read for another reason.
    """
    try:
        with naming_lost_files(lake, tables.values()):
            builder = QueryBuilder()
            for name, table in tables.items():
                if (delta := lake.delta_for_reading(table)) is not None:
                    builder.register(name, delta)
            return pa.RecordBatchReader.from_stream(builder.execute(sql)).read_all()  # `pyarrow.table` loads pandas
    except (DeltaError, pa.ArrowException) as error:
        raise LakeError.not_read([*tables.values()], error) from error


def before_sql(time: str, before: int) -> str:
    """The condition that a column of times is before an instant (epoch ms), in the SQL of DataFusion."""
    return f"{time} < arrow_cast({before * 1_000}, 'Timestamp(Microsecond, Some(\"UTC\"))')"
