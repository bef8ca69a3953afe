"""Decimals in JSON lines, with the digits that the line has.

Every column is parsed as text first, so that each can be refused on its own. Spark turns a JSON number into text through a double, which
keeps 15 digits for sure. A line that may have more is parsed once more, for its decimal columns alone and as decimals.
"""

from collections.abc import Mapping, Sequence

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, DecimalType, MapType, StructType

from operators.columns import balanced

_MANY_DIGITS = "[0-9][0-9.]{15}"
_MOST_EXACT = 16
"""The longest text of a double whose digits are surely those of the number it was made of: 15, and the point."""
_HUGE_NUMBER, _HUGE_TEXT = r":\s*-?[0-9.]+[eE][+-]?[0-9]{3}", r"[eE][+-]?\p{Nd}{3}"
"""Exponents beyond 99, in the line and in a text: Spark's parser would write `1e600000000` out, digit by digit. No decimal needs them."""
_OPTIONS = {"locale": "en-US", "allowcomments": "false"}
"""Texts are read by the rules of the cast from text, but for commas, and nothing may hide a number from `_HUGE_NUMBER`."""


def decimals(struct: StructType) -> StructType:
    """The decimal columns of a schema."""
    return StructType([f for f in struct.fields if isinstance(f.dataType, DecimalType)])


def has_nested_decimal(type_: DataType) -> bool:
    """Whether a column holds decimals inside of a struct, an array or a map, where the JSON parser types them itself."""
    match type_:
        case StructType():
            inner = [f.dataType for f in type_.fields]
        case ArrayType():
            inner = [type_.elementType]
        case MapType():
            inner = [type_.keyType, type_.valueType]
        case _:
            return False
    return any(isinstance(t, DecimalType) or has_nested_decimal(t) for t in inner)


def exact_decimals(struct: StructType, texts: str, options: Mapping[str, str]) -> Column:
    """The decimals of a line as decimals, null where the texts have all digits.

    Args:
        struct: the decimal columns.
        texts: the column that holds the line parsed as texts.
        options: the options of that parse.
    """
    names, text = struct.fieldNames(), [F.col(f"{texts}.`{n}`") for n in struct.fieldNames()]
    may_lack_digits = F.rlike("value", F.lit(_MANY_DIGITS)) | _any([F.length(t) > _MOST_EXACT for t in text])
    has_huge = F.rlike("value", F.lit(_HUGE_NUMBER)) | _any([F.rlike(t, F.lit(_HUGE_TEXT)) for t in text])
    keys = F.filter(F.json_object_keys("value"), lambda k: k.isin(names))
    is_named_once = F.size(keys) == F.size(F.array_distinct(keys))  # the texts show the last of a name, the parser takes all
    return F.when(may_lack_digits & ~has_huge & is_named_once, F.from_json("value", struct, {**options, **_OPTIONS}))


def with_exact_decimals(names: Sequence[str], struct: StructType, texts: str, digits: str) -> Column:
    """The line parsed as texts, with the exact digits of its decimals where there are any.

    Args:
        names: the fields of the texts.
        struct: the decimal columns.
        texts: the column that holds the line parsed as texts.
        digits: the column that holds its decimals.
    """
    exact = {name: _exact_text(name, texts, digits) for name in struct.fieldNames()}
    fields = [exact.get(name, F.col(f"{texts}.`{name}`")).alias(name) for name in names]
    return F.when(F.col(texts).isNotNull(), F.struct(*fields))


def _exact_text(name: str, texts: str, digits: str) -> Column:
    text = F.col(f"{texts}.`{name}`")
    has_comma = F.coalesce(F.contains(text, F.lit(",")), F.lit(False))  # "1,5" is no decimal; Spark's parser drops the comma
    return F.coalesce(F.when(~has_comma, F.col(f"{digits}.`{name}`").cast("string")), text)


def _any(conditions: Sequence[Column]) -> Column:
    return balanced([F.coalesce(c, F.lit(False)) for c in conditions], lambda a, b: a | b, F.lit(False))
