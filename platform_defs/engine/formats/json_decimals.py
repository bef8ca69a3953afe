"""Reads decimals in JSON lines with all of their digits.

Every column is parsed as text first, so that a bad value can be reported by column. Spark converts a JSON number to text through a double,
which is exact for 15 digits. If a line may have a decimal with more digits, its decimal columns are parsed a second time, as decimals.
"""

from collections.abc import Mapping, Sequence

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, DecimalType, StructType

from operators.column_types import types_within
from operators.columns import combine_balanced, quoted_name
from platform_defs.engine.formats.text import object_keys

_MANY_DIGITS = "[0-9][0-9.]{15}"
_MOST_EXACT_CHARACTERS = 16
"""A text of a double that is at most this long has the exact digits of the number: 15 digits and the point."""
_HUGE_NUMBER, _HUGE_TEXT = r":\s*-?[0-9.]+[eE][+-]?[0-9]{3}", r"[eE][+-]?\p{Nd}{3}"
"""Exponents above 99, in the line and in a text. No decimal needs them, and Spark's parser would expand `1e600000000` digit by digit."""
_OPTIONS = {"locale": "en-US", "allowcomments": "false"}
"""With these options the parser reads a decimal as the cast from text does, except for commas, and no comment can hide a number from
`_HUGE_NUMBER`. If the source allows comments, the parser does too in lines without `_LONG_EXPONENT`."""
_LONG_EXPONENT = "[0-9.][eE][+-]?[0-9]{3}"
"""Text that may be a number with an exponent above 99, anywhere in a line."""


def decimals(struct: StructType) -> StructType:
    """The decimal columns of a schema."""
    return StructType([f for f in struct.fields if isinstance(f.dataType, DecimalType)])


def has_nested_decimal(type_: DataType) -> bool:
    """Whether a type has decimals in a struct, an array or a map, which the JSON parser converts itself."""
    return not isinstance(type_, DecimalType) and any(isinstance(part, DecimalType) for part in types_within(type_))


def exact_decimals(struct: StructType, texts: str, options: Mapping[str, str]) -> Column:
    """The decimals of a line, parsed as decimals; null if the texts have all digits already, or if the parser of decimals must not be used.

    Args:
        struct: the decimal columns.
        texts: the column with the line parsed as texts.
        options: the options of that parse.
    """
    names, columns = struct.fieldNames(), [F.col(f"{texts}.{quoted_name(n)}") for n in struct.fieldNames()]
    may_lack_digits = F.rlike("value", F.lit(_MANY_DIGITS)) | _any_true([F.length(c) > _MOST_EXACT_CHARACTERS for c in columns])
    has_huge = F.rlike("value", F.lit(_HUGE_NUMBER)) | _any_true([F.rlike(c, F.lit(_HUGE_TEXT)) for c in columns])
    keys = F.filter(object_keys(options), lambda k: k.isin(names))
    # the texts have the last value of a repeated key, but the parser of decimals reads all of its values
    is_named_once = F.size(keys) == F.size(F.array_distinct(keys))
    exact = F.from_json("value", struct, {**options, **_OPTIONS})
    if str(options.get("allowcomments")).lower() == "true":
        has_exponent = F.rlike("value", F.lit(_LONG_EXPONENT))
        exact = F.when(has_exponent, exact).otherwise(F.from_json("value", struct, {**options, **_OPTIONS, "allowcomments": "true"}))
    return F.when(may_lack_digits & ~has_huge & is_named_once, exact)


def with_exact_decimals(names: Sequence[str], struct: StructType, texts: str, digits: str) -> Column:
    """The line parsed as texts, with the exact digits of its decimals if they were parsed.

    Args:
        names: the fields of the texts.
        struct: the decimal columns.
        texts: the column with the line parsed as texts.
        digits: the column with its decimals.
    """
    exact = {name: _exact_text(name, texts, digits) for name in struct.fieldNames()}
    fields = [exact.get(name, F.col(f"{texts}.{quoted_name(name)}")).alias(name) for name in names]
    return F.when(F.col(texts).isNotNull(), F.struct(*fields))


def _exact_text(name: str, texts: str, digits: str) -> Column:
    text = F.col(f"{texts}.{quoted_name(name)}")
    has_comma = F.coalesce(F.contains(text, F.lit(",")), F.lit(False))  # "1,5" is no decimal, but Spark's parser drops the comma
    return F.coalesce(F.when(~has_comma, F.col(f"{digits}.{quoted_name(name)}").cast("string")), text)


def _any_true(conditions: Sequence[Column]) -> Column:
    return combine_balanced([F.coalesce(c, F.lit(False)) for c in conditions], lambda a, b: a | b, F.lit(False))
