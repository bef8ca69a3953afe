"""Reads CSV files.

Columns are matched by the names in each file's header; case is ignored. A later line that is the same as the header is a row, as in Spark.
With the option `header` = `false` a file has no header, and its fields are the columns of the contract's schema in order. A field must not
contain a line break. With the option `comment`, lines that begin with its character are skipped.
"""

from collections.abc import Sequence
from functools import reduce
from itertools import groupby

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import AtomicType

from assets.contracts import SourceContract
from operators.columns import quoted
from platform_defs.engine.formats.built_once import built_once
from platform_defs.engine.formats.csv_style import CsvStyle, header_names
from platform_defs.engine.formats.files import File
from platform_defs.engine.formats.raw_rows import new_column_fault, reject_rows
from platform_defs.engine.formats.text import BLANK, CORRUPT, PARSED, LineColumns, header, is_header, lines, parser_options, raw_rows_of

_NO_HEADER = "for files without a header, set the source's option `header` to `false`"
HEADER_FAULT = "the file's header"
"""The prefix of the fault of each line of a file whose header is not usable. The first of these lines is the header itself."""
_MOST_FIELDS = 20_000  # Spark's parser fails with more than 20,480


def csv_rows(spark: SparkSession, contract: SourceContract, files: Sequence[File], ordered: Sequence[File]) -> DataFrame:
    """The rows of CSV files; files with the same header are read together."""
    style = CsvStyle.of(contract.options)
    if not style.has_header:
        declared = [f.name for f in contract.struct.fields if not contract.is_added(f)]
        return _csv_rows(_lines(spark, files, ordered, style), contract, declared, "the source's schema")
    headers = {f: header(spark, contract, f) for f in files}
    frames: list[DataFrame] = []
    for header_line, group in groupby(sorted(files, key=lambda f: headers[f].line), key=lambda f: headers[f].line):
        of_header = list(group)
        may_recur = [f for f in of_header if headers[f].may_recur]
        rows = _lines(spark, of_header, ordered, style, with_split=bool(may_recur))
        frames.append(_rows_below(rows, contract, header_line, is_header(header_line, may_recur)))
    return reduce(DataFrame.unionByName, frames)


def _lines(spark: SparkSession, files: Sequence[File], ordered: Sequence[File], style: CsvStyle, *, with_split: bool = False) -> DataFrame:
    """The lines that are neither blank nor comments; see `lines`."""
    found = lines(spark, files, ordered, "".join(c for c in BLANK if c not in style.sep), with_split=with_split)
    is_comment = F.startswith(F.ltrim("value", F.lit("\ufeff")), F.lit(style.comment))
    return found.where(~is_comment) if style.comment else found


def _rows_below(rows: DataFrame, contract: SourceContract, header: str, is_header: Column) -> DataFrame:
    """The rows below a header. If the header is not usable, all lines are rejected, and also the header, since it may be a row.

    Args:
        rows: the lines.
        contract: the source's contract.
        header: the header.
        is_header: whether a line is the header of its file.
    """
    names = header_names(contract, header)
    below = rows.where(~is_header)
    if (reason := _header_fault(contract, names)) is not None:
        return reject_rows(rows, contract, reason)
    if (reason := new_column_fault(contract, names)) is not None:
        return reject_rows(below, contract, reason)
    return _csv_rows(below, contract, names, "its file's header")


def _csv_rows(rows: DataFrame, contract: SourceContract, names: Sequence[str], named_by: str) -> DataFrame:
    """The rows of lines whose fields have the given names.

    Args:
        rows: the lines.
        contract: the source's contract.
        names: the names of the fields.
        named_by: the origin of the names, for the reason to reject a line with more or fewer fields.
    """
    if (fault := _nested_fault(contract, names)) is not None:
        return reject_rows(rows, contract, fault)
    return raw_rows_of(rows, _csv_columns(contract, tuple(names), named_by))


@built_once
def _csv_columns(contract: SourceContract, names: tuple[str, ...], named_by: str) -> LineColumns:
    lower = [c.lower() for c in names]
    plain = [f.name for f in contract.struct.fields if isinstance(f.dataType, AtomicType)]
    field_of = {c: f"c{lower.index(c.lower())}" for c in plain if c.lower() in lower}
    ddl = ", ".join(f"{c} STRING" for c in quoted([*[f"c{n}" for n in range(len(names))], CORRUPT]))
    style = CsvStyle.of(contract.options)
    options = parser_options(contract, {"escape": style.escape})
    fields = (F.length("value") - F.length(F.replace("value", F.lit(style.sep), F.lit("")))) / len(style.sep)
    parsed = F.when((F.octet_length("value") < _MOST_FIELDS) | (fields < _MOST_FIELDS), F.from_csv("value", ddl, options))
    fault = F.lit(f"not {len(names)} fields, as {named_by} has")
    return LineColumns.of(contract, field_of, {PARSED: parsed}, fault, _quote_fault(style))


def _header_fault(contract: SourceContract, names: Sequence[str]) -> str | None:
    lower = [c.lower() for c in names]
    missing = [f.name for f in contract.struct.fields if f.name.lower() not in lower and not contract.is_added(f)]
    if missing:
        way_out = f"; {_NO_HEADER}" if {f.name.lower() for f in contract.struct.fields}.isdisjoint(lower) else ""
        return f"{HEADER_FAULT} lacks {', '.join(missing)}{way_out}"
    return f"{HEADER_FAULT} has a name twice" if len(set(lower)) != len(lower) else None


def _nested_fault(contract: SourceContract, names: Sequence[str]) -> str | None:
    """The fault of a file whose schema has nested columns, which no field of a CSV file can contain."""
    lower = [c.lower() for c in names]
    nested = [f for f in contract.struct.fields if f.name.lower() in lower and not isinstance(f.dataType, AtomicType)]
    if all(contract.is_added(f) for f in nested):
        return None
    return f"no field of a CSV file can contain {', '.join(f.name for f in nested)}"


def _quote_fault(style: CsvStyle) -> Column:
    """The fault of a line with an odd number of quotes: it may end within a field with a line break, which Spark would read as a field."""
    text = F.col("value")
    for escaped in (style.escape * 2, style.escape + style.quote) if style.escape != style.quote else ():
        text = F.replace(text, F.lit(escaped), F.lit(""))
    number_of_quotes = F.length(text) - F.length(F.replace(text, F.lit(style.quote), F.lit("")))
    return F.when(number_of_quotes % 2 == 1, F.lit("an odd number of quotes: a line break in a field, or a quote that is not escaped"))
