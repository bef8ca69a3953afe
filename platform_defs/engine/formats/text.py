"""Reads the lines of text files, and makes raw rows of lines that were parsed.

Files are read line by line, so that the original text of a line that cannot be parsed can be quarantined.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructField

from assets.contracts import SourceContract
from operators.columns import quoted_name, temporary
from operators.engine_columns import ARRIVAL
from platform_defs.engine.formats.csv_style import HEADER, CsvStyle
from platform_defs.engine.formats.files import File
from platform_defs.engine.formats.opening import hadoop_path, read_files
from platform_defs.engine.formats.raw_rows import MALFORMED, PATH, arrival, as_text, is_text, raw, record_of

PARSED = temporary("parsed")
"""The column of a line's fields (struct)."""
CORRUPT = temporary("corrupt")
"""The field of `PARSED` in which Spark's parsers put a line that they cannot parse."""
BLANK = " \t\f\v"
"""The characters of a blank line."""
# A contract cannot change these options: with another mode a bad row would be dropped, or would stop the ingest.
_LENIENT = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT}
_MOST_HEADER_BYTES = 1 << 20
_FILE_PATH = "_metadata.file_path"
_SPLIT_START = "_metadata.file_block_start"
_NUMBER_IN_PARTITION = f"(monotonically_increasing_id() & {(1 << 33) - 1}L)"
_POSITION = f"{_SPLIT_START} + {_NUMBER_IN_PARTITION}"
"""The position of a line in its file: the first byte of its split, plus the line's number among all lines of its Spark partition.

Positions increase along a file. A partition may begin with lines of other files, but only before the last split of a file: Spark assigns
splits to partitions by their length, the longest first, so that each split of full length begins a partition.
"""
IN_FIRST_SPLIT = temporary("in_first_split")
"""The column with whether a line is in the first split of its file."""


@dataclass(frozen=True)
class LineColumns:
    """The columns that make raw rows of lines.

    Args:
        steps: by name, the columns to add, in this order: each may read the earlier ones. The last one is `PARSED`.
        malformed: the reason to reject a line, or null.
        fields: by name, the columns of the contract; they read `PARSED` and `MALFORMED`.
    """

    steps: Mapping[str, Column]
    malformed: Column
    fields: Mapping[str, Column]

    @classmethod
    def of(
        cls, contract: SourceContract, field_of: Mapping[str, str], steps: Mapping[str, Column], fault_if_corrupt: Column, *faults: Column
    ) -> "LineColumns":
        """The columns for a contract.

        Args:
            contract: the source's contract.
            field_of: by column of the contract, the field of `PARSED` with its value; a column without a field is null.
            steps: see the class.
            fault_if_corrupt: the reason for a line that cannot be parsed.
            faults: further reasons to reject a line, each null if it does not apply.
        """
        is_corrupt = F.col(PARSED).isNull() | F.col(f"{PARSED}.{CORRUPT}").isNotNull()
        malformed = F.coalesce(F.when(~is_text(), F.lit("not UTF-8")), F.when(is_corrupt, fault_if_corrupt), *faults)
        return cls(steps, malformed, {f.name: _field(field_of.get(f.name), f) for f in as_text(contract.struct).fields})


def parser_options(contract: SourceContract, defaults: Mapping[str, str]) -> dict[str, str]:
    """The options for a parser: a contract's options override the defaults, and `_LENIENT` overrides both. Names ignore case."""
    of_contract = {name.lower(): value for name, value in contract.options.items() if name.lower() != HEADER}
    return {name.lower(): value for name, value in defaults.items()} | of_contract | {n.lower(): v for n, v in _LENIENT.items()}


def json_options(contract: SourceContract) -> dict[str, str]:
    """The options for the parser of JSON."""
    return parser_options(contract, {"allowNonNumericNumbers": "false"})


def object_keys(options: Mapping[str, str]) -> Column:
    """The keys of a line's object. `json_object_keys` ignores the options, so it is null for a line that only they make legal."""
    keys = F.json_object_keys("value")
    if not any(name.startswith(("allow", "max")) and str(value).lower() != "false" for name, value in options.items()):
        return keys
    return F.coalesce(keys, F.map_keys(F.from_json("value", "map<string,string>", options)))


def lines(
    spark: SparkSession, files: Sequence[File], ordered: Sequence[File], blank: str = BLANK, *, with_split: bool = False
) -> DataFrame:
    """The lines that are not blank, as `value`, each with the path of its file, and its `arrival`, in which `_POSITION` is the position.

    Args:
        spark: the session.
        files: the files.
        ordered: all files of the batch, in order.
        blank: the characters of a blank line.
        with_split: whether to add the column `IN_FIRST_SPLIT`.
    """
    split = [F.expr(f"{_SPLIT_START} = 0").alias(IN_FIRST_SPLIT)] if with_split else []
    columns = "value", F.col(_FILE_PATH).alias(PATH), arrival(files, ordered, F.col(_FILE_PATH), F.expr(_POSITION)), *split
    all_lines = read_files(spark, files, lambda reader, paths: reader.text(paths).select(*columns))
    return all_lines.where(F.btrim("value", F.lit(blank)) != "")


def raw_rows_of(
    rows: DataFrame, columns: LineColumns, columns_of_parts: Mapping[str, Column] | None = None, overriding_fault: Column | None = None
) -> DataFrame:
    """Parsed lines as raw rows.

    Args:
        rows: the lines.
        columns: the columns that are made of the lines.
        columns_of_parts: by name, the raw values of columns that are not read from the line.
        overriding_fault: a reason to reject a line, or null; it takes precedence over all other reasons.
    """
    parts = columns_of_parts or {}
    for name, column in columns.steps.items():
        rows = rows.withColumn(name, column)
    malformed = columns.malformed if overriding_fault is None else F.coalesce(overriding_fault, columns.malformed)
    rows = rows.withColumn(MALFORMED, malformed)
    fields = [parts[name].alias(name) if name in parts else column for name, column in columns.fields.items()]
    return rows.select(*fields, raw(), PATH, MALFORMED, ARRIVAL, *record_of(rows))


def _field(parsed_name: str | None, field: StructField) -> Column:
    """The column of a field of the contract, whose value is the field `parsed_name` of `PARSED`; null without one."""
    if parsed_name is None:
        return F.lit(None).cast(field.dataType).alias(field.name)
    return F.when(F.col(MALFORMED).isNull(), F.col(f"{PARSED}.{quoted_name(parsed_name)}")).alias(field.name)


@dataclass(frozen=True)
class Header:
    """The first line of a file that is neither blank nor a comment, without a byte order mark.

    Args:
        line: the line; empty if the file has none.
        may_recur: whether a later line may be the same: one is the same, or only the start of the file was read.
    """

    line: str
    may_recur: bool


def header(spark: SparkSession, contract: SourceContract, file: File) -> Header:
    """A file's header; at most `_MOST_HEADER_BYTES` bytes are read."""
    path, conf = hadoop_path(spark, file)
    codec = cast(Any, spark._jvm).org.apache.hadoop.io.compress.CompressionCodecFactory(conf).getCodec(path)
    stream = path.getFileSystem(conf).open(path)
    try:
        start: bytes = (codec.createInputStream(stream) if codec else stream).readNBytes(_MOST_HEADER_BYTES)
    finally:
        stream.close()
    lines_at_start = re.split(r"[\r\n]+", start.decode("utf-8", "replace").removeprefix("\ufeff"))
    comment = CsvStyle.of(contract.options).comment
    first = next((line for line in lines_at_start if line.strip() and not (comment and line.startswith(comment))), "")
    is_repeated = sum(line.removeprefix("\ufeff") == first for line in lines_at_start) > 1
    return Header(first, is_repeated or len(start) == _MOST_HEADER_BYTES)


def is_header(line: str, may_recur: Sequence[File]) -> Column:
    """Whether a line is its file's header, and not a later line that equals the header.

    Args:
        line: the header.
        may_recur: the files in which a later line may equal the header; if there are any, the lines have `IN_FIRST_SPLIT`.
    """
    is_same = F.col("value").isin(line, f"\ufeff{line}")
    if not may_recur:
        return is_same
    # Each branch has its own counter, which Spark increases only for the lines for which it evaluates the branch: here, the lines of one
    # file that equal the header. The first of them has the number 0.
    branches = [(F.col(PATH) == file.path, F.expr(f"{_NUMBER_IN_PARTITION} = 0")) for file in may_recur]
    first_of_file = F.when(*branches[0])
    for branch in branches[1:]:
        first_of_file = first_of_file.when(*branch)
    return F.when(is_same, F.when(F.col(IN_FIRST_SPLIT), first_of_file.otherwise(True)).otherwise(False)).otherwise(False)
