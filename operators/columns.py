"""Column checks that the operators share, and the names of temporary columns."""

from collections.abc import Callable, Sequence
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, DecimalType, IntegralType, MapType, StructType, TimestampType

from operators.column_types import has_map
from operators.errors import ColumnError

TEMPORARY = "__tm_"
"""Prefix of the operators' temporary columns. An input with such a name is refused; no result has one."""

_EXACT = (IntegralType, DecimalType)

RESULT_TIME = "result_time"
FINAL_AT = "final_at"
WINDOW_START, WINDOW_END = "window_start", "window_end"
RANK = "rank"


def temporary(name: str) -> str:
    """A temporary column's name."""
    return TEMPORARY + name


def names(value: str | Sequence[str]) -> tuple[str, ...]:
    """One name or several, as a tuple."""
    return (value,) if isinstance(value, str) else tuple(value)


def parameter(value: int, column: Column) -> Column:
    """A literal bigint whose value may differ from one micro-batch to the next without a change of the code that Spark generates.

    Spark writes a literal number into the code that it generates, so that a plan with another number is generated and compiled again.
    It passes an array by reference. Spark pushes no condition with a parameter down to files.

    Args:
        value: the number.
        column: a bigint column of the rows that it is used with; the parameter is null where the column is.
    """
    return F.get(F.array(F.lit(value).cast("bigint")), column.bitwiseAND(0).cast("int"))


def same_rows(one: str, other: str, columns: Sequence[str], schema: StructType | None = None) -> Column:
    """Whether the rows of two aliases are equal in the given columns; nulls are equal.

    Args:
        one: an alias.
        other: the other alias.
        columns: the columns.
        schema: the columns' types, needed if one may be a map: Spark does not compare maps.
    """

    def value(alias: str, column: str) -> Column:
        found = F.col(f"{alias}.`{column}`")
        return found if schema is None else comparable(found, schema[column].dataType)

    return balanced([value(one, c).eqNullSafe(value(other, c)) for c in columns], lambda a, b: a & b, F.lit(True))


def balanced(columns: Sequence[Column], join: Callable[[Column, Column], Column], empty: Column) -> Column:
    """Columns combined by an operator as a balanced tree: a chain of 1,000 overflows the stack of Spark's planner.

    Args:
        columns: the columns.
        join: an associative operator.
        empty: the result if there is no column.
    """
    if len(columns) < 2:
        return columns[0] if columns else empty
    half = len(columns) // 2
    return join(balanced(columns[:half], join, empty), balanced(columns[half:], join, empty))


def comparable(value: Column, kind: DataType) -> Column:
    """A value that Spark can compare, group by and hash: each map is replaced by an array of its entries, sorted by key."""
    if not has_map(kind):
        return value
    if isinstance(kind, MapType):
        entries = F.transform(F.map_entries(value), lambda e: F.struct(e["key"], comparable(e["value"], kind.valueType)))
        return F.array_sort(entries)
    if isinstance(kind, ArrayType):
        return F.transform(value, lambda e: comparable(e, kind.elementType))
    fields = kind.fields if isinstance(kind, StructType) else []
    return F.when(value.isNotNull(), F.struct(*[comparable(value[f.name], f.dataType).alias(f.name) for f in fields]))


def keys_of(frames: Sequence[DataFrame], key: Sequence[str]) -> DataFrame:
    """The distinct keys of frames."""
    return reduce(DataFrame.unionByName, [f.select(*key) for f in frames]).distinct()


def of_keys(frame: DataFrame, keys: DataFrame, key: Sequence[str]) -> DataFrame:
    """The rows of a frame with one of the keys; nulls are equal. All rows if the key has no column."""
    return frame if not key else frame.alias("f").join(keys.alias("k"), same_rows("f", "k", key), "left_semi")


def check_present(frame: DataFrame, columns: Sequence[str], parameter: str) -> None:
    """Raise `ColumnError` unless the frame has every column, and none with a reserved name."""
    for column in columns:
        if column not in frame.columns:
            raise ColumnError.missing(parameter, column, frame.columns)
    for column in frame.columns:
        if column.startswith(TEMPORARY):
            raise ColumnError.reserved(column, TEMPORARY)


def check_free(frame: DataFrame, column: str) -> None:
    """Raise `ColumnError` if the frame has a column that the result adds (Spark's names ignore case)."""
    if column.lower() in (c.lower() for c in frame.columns):
        raise ColumnError.taken(column)


def check_time(frame: DataFrame, column: str, parameter: str) -> None:
    """Raise `ColumnError` unless the frame has the column and it is a timestamp."""
    check_present(frame, [column], parameter)
    found = frame.schema[column].dataType
    if not isinstance(found, TimestampType):
        raise ColumnError.not_a_time(parameter, column, found.simpleString())


def check_same_types(left: DataFrame, right: DataFrame, columns: Sequence[str]) -> None:
    """Raise `ColumnError` if Spark would compare the two types of a key column by a lossy cast."""
    for column in columns:
        one, other = left.schema[column].dataType, right.schema[column].dataType
        if one != other and not (isinstance(one, _EXACT) and isinstance(other, _EXACT)):
            raise ColumnError.key_types(column, one.simpleString(), other.simpleString())


def check_distinct(columns: Sequence[str], way_out: str = "rename one of them") -> None:
    """Raise `ColumnError`, which says what to do, if a name occurs twice (Spark's names ignore case)."""
    seen: set[str] = set()
    twice = [c for c in columns if c.lower() in seen or seen.add(c.lower())]
    if twice:
        raise ColumnError.collision(twice, way_out)
