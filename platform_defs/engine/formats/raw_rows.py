"""Raw rows: the common result of all formats' readers, for rows and for files without readable rows."""

from collections.abc import Collection, Sequence

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import AtomicType, DataType, StringType, StructField, StructType

from assets.contracts import SourceContract
from operators.engine_columns import ARRIVAL
from platform_defs.engine.formats.built_once import built_once
from platform_defs.engine.formats.files import File
from platform_defs.engine.formats.values import nullable
from platform_defs.safe_text import printable, shortened

RAW, PATH, MALFORMED = "_raw", "_path", "_malformed"
RECORD = "_record"
"""The column of a record's parts other than its value: a JSON object of texts, by column of the source."""
HEX = "hex:"
"""The prefix of an original row that is not text; its bytes in hexadecimal follow."""
HAS_NEW_COLUMNS = "it has columns that the contract does not name: "
TYPE_FAULT = "type: "
"""The prefix of a reader's reason to reject a row for a value of another type; any other reason means that the row cannot be parsed."""
_LONGEST_TYPE = 200
POSITION_BITS = 42
"""The number of low bits of `arrival`, which contain a row's position in its file or a record's offset. The file's rank is above them."""


def as_text(struct: StructType) -> StructType:
    """The schema with every atomic column as string, so that a value that cannot be cast can be reported; nested columns are nullable."""
    types = [StringType() if isinstance(f.dataType, AtomicType) else nullable(f.dataType) for f in struct.fields]
    return StructType([StructField(f.name, type_) for f, type_ in zip(struct.fields, types, strict=True)])


def type_fault(field: StructField, stored_type: DataType | None = None) -> str:
    """Why a row is rejected if its value in a column does not have the column's type.

    Args:
        field: the column.
        stored_type: the value's type in the file; None if the format has no types.
    """
    difference = "" if stored_type is None else f" but {shortened(printable(stored_type.simpleString()), _LONGEST_TYPE)}"
    fix = "; the first file with this column had that type: send it as that type, or under another name"
    return f"{TYPE_FAULT}{field.name} is no {field.dataType.simpleString()}{difference}{fix if SourceContract.is_added(field) else ''}"


def new_column_fault(contract: SourceContract, names: Sequence[str]) -> str | None:
    """Why rows with these columns are rejected; None unless some columns are new and the contract does not allow them."""
    declared = {c.lower() for c in contract.struct.fieldNames()}
    undeclared = [] if contract.new_columns == "ignore" else [n for n in names if n.lower() not in declared]
    return f"{HAS_NEW_COLUMNS}{', '.join(undeclared)}" if undeclared else None


def whole_files(spark: SparkSession, contract: SourceContract, files: Sequence[File], ordered: Sequence[File], reason: str) -> DataFrame:
    """One rejected row for each file of which no row is read, so that the file is in quarantine; its original row is the path."""
    paths = pa.array([f.path for f in files], pa.string())
    ranks = {f: n for n, f in enumerate(ordered)}
    positions = pa.array([ranks[f] << POSITION_BITS for f in files], pa.int64())
    return reject_rows(spark.createDataFrame(pa.table({"value": paths, PATH: paths, ARRIVAL: positions})), contract, reason)


def arrival(files: Sequence[File], ordered: Sequence[File], path: Column, position: Column) -> Column:
    """A row's position in the batch: the rank of its file, then its position in the file.

    Args:
        files: the files that are read.
        ordered: all files of the batch, in order.
        path: the path of the row's file, as in Spark's `_metadata.file_path`.
        position: the row's position in its file.
    """
    to_read = set(files)
    ranks = sorted((f.path, n) for n, f in enumerate(ordered) if f in to_read)
    return (F.shiftleft(_rank(path, ranks), POSITION_BITS) + position).alias(ARRIVAL)


def _rank(path: Column, ranks: Sequence[tuple[str, int]]) -> Column:
    """A path's rank, by binary search. It is computed for every row, and Spark would search a map by comparing all paths one by one."""
    if len(ranks) == 1:
        only_path, rank = ranks[0]
        unknown_file = F.raise_error(F.concat(F.lit("rows of a file that is not of this micro-batch: "), path)).cast("bigint")
        return F.when(path == only_path, F.lit(rank).cast("bigint")).otherwise(unknown_file)
    half = len(ranks) // 2
    return F.when(path < F.lit(ranks[half][0]), _rank(path, ranks[:half])).otherwise(_rank(path, ranks[half:]))


def reject_rows(rows: DataFrame, contract: SourceContract, reason: str) -> DataFrame:
    """Lines as rejected rows, all with the same reason."""
    columns = [F.lit(None).cast(f.dataType).alias(f.name) for f in as_text(contract.struct).fields]
    return rows.select(*columns, raw(), PATH, F.lit(reason).alias(MALFORMED), ARRIVAL)


def union(upper: DataFrame, lower: DataFrame) -> DataFrame:
    """The union of two frames; a column whose types differ becomes text."""
    differing = {f.name for f, g in zip(upper.schema, lower.schema, strict=True) if f.dataType != g.dataType}
    return _with_text(upper, differing).union(_with_text(lower, differing))


def _with_text(frame: DataFrame, columns: Collection[str]) -> DataFrame:
    return frame.select(*[F.col(c).cast("string").alias(c) if c in columns else F.col(c) for c in frame.columns]) if columns else frame


def record_of(rows: DataFrame) -> list[Column]:
    """The column `RECORD` as a list, which is empty if the rows do not have it."""
    return [F.col(RECORD)] if RECORD in rows.columns else []


def is_text() -> Column:
    """Whether a line is valid UTF-8."""
    return F.is_valid_utf8("value")


@built_once
def raw() -> Column:
    """The original line; its bytes in hexadecimal if it is not valid UTF-8."""
    return F.when(is_text(), F.col("value")).otherwise(F.concat(F.lit(HEX), F.hex(F.col("value").cast("binary")))).alias(RAW)
