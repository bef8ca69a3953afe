"""Rows with a column of each type that a table can have."""

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

EVERY_TYPE = {
    "k": "id",
    "tiny": "cast(id as tinyint)",
    "small": "cast(-id as smallint)",
    "number": "cast(id as int)",
    "flag": "id % 2 = 0",
    "single": "element_at(array(cast('NaN' as float), cast(-0.0 as float), cast(1.1 as float)), cast(id % 3 + 1 as int))",
    "double": "element_at(array(double('-Infinity'), double('NaN'), 0.1D, 1e-300D), cast(id % 4 + 1 as int))",
    "exact": "cast(id - 0.000000000000000001BD as decimal(38, 18))",
    "whole": "cast('98765432109876543210987654321098765432' as decimal(38, 0)) - id",
    "text": "if(id = 1, '', concat('é\\u0000\"', id))",
    "bytes": "cast(concat('x', id) as binary)",
    "day": "element_at(array(date'0001-01-01', date'1582-10-04', date'1969-12-31', date'9999-12-31'), cast(id % 4 + 1 as int))",
    "time": "timestamp'1969-12-31 23:59:59.999999Z' - make_dt_interval(cast(id * 7 as int), 1, 0, 0.000001)",
    "first_time": "if(id = 1, timestamp'0001-01-01 00:00:00.000001Z', timestamp'9999-12-31 23:59:59.999999Z')",
    "local_time": "if(id = 1, timestamp_ntz'1582-10-04 00:00:00', timestamp_ntz'1969-03-29 02:30:00.5')",
    "numbers": "array(id, null)",
    "entries": "map('a', cast(id as decimal(5, 2)), 'b', null)",
    "by_number": "map(cast(id as int), array(named_struct('at', timestamp'1969-07-20 20:17:40.123456Z')))",
    "nested": "named_struct('n', id, 'list', array(named_struct('d', date'1582-10-04', 'x', cast('Infinity' as double)), null))",
    "nothing": "cast(null as struct<a: int, m: map<string, binary>>)",
}


def rows_of_every_type(spark: SparkSession, first: int, end: int, **more: str) -> DataFrame:
    """Rows with a column of each type; every fifth row has only nulls, except for its key.

    Args:
        spark: the session.
        first: the key of the first row.
        end: the key of the last row, plus 1.
        more: the SQL of further columns, by name.
    """
    nullable = {name: sql if name == "k" else f"if(id % 5 = 4, null, {sql})" for name, sql in EVERY_TYPE.items()}
    return spark.range(first, end, 1, 1).select(*[F.expr(sql).alias(name) for name, sql in {**nullable, **more}.items()])
