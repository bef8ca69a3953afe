"""Input files: found by Structured Streaming, read as raw rows with their place in the entry.

CSV and JSON are read as lines, so that what cannot be parsed can be kept as it came. CSV columns are taken by the
names in each file's own header; a line that repeats it is no row. A field may not hold a line break.
"""

import csv
import io
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import groupby
from pathlib import PurePosixPath
from typing import Any, cast
from urllib.parse import unquote

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import AtomicType, StringType, StructField, StructType

from assets.contracts import SourceContract
from operators.columns import temporary
from operators.contract import ARRIVAL

RAW, PATH, MALFORMED = "_raw", "_path", "_malformed"
_POSITION_BITS = 42
_CORRUPT = temporary("corrupt")
_PARSED = temporary("parsed")
_LISTING = "path string, modificationTime timestamp, length bigint, content binary"


@dataclass(frozen=True, order=True)
class File:
    """One input file, as it was when it was found.

    Args:
        modified: its modification time in epoch ms.
        path: its URI, as Spark's `_metadata.file_path` has it.
        length: its size in bytes.
        source: the source it belongs to.
    """

    modified: int
    path: str
    length: int
    source: str

    @property
    def offset(self) -> str:
        """What the ledger keeps of it."""
        return f"{self.path}|{self.modified}|{self.length}"

    @property
    def pattern(self) -> str:
        """The path as Spark's readers take it: decoded, and with nothing that a glob would read as a wildcard."""
        return re.sub(r"([*?\[\]{}\\])", r"\\\1", unquote(self.path))

    @property
    def suffix(self) -> str:
        """Its format's suffix, a compression's put aside."""
        suffixes = [s for s in PurePosixPath(self.path).suffixes if s not in (".gz", ".bz2", ".zst", ".snappy", ".lz4")]
        return suffixes[-1].lower() if suffixes else ""


def is_columnar(files: Sequence[File]) -> bool:
    """Whether all files have a format of which a reader may take single columns."""
    return all(f.suffix == ".parquet" for f in files)


def listing(spark: SparkSession, folder: str, source: str, max_files: int) -> DataFrame:
    """A stream of the files that appear in a folder; their content is not read."""
    reader = spark.readStream.format("binaryFile").schema(_LISTING).option("maxFilesPerTrigger", max_files)
    files = reader.option("recursiveFileLookup", "true").load(folder)
    modified = F.unix_millis("modificationTime").alias("modified")
    return files.select(F.lit(source).alias("source"), F.col("_metadata.file_path").alias("path"), modified, "length")


def read(spark: SparkSession, contract: SourceContract, files: Sequence[File]) -> DataFrame:
    """The files' rows, not judged yet.

    Returns:
        The contract's columns (atomic ones as string, or with their declared type where the file has it), `_raw` (the
        row as it came), `_path`, `_malformed` (why the row cannot be parsed, or null) and `arrival` (bigint: by
        modification time, path and position).
    """
    ordered = sorted(files)
    frames = [
        _FORMATS.get(suffix, _unknown)(spark, contract, list(group), ordered)
        for suffix, group in groupby(sorted(ordered, key=lambda f: f.suffix), key=lambda f: f.suffix)
    ]
    return reduce(_union, frames)


def as_text(struct: StructType) -> StructType:
    """The schema with every atomic column as string, so that each can be cast, and refused, on its own."""
    return StructType([StructField(f.name, StringType() if isinstance(f.dataType, AtomicType) else f.dataType) for f in struct.fields])


def _json(spark: SparkSession, contract: SourceContract, files: Sequence[File], ordered: Sequence[File]) -> DataFrame:
    schema = as_text(contract.struct).add(_CORRUPT, StringType())
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT, **contract.options}
    parsed = F.when(_is_alone(options), F.from_json("value", schema, options))
    return _parsed(_lines(spark, files, ordered), contract, parsed, "not a JSON object")


def _is_alone(options: Mapping[str, str]) -> Column:
    """Whether nothing follows a line's object: `from_json` would pass over it, another object too, without a word."""
    text = F.trim("value")
    elements = F.from_json(F.concat(F.lit("["), text, F.lit("]")), "array<string>", options)
    return (F.instr(text, "}") == F.length(text)) | F.coalesce(F.size(elements) == 1, F.lit(False))


def _csv(spark: SparkSession, contract: SourceContract, files: Sequence[File], ordered: Sequence[File]) -> DataFrame:
    """CSV files by the header each has: the files of one header are read together."""
    headers = {f: _first_line(spark, f) for f in files}
    frames: list[DataFrame] = []
    for header, group in groupby(sorted(files, key=lambda f: headers[f]), key=lambda f: headers[f]):
        lines = _lines(spark, list(group), ordered)
        frames.append(_csv_rows(lines.where(F.col("value") != header), contract, header))
    return reduce(DataFrame.unionByName, frames)


def _csv_rows(lines: DataFrame, contract: SourceContract, header: str) -> DataFrame:
    separator = contract.options.get("sep", ",")
    found = next(csv.reader(io.StringIO(header.removeprefix("\ufeff")), delimiter=separator), [])
    missing = [c for c in contract.struct.fieldNames() if c not in found]
    if missing or len(set(found)) != len(found):
        why = f"the file's header lacks {', '.join(missing)}" if missing else "the file's header holds a name twice"
        return _rejected(lines, contract, why)
    ddl = ", ".join(f"`{c.replace('`', '``')}` STRING" for c in [*found, _CORRUPT])
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT, "escape": '"', **contract.options}
    return _parsed(lines, contract, F.from_csv("value", ddl, options), f"not {len(found)} fields, as its file's header has")


def _parquet(spark: SparkSession, contract: SourceContract, files: Sequence[File], ordered: Sequence[File]) -> DataFrame:
    """Parquet files, those of one schema together; one that has none to read is one rejected row."""
    schemas = {f: _parquet_schema(spark, f) for f in files}
    frames: list[DataFrame] = []
    for schema, group in groupby(sorted(files, key=lambda f: schemas[f]), key=lambda f: schemas[f]):
        alike = list(group)
        frames.append(
            _parquet_rows(spark, contract, alike, ordered)
            if schema
            else _whole_files(spark, contract, alike, ordered, "the file cannot be read as Parquet")
        )
    return reduce(_union, frames)


def _parquet_schema(spark: SparkSession, file: File) -> str:
    """What a file's footer says of its columns; empty where there is no footer to read. No Spark job."""
    jvm = cast(Any, spark._jvm)
    hadoop = cast(Any, spark._jsparkSession).sessionState().newHadoopConf()
    try:
        reader = jvm.org.apache.parquet.hadoop.ParquetFileReader.open(
            jvm.org.apache.parquet.hadoop.util.HadoopInputFile.fromPath(jvm.org.apache.hadoop.fs.Path(jvm.java.net.URI(file.path)), hadoop)
        )
    except Py4JJavaError:
        return ""
    try:
        return str(reader.getFileMetaData().getSchema())
    finally:
        reader.close()


def _parquet_rows(spark: SparkSession, contract: SourceContract, files: Sequence[File], ordered: Sequence[File]) -> DataFrame:
    """The rows of files of one schema. A column of the declared type stays as it is; any other is text, to be cast and judged."""
    try:
        rows = spark.read.parquet(*[f.pattern for f in files])
    except (PySparkException, Py4JJavaError):
        return _whole_files(spark, contract, files, ordered, "the file cannot be read as Parquet")
    row = F.to_json(F.struct("*"), {"ignoreNullFields": "false"}).alias(RAW)
    names = {c.lower(): c for c in rows.columns}
    columns = [_as_declared(names.get(f.name.lower()), f, rows).alias(f.name) for f in contract.struct.fields]
    place = _arrival(files, ordered, F.col("_metadata.row_index"))
    return rows.select(*columns, row, F.col("_metadata.file_path").alias(PATH), F.lit(None).cast("string").alias(MALFORMED), place)


def _as_declared(name: str | None, declared: StructField, rows: DataFrame) -> Column:
    if name is None:
        return F.lit(None).cast(declared.dataType)
    if rows.schema[name].dataType == declared.dataType:
        return F.col(f"`{name}`")
    return F.col(f"`{name}`").cast("string" if isinstance(declared.dataType, AtomicType) else declared.dataType)


def _union(one: DataFrame, other: DataFrame) -> DataFrame:
    """The rows of two frames; a column that one of them has as text is text."""
    differing = {f.name for f, g in zip(one.schema, other.schema, strict=True) if f.dataType != g.dataType}
    return _with_text(one, differing).union(_with_text(other, differing))


def _with_text(frame: DataFrame, columns: Collection[str]) -> DataFrame:
    return frame.select(*[F.col(c).cast("string").alias(c) if c in columns else F.col(c) for c in frame.columns]) if columns else frame


def _unknown(spark: SparkSession, contract: SourceContract, files: Sequence[File], ordered: Sequence[File]) -> DataFrame:
    """Files of no format we know."""
    return _whole_files(spark, contract, files, ordered, "the file is not .csv, .json, .jsonl, .ndjson or .parquet")


def _whole_files(spark: SparkSession, contract: SourceContract, files: Sequence[File], ordered: Sequence[File], why: str) -> DataFrame:
    """Files that hold no row we can read: one rejected row a file, so that they are seen."""
    rows = [(f.path, f.path, ordered.index(f) << _POSITION_BITS) for f in files]
    return _rejected(spark.createDataFrame(rows, f"value string, {PATH} string, {ARRIVAL} bigint"), contract, why)


def _lines(spark: SparkSession, files: Sequence[File], ordered: Sequence[File]) -> DataFrame:
    """The lines that are not blank, each with its place: the split's start and the line's number below it."""
    start, path = F.col("_metadata.file_block_start"), F.col("_metadata.file_path")
    line = F.monotonically_increasing_id().bitwiseAND((1 << 33) - 1)
    lines = spark.read.text([f.pattern for f in files]).select("value", path.alias(PATH), _arrival(files, ordered, start + line))
    return lines.where(F.trim("value") != "")


def _arrival(files: Sequence[File], ordered: Sequence[File], position: Column) -> Column:
    ranks = sorted((f.path, n) for n, f in enumerate(ordered) if f in set(files))
    return (F.shiftleft(_rank(F.col("_metadata.file_path"), ranks), _POSITION_BITS) + position).alias(ARRIVAL)


def _rank(path: Column, ranks: Sequence[tuple[str, int]]) -> Column:
    """A path's rank by binary search: it is looked up for every row, and a map would compare path by path."""
    if len(ranks) == 1:
        return F.lit(ranks[0][1]).cast("bigint")
    half = len(ranks) // 2
    return F.when(path < F.lit(ranks[half][0]), _rank(path, ranks[:half])).otherwise(_rank(path, ranks[half:]))


def _parsed(lines: DataFrame, contract: SourceContract, parsed: Column, why: str) -> DataFrame:
    rows = lines.withColumn(_PARSED, parsed)
    broken = F.col(_PARSED).isNull() | F.col(f"{_PARSED}.{_CORRUPT}").isNotNull()
    columns = [F.when(~broken, F.col(f"{_PARSED}.`{c}`")).alias(c) for c in contract.struct.fieldNames()]
    return rows.select(*columns, F.col("value").alias(RAW), PATH, F.when(broken, F.lit(why)).alias(MALFORMED), ARRIVAL)


def _rejected(lines: DataFrame, contract: SourceContract, why: str) -> DataFrame:
    columns = [F.lit(None).cast(f.dataType).alias(f.name) for f in as_text(contract.struct).fields]
    return lines.select(*columns, F.col("value").alias(RAW), PATH, F.lit(why).alias(MALFORMED), ARRIVAL)


def _first_line(spark: SparkSession, file: File) -> str:
    first = spark.read.text(file.pattern).where(F.trim("value") != "").limit(1).collect()
    return first[0].value if first else ""


_FORMATS: dict[str, Callable[[SparkSession, SourceContract, Sequence[File], Sequence[File]], DataFrame]] = {
    ".csv": _csv,
    ".json": _json,
    ".jsonl": _json,
    ".ndjson": _json,
    ".parquet": _parquet,
}
