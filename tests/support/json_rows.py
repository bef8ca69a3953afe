"""The rows of a frame as text, which is comparable for every type."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F


def json_rows(frame: DataFrame) -> list[str]:
    """Each row as a JSON object with its nulls, in order."""
    return sorted(row[0] for row in frame.select(F.to_json(F.struct("*"), {"ignoreNullFields": "false"})).collect())
