"""Schemas as DDL text, such as `zone STRING NOT NULL, fare DECIMAL(8,2) COMMENT 'in euros'`, read without a Spark session."""

import re

from py4j.protocol import Py4JJavaError
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    CharType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
    VarcharType,
    VariantType,
)

from operators.errors import TidemarkError, did_you_mean

_ATOMIC: dict[str, type[DataType]] = {
    "string": StringType,
    "boolean": BooleanType,
    "tinyint": ByteType,
    "byte": ByteType,
    "smallint": ShortType,
    "short": ShortType,
    "int": IntegerType,
    "integer": IntegerType,
    "bigint": LongType,
    "long": LongType,
    "float": FloatType,
    "real": FloatType,
    "double": DoubleType,
    "binary": BinaryType,
    "date": DateType,
    "timestamp": TimestampType,
    "timestamp_ltz": TimestampType,
    "timestamp_ntz": TimestampNTZType,
    "variant": VariantType,
}
_DECIMALS = ("decimal", "dec", "numeric")
_MOST_DIGITS, _LONGEST_NUMBER, _DEEPEST = 38, 9, 100
"""Limits: of the precision of a decimal, of the digits of a number in parentheses, and of the depth of nested types."""
_BLANK = re.compile(r"(?:\s|--[^\n\r\\]*|/\*(?!\+)(?:(?!/\*|\*/).)*\*/)*", re.DOTALL)
"""White space and comments. Hints, comments within comments and comments with a backslash are left to Spark."""
_TOKEN = re.compile(r"""`(?:[^`]|``)+`|'(?:[^'\\]|\\['\\]|'')*'|"(?:[^"\\]|\\["\\]|"")*"|[A-Za-z_0-9]+|[<>(),:]""")
_ESCAPED = {"'": re.compile(r"""\\(['"\\])|'(')"""), '"': re.compile(r"""\\(['"\\])|"(")""")}
"""A character that is escaped by a backslash or doubled, by the quote around the text."""


class _UnreadError(TidemarkError, ValueError):
    """The text is not in the part of Spark's grammar that this module reads; Spark may still read it."""


class _UnknownTypeError(_UnreadError):
    """A type has a name that this module does not read."""


def schema_of(ddl: str) -> StructType | None:
    """The schema that a DDL text describes, as Spark reads it; None if the text is not valid.

    Types and forms that are not read here, such as intervals, are read by Spark if a session runs; without one they are not valid.
    """
    try:
        return _Reader(ddl).schema()
    except _UnreadError:
        return _by_spark(ddl)


def misspelled_type(ddl: str) -> str:
    """The end of an error for a text with an unknown type: the type, and the most similar legal one.

    Empty if no type is unknown, or no legal type is similar.

    >>> misspelled_type("id STRING, amount INTT")
    "; 'INTT' is not a supported type; did you mean 'int'?"
    """
    try:
        _Reader(ddl).schema()
    except _UnknownTypeError as error:
        hint = did_you_mean(error, [*_ATOMIC, *_DECIMALS, "varchar", "char", "character", "array", "map", "struct"])
        return f"; {str(error)!r} is not a supported type{hint}" if hint else ""
    except _UnreadError:
        pass
    return ""


def _by_spark(ddl: str) -> StructType | None:
    # every thread sees the context, but only its own active session; a session of Spark Connect has no context
    if SparkContext._active_spark_context is None and SparkSession.getActiveSession() is None:
        return None
    try:
        schema = StructType.fromDDL(ddl)
    except (PySparkException, Py4JJavaError, RecursionError):  # the last two for types that are nested too deeply for Java or Python
        return None
    return schema if isinstance(schema, StructType) else None


def _end_of_blank(ddl: str, start: int) -> int:
    blank = _BLANK.match(ddl, start)
    return start if blank is None else blank.end()


class _Reader:
    """Reads a DDL text from its first token to its last."""

    def __init__(self, ddl: str) -> None:
        self._tokens, position = list[str](), _end_of_blank(ddl, 0)
        while position < len(ddl):
            token = _TOKEN.match(ddl, position)
            if token is None:
                raise _UnreadError(ddl)
            self._tokens.append(token[0])
            position = _end_of_blank(ddl, token.end())
        self._at = self._depth = 0

    def schema(self) -> StructType:
        fields = self._fields(colon=False)
        if self._at < len(self._tokens):
            raise _UnreadError(self._tokens)
        return StructType(fields)

    def _fields(self, *, colon: bool) -> list[StructField]:
        fields = [self._field(colon=colon)]
        while self._accept(","):
            fields.append(self._field(colon=colon))
        return fields

    def _field(self, *, colon: bool) -> StructField:
        """A column, or a struct's field, whose type may follow a colon."""
        name = self._name()
        if colon:
            self._accept(":")
        kind, nullable, metadata = self._type(), True, {}
        if self._accept("not"):
            self._expect("null")
            nullable = False
        if self._accept("comment"):
            metadata = {"comment": self._text()}
        return StructField(name, kind, nullable, metadata)

    def _type(self) -> DataType:
        if self._depth > _DEEPEST:
            raise _UnreadError(self._depth)
        self._depth += 1
        try:
            return self._parse_type()
        finally:
            self._depth -= 1

    def _parse_type(self) -> DataType:
        name = self._next().lower()
        if name in _ATOMIC:
            return _ATOMIC[name]()
        if name in _DECIMALS:
            return self._decimal()
        if name in ("varchar", "char", "character"):
            [length] = self._sizes(1, 1)
            return VarcharType(length) if name == "varchar" else CharType(length)
        if name not in ("array", "map", "struct"):
            raise _UnknownTypeError(self._tokens[self._at - 1])
        self._expect("<")
        kind: DataType
        if name == "struct":
            kind = StructType(self._fields(colon=True))
        elif name == "array":
            kind = ArrayType(self._type())
        else:
            key = self._type()
            self._expect(",")
            kind = MapType(key, self._type())
        self._expect(">")
        return kind

    def _decimal(self) -> DecimalType:
        sizes = self._sizes(0, 2)
        precision = sizes[0] if sizes else 10
        scale = sizes[1] if len(sizes) == 2 else 0
        if not scale <= precision <= _MOST_DIGITS:
            raise _UnreadError(sizes)
        return DecimalType(precision, scale)

    def _sizes(self, least: int, most: int) -> list[int]:
        """Numbers in parentheses, separated by commas."""
        sizes = list[int]()
        if self._accept("("):
            sizes.append(self._number())
            while self._accept(","):
                sizes.append(self._number())
            self._expect(")")
        if not least <= len(sizes) <= most:
            raise _UnreadError(sizes)
        return sizes

    def _number(self) -> int:
        text = self._next()
        if not text.isdecimal() or len(text) > _LONGEST_NUMBER:
            raise _UnreadError(text)
        return int(text)

    def _name(self) -> str:
        token = self._next()
        if token.startswith("`"):
            return token[1:-1].replace("``", "`")
        if not token[0].isalpha() and token[0] != "_":
            raise _UnreadError(token)
        return token

    def _text(self) -> str:
        token = self._next()
        if token[0] not in "'\"":
            raise _UnreadError(token)
        return _ESCAPED[token[0]].sub(r"\1\2", token[1:-1])

    def _next(self) -> str:
        if self._at == len(self._tokens):
            raise _UnreadError(self._tokens)
        self._at += 1
        return self._tokens[self._at - 1]

    def _accept(self, word: str) -> bool:
        is_next = self._at < len(self._tokens) and self._tokens[self._at].lower() == word
        self._at += is_next
        return is_next

    def _expect(self, word: str) -> None:
        if not self._accept(word):
            raise _UnreadError(word)
