"""Contracts are validated at construction: legal and illegal values case by case, and any text for any field."""

from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pyspark.sql.types import (
    ArrayType,
    DayTimeIntervalType,
    IntegerType,
    MapType,
    NullType,
    StringType,
    StructField,
    StructType,
    TimestampType,
    VariantType,
)

from assets.contracts import BoundedOutOfOrderness, ContractError, DerivedAsset, Punctuated, RowRule, SourceContract
from operators import Aggregate
from operators.errors import OperatorError
from operators.timing import length_ms

K = StructField("k", StringType())
MAP = MapType(StringType(), IntegerType())


def struct(*names: str) -> StructType:
    """Columns of text, and a time."""
    return StructType([*[StructField(n, StringType()) for n in names], StructField("ts", TimestampType())])


def made(**fields: Any) -> SourceContract:
    """Return a contract with the given fields changed."""
    return SourceContract(**{"name": "s", "schema": StructType([K]), "event_time": "ingested_at", **fields})


@dataclass(frozen=True)
class Bad:
    """Illegal field values, and the text of their error."""

    id: str
    fields: dict[str, Any]
    match: str


BAD = [
    Bad("a blank", {"schema": struct("order id")}, "`schema` is 'order id'; legal: letters, digits.*rename it"),
    Bad("a comma", {"schema": struct("a,b")}, "`schema` is 'a,b'"),
    Bad("a dot", {"schema": struct("a.b")}, "`schema` is 'a.b'"),
    Bad("a backtick", {"schema": struct("a`b")}, "`schema` is 'a`b'"),
    Bad("a line break", {"schema": struct("a\nb")}, "`schema` is"),
    Bad("no name", {"schema": struct("")}, "`schema` is ''"),
    Bad("a long name", {"schema": struct("a" * 256)}, "at most 255"),
    Bad("the engine's", {"schema": struct("seq")}, "`schema` is 'seq'; legal: names other than seq, arrival, event_time, event_time_raw"),
    Bad("the engine's in capitals", {"schema": struct("SEQ")}, "`schema` is 'SEQ'.*in any case"),
    Bad("the engine's in another case", {"schema": struct("Event_Time")}, "`schema` is 'Event_Time'.*rename it"),
    Bad("a temporary name", {"schema": struct("__tm_x")}, "not starting with '_'"),
    Bad("two in case alone", {"schema": struct("k", "K")}, "`schema` is 'K'; legal: names that differ in more than case"),
    Bad("two that Java takes for one", {"schema": struct("s", "\u017f")}, "differ in more than case"),
    Bad("no columns", {"schema": StructType()}, "`schema` is '0 columns'; legal: 1 to 1000"),
    Bad("too many columns", {"schema": struct(*[f"c{n}" for n in range(1_000)])}, "`schema` is '1001 columns'; legal: 1 to 1000"),
    Bad("a field's blank", {"schema": StructType().add("a", struct("b c"))}, "`schema` is 'a.b c'"),
    Bad("fields in case alone", {"schema": StructType().add("a", ArrayType(struct("b", "B")))}, "'a.B'.*differ in more than case"),
    Bad("an interval", {"schema": StructType().add("a", DayTimeIntervalType())}, "types that a Delta table stores"),
    Bad("void", {"schema": StructType().add("a", ArrayType(NullType()))}, "types that a Delta table stores"),
    Bad("a key that is no column", {"unique_key": ("x",)}, "`unique_key` is 'x'; legal: columns of the schema: k"),
    Bad("a key that is text", {"unique_key": "k"}, r"`unique_key` is 'k'; legal: a tuple of column names, such as \('k',\)"),
    Bad("a key twice", {"unique_key": ("k", "k")}, "each column once"),
    Bad(
        "a map as a key",
        {"schema": StructType().add("m", MAP), "unique_key": ("m",)},
        "`unique_key` is 'm'; legal: columns that are no map",
    ),
    Bad("a variant as a key", {"schema": StructType().add("m", VariantType()), "unique_key": ("m",)}, "no variant"),
    Bad("no event time", {"event_time": " "}, "`event_time` is ' '; legal: a SQL expression"),
    Bad("a watermark that is text", {"watermark": "1 minute"}, "`watermark` is '1 minute'; legal: BoundedOutOfOrderness"),
    Bad("a horizon without end", {"duplicate_horizon": "99999999999999 weeks"}, "`duplicate_horizon` is .*at most 3652059 days"),
    Bad("a timeout below zero", {"idle_timeout": -1}, "`idle_timeout` is -1"),
    Bad("a skew that is no duration", {"future_skew": "soon"}, "`future_skew` is 'soon'"),
    Bad("a duration of 5,000 digits", {"future_skew": "9" * 5_000 + " ms"}, "`future_skew` is"),
    Bad("new columns", {"new_columns": "drop"}, "`new_columns` is 'drop'; legal: ignore, quarantine, refuse, add"),
    Bad("rules of one name", {"rules": (RowRule("x", "k > 1"), RowRule("X", "k > 2"))}, "`rules` is 'X'"),
    Bad("no delimiter", {"options": {"sep": ""}}, "`options` is .*one or more characters"),
    Bad("a delimiter that ends lines", {"options": {"sep": "\n"}}, "`options` is .*end no line"),
    Bad("a delimiter that holds the end of a line", {"options": {"delimiter": "|\r"}}, "`options` is .*end no line"),
    Bad("a delimiter with a lone backslash", {"options": {"SEP": "|\\"}}, "`options` is .*one or more characters"),
    Bad("a quote of two", {"options": {"quote": "''"}}, "`options` is .*one character that ends no line, or none"),
    Bad("another mode", {"options": {"mode": "FAILFAST"}}, "`options` is .*quarantine"),
    Bad("no source name", {"name": ""}, "`name` is ''; legal: a letter"),
    Bad("a path as a name", {"name": "../x"}, "`name` is '../x'"),
    Bad("a folder's name", {"name": "a/b"}, "`name` is 'a/b'"),
    Bad("a reserved name", {"name": "Ledger"}, "`name` is 'Ledger'; legal: a name other than changelog, early, events"),
    Bad("a long source name", {"name": "a" * 129}, "at most 128"),
]


@pytest.mark.parametrize("case", BAD, ids=lambda c: c.id)
def test_illegal_contracts_are_refused(case: Bad) -> None:
    with pytest.raises(OperatorError, match=case.match):
        made(**case.fields)


def test_illegal_rules_watermarks_and_assets_are_refused() -> None:
    with pytest.raises(ContractError, match="`name` is '\\\\x00'"):
        RowRule("\0", "k > 1")
    with pytest.raises(ContractError, match="`condition` is ''"):
        RowRule("x", "")
    with pytest.raises(ContractError, match="`action` is 'drop'; legal: warn, quarantine, fail"):
        RowRule("x", "k > 1", "drop")  # pyright: ignore[reportArgumentType]
    with pytest.raises(ContractError, match="`marker` is ''"):
        Punctuated("w", "")
    with pytest.raises(OperatorError, match="`out_of_orderness` is '-1 s'"):
        BoundedOutOfOrderness("-1 s")
    with pytest.raises(ContractError, match="`name` is 'events'"):
        DerivedAsset(name="events", inputs=("l",), operator=Aggregate(by="k", aggregates={"n": "count(*)"}))


def test_legal_contracts_are_accepted() -> None:
    legal = ("order-id", "@timestamp", "$type", "a:b", "1st", "größe", "कीमत", "select", "Mixed", "a" * 255)
    contract = made(
        schema=struct(*legal), unique_key=legal[:2], options={"sep": "\t", "quote": "", "nullValue": "NA", "mode": "PERMISSIVE"}
    )
    assert contract.struct.fieldNames() == [*legal, "ts"]
    assert made(name="L").log == "events/L"
    wide = made(schema=struct(*[f"c{n}" for n in range(999)]))
    assert len(wide.widened([StructField(f"new {n}", StringType()) for n in range(100)]).struct) == 1_100


text = st.text(max_size=12) | st.text(alphabet="ab_K1.`, \n\t-/é0", max_size=6)
durations = text | st.integers() | st.timedeltas() | st.from_regex(r"[+-]?\d{1,30} ?(ms|s|minutes?|hours|days|weeks)", fullmatch=True)
FIELDS = {
    "name": text,
    "duplicate_horizon": durations,
    "idle_timeout": durations,
    "future_skew": durations,
    "new_columns": text,
    "event_time": text,
}


def made_or_refused(**fields: Any) -> SourceContract | str:
    """Return the contract, or the text of its error."""
    try:
        return made(**fields)
    except OperatorError as error:
        return str(error)


@pytest.mark.parametrize("field", FIELDS)
@given(data=st.data())
def test_any_value_of_a_field_is_refused_by_its_name_or_legal(field: str, data: st.DataObject) -> None:
    value = data.draw(FIELDS[field])
    found = made_or_refused(**{field: value})
    if isinstance(found, str):
        assert found.startswith(f"`{field}` is {value!r}; legal: ")
        return
    if FIELDS[field] is durations:
        assert 0 <= length_ms(value, field) <= 3_652_059 * 86_400_000
    assert found.log.removeprefix("events/").isidentifier()


@given(st.lists(text, max_size=4))
@example(["K", "K"])
def test_any_columns_are_refused_by_name_or_legal(names: list[str]) -> None:
    found = made_or_refused(schema=struct(*names))
    if isinstance(found, str):
        assert any(found.startswith(f"`schema` is {name!r}; legal: ") for name in [*names, "ts"])
        return
    assert not [n for n in found.struct.fieldNames() if any(c in n for c in " ,;{}()\n\t=.`\"'\\[]*")]


@given(st.dictionaries(st.sampled_from(["sep", "quote", "escape", "mode", "nullValue", "delimiter"]), text, max_size=2))
def test_any_option_is_refused_by_name_or_legal(options: dict[str, str]) -> None:
    found = made_or_refused(options=options)
    assert found.startswith("`options` is {") if isinstance(found, str) else options.get("sep", ",") and options.get("delimiter", ",")
