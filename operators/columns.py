"""Column checks that the operators share, and the names of temporary columns."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, AtomicType, DataType, DecimalType, IntegralType, MapType, StructType, TimestampType, VariantType

from operators.column_types import can_be_compared
from operators.errors import ColumnError

TEMPORARY = "__tm_"
"""Prefix of the operators' temporary columns. An input with such a column is refused; no result has one."""

_EXACT = (IntegralType, DecimalType)
_LONGEST_NAME, _LEGAL_PUNCTUATION = 255, "-@$:"

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


def quoted_name(name: str) -> str:
    """A column's name, or a path after `delta.`, in backticks. Without them a dot separates a struct from its field.

    >>> quoted_name("a.b"), quoted_name("a`b")
    ('`a.b`', '`a``b`')
    """
    return f"`{name.replace('`', '``')}`"


def quoted(columns: Iterable[str]) -> list[str]:
    """Names of columns as a selection of Spark reads them, each with quotes."""
    return [quoted_name(column) for column in columns]


def column_fault(name: str, *, underscore: bool = False) -> str | None:
    """A description of the legal names of columns, for an error; None if the name is legal.

    Args:
        name: the name.
        underscore: whether it may start with '_', as the name of a struct's field may.
    """
    if name and len(name) <= _LONGEST_NAME and all(map(_is_legal, name)) and (underscore or not name.startswith("_")):
        return None
    start = "" if underscore else ", not starting with '_'"
    return f"letters, digits, '_' and {' '.join(_LEGAL_PUNCTUATION)}, at most {_LONGEST_NAME}{start}"


def _is_legal(character: str) -> bool:
    return f"a{character}".isidentifier() or character in _LEGAL_PUNCTUATION


def parameter(value: int, column: Column | str) -> Column:
    """A literal bigint whose value may differ from one micro-batch to the next without a change of the code that Spark generates.

    Spark writes a literal number into the code that it generates, so that it generates and compiles the code again for another number.
    An array is passed to the code by reference. Spark pushes no condition with a parameter down to files.

    Args:
        value: the number.
        column: a bigint column of the same rows, or the column's name, which takes fewer calls into the JVM. The parameter is null where
            the column is null.
    """
    if isinstance(column, str):
        return F.expr(parameter_sql(value, quoted_name(column)))
    return F.get(F.expr(f"array({value}L)"), column.bitwiseAND(0).cast("int"))


def parameter_sql(value: int, expression: str) -> str:
    """A `parameter` as SQL, for use with a bigint expression in SQL."""
    return f"get(array({value}L), cast({expression} & 0L AS INT))"


def lookup(values: Mapping[int, int], column: str) -> Column:
    """The value (bigint) for the key in a bigint column; null for a key without a value. Keys and values are passed as in `parameter`.

    Args:
        values: the values by key; few, since each row is compared with each key.
        column: the column's name.
    """
    keys, results = (", ".join(f"{number}L" for number in numbers) for numbers in (values.keys(), values.values()))
    return F.expr(f"get(array({results}), cast(array_position(array({keys}), {quoted_name(column)}) - 1 AS INT))")


def are_rows_equal(left_alias: str, right_alias: str, columns: Sequence[str], schema: StructType | None = None) -> Column:
    """Whether the rows of two aliases are equal in the given columns; nulls are equal.

    Args:
        left_alias: the alias of one row's frame.
        right_alias: the alias of the other row's frame.
        columns: the columns.
        schema: the columns' types, needed if one may be a map or a variant, which Spark does not compare.
    """

    def comparable_value(alias: str, column: str) -> Column:
        column_value = F.col(f"{alias}.{quoted_name(column)}")
        return column_value if schema is None else as_comparable(column_value, schema[column].dataType)

    return combine_balanced(
        [comparable_value(left_alias, c).eqNullSafe(comparable_value(right_alias, c)) for c in columns], lambda a, b: a & b, F.lit(True)
    )


def combine_balanced(columns: Sequence[Column], join: Callable[[Column, Column], Column], empty: Column) -> Column:
    """Combine columns by an operator in a balanced tree, because a chain of 1,000 overflows the stack of Spark's planner.

    Args:
        columns: the columns.
        join: an associative operator.
        empty: the result if there is no column.
    """
    if len(columns) < 2:
        return columns[0] if columns else empty
    half = len(columns) // 2
    return join(combine_balanced(columns[:half], join, empty), combine_balanced(columns[half:], join, empty))


def as_comparable(value: Column, kind: DataType) -> Column:
    """A value that Spark can compare, group by and hash: a map's entries, sorted by key, replace it, and a variant's JSON."""
    if can_be_compared(kind):
        return value
    if isinstance(kind, VariantType):
        return F.to_json(value)
    if isinstance(kind, MapType):
        entries = F.transform(F.map_entries(value), lambda e: F.struct(e["key"], as_comparable(e["value"], kind.valueType)))
        return F.array_sort(entries)
    if isinstance(kind, ArrayType):
        return F.transform(value, lambda e: as_comparable(e, kind.elementType))
    fields = kind.fields if isinstance(kind, StructType) else []
    return F.when(value.isNotNull(), F.struct(*[as_comparable(value[f.name], f.dataType).alias(f.name) for f in fields]))


def day_column(time: Column) -> Column:
    """The UTC day of a time, as `day`, limited to the days that Python's `date` can represent."""
    return F.least(F.greatest(time.cast("date"), F.expr("date'0001-01-01'")), F.expr("date'9999-12-31'")).alias("day")


def row_hash(schema: StructType) -> Column:
    """A hash of a row, as `row_hash`, that distinguishes nulls and how values are nested, at any depth.

    Spark's hash skips nulls and the ends of arrays, so that (1, null) and (null, 1) would be equal. So null flags are hashed too, and
    nested values also as JSON, which alone would not do, since its times have milliseconds. -0.0 equals 0.0, as in Spark's comparisons.
    Without nested values, the hash is one SQL expression.

    Args:
        schema: the columns.
    """
    flat = [f.name for f in schema.fields if isinstance(f.dataType, AtomicType) and can_be_compared(f.dataType)]
    nested = [as_comparable(F.col(quoted_name(f.name)), f.dataType) for f in schema.fields if f.name not in flat]
    are_null = [f"isnull({name})" for name in quoted(schema.names)]
    flat_hash = F.expr(f"xxhash64({', '.join([*quoted(flat), *are_null])})")
    if not nested:
        return flat_hash.alias("row_hash")
    as_json = F.to_json(F.struct(*nested), {"ignoreNullFields": "false"})
    without_negative_zeros = F.regexp_replace(as_json, r"(?<=[\[:,])-0\.0(?=[,\]}])", "0.0")
    return F.xxhash64(flat_hash, *nested, without_negative_zeros).alias("row_hash")


def keys_of(frames: Sequence[DataFrame], key: Sequence[str]) -> DataFrame:
    """The distinct keys of frames."""
    return reduce(DataFrame.unionByName, [f.select(*key) for f in frames]).distinct()


def rows_of_keys(frame: DataFrame, keys: DataFrame, key: Sequence[str]) -> DataFrame:
    """The rows of a frame with one of the keys; nulls are equal. All rows if the key has no column."""
    if not key:
        return frame
    other = {column: temporary(f"key_{number}") for number, column in enumerate(key)}
    keys = keys.select(*[F.col(quoted_name(column)).alias(name) for column, name in other.items()])
    is_equal = [F.col(quoted_name(column)).eqNullSafe(F.col(name)) for column, name in other.items()]
    return frame.join(keys, combine_balanced(is_equal, lambda a, b: a & b, F.lit(True)), "left_semi")


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
        raise ColumnError.added_by_result(column)


def check_time(frame: DataFrame, column: str, parameter: str) -> None:
    """Raise `ColumnError` unless the frame has the column and it is a timestamp."""
    check_present(frame, [column], parameter)
    data_type = frame.schema[column].dataType
    if not isinstance(data_type, TimestampType):
        raise ColumnError.not_a_time(parameter, column, data_type.simpleString())


def check_same_types(left: DataFrame, right: DataFrame, columns: Sequence[str]) -> None:
    """Raise `ColumnError` unless the types of each key column are equal or exact numbers: Spark may compare others by a lossy cast."""
    for column in columns:
        left_type, right_type = left.schema[column].dataType, right.schema[column].dataType
        if left_type != right_type and not (isinstance(left_type, _EXACT) and isinstance(right_type, _EXACT)):
            raise ColumnError.key_types(column, left_type.simpleString(), right_type.simpleString())


def check_distinct(columns: Sequence[str], way_out: str = "rename one of them") -> None:
    """Raise `ColumnError`, which says what to do, if a name occurs twice (Spark's names ignore case)."""
    lower_names: set[str] = set()
    repeated = [c for c in columns if c.lower() in lower_names or lower_names.add(c.lower())]
    if repeated:
        raise ColumnError.collision(repeated, way_out)
