"""Contracts are validated at construction: cases of legal and illegal values, and any text in any field."""

from dataclasses import dataclass
from typing import Any

import dagster as dg
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

from assets.contracts import BatchExpression, BoundedOutOfOrderness, ContractError, DerivedAsset, Punctuated, RowRule, SourceContract
from operators import Aggregate
from operators.errors import OperatorError
from operators.timing import length_ms

K = StructField("k", StringType())
MAP = MapType(StringType(), IntegerType())


def schema_of(*names: str) -> StructType:
    """A schema of text columns and a timestamp."""
    return StructType([*[StructField(n, StringType()) for n in names], StructField("ts", TimestampType())])


def contract_with(**fields: Any) -> SourceContract:
    """A contract with these fields, and a default for each other field."""
    return SourceContract(**{"name": "s", "schema": StructType([K]), "event_time": "ingested_at", **fields})


@dataclass(frozen=True)
class Illegal:
    """Illegal field values, and the text of their error."""

    id: str
    fields: dict[str, Any]
    match: str


ILLEGAL = [
    Illegal("a blank", {"schema": schema_of("order id")}, "`schema` is 'order id'; legal: letters, digits.*rename it"),
    Illegal("a comma", {"schema": schema_of("a,b")}, "`schema` is 'a,b'"),
    Illegal("a dot", {"schema": schema_of("a.b")}, "`schema` is 'a.b'"),
    Illegal("a backtick", {"schema": schema_of("a`b")}, "`schema` is 'a`b'"),
    Illegal("a line break", {"schema": schema_of("a\nb")}, "`schema` is"),
    Illegal("no name", {"schema": schema_of("")}, "`schema` is ''"),
    Illegal("a long name", {"schema": schema_of("a" * 256)}, "at most 255"),
    Illegal(
        "the engine's", {"schema": schema_of("seq")}, "`schema` is 'seq'; legal: names other than seq, arrival, event_time, event_time_raw"
    ),
    Illegal("the engine's in capitals", {"schema": schema_of("SEQ")}, "`schema` is 'SEQ'.*in any case"),
    Illegal("the engine's in another case", {"schema": schema_of("Event_Time")}, "`schema` is 'Event_Time'.*rename it"),
    Illegal("a temporary name", {"schema": schema_of("__tm_x")}, "not starting with '_'"),
    Illegal("two in case alone", {"schema": schema_of("k", "K")}, "`schema` is 'K'; legal: names that differ in more than case"),
    Illegal("two that Java treats as equal", {"schema": schema_of("s", "\u017f")}, "differ in more than case"),
    Illegal("no columns", {"schema": StructType()}, "`schema` is '0 columns'; legal: 1 to 1000"),
    Illegal("too many columns", {"schema": schema_of(*[f"c{n}" for n in range(1_000)])}, "`schema` is '1001 columns'; legal: 1 to 1000"),
    Illegal("a field's blank", {"schema": StructType().add("a", schema_of("b c"))}, "`schema` is 'a.b c'"),
    Illegal("fields in case alone", {"schema": StructType().add("a", ArrayType(schema_of("b", "B")))}, "'a.B'.*differ in more than case"),
    Illegal("an interval", {"schema": StructType().add("a", DayTimeIntervalType())}, "types that a Delta table stores"),
    Illegal("void", {"schema": StructType().add("a", ArrayType(NullType()))}, "types that a Delta table stores"),
    Illegal("a struct without fields", {"schema": StructType().add("a", StructType())}, "no struct without fields"),
    Illegal("a decimal without digits", {"schema": "a DECIMAL(0)"}, "`schema` is 'a decimal\\(0,0\\)'; legal: .*no decimal without digits"),
    Illegal("a varchar in an array", {"schema": "a ARRAY<VARCHAR(3)>"}, "no char or varchar within another type; declare it as string"),
    Illegal("a key that is no column", {"unique_key": ("x",)}, "`unique_key` is 'x'; legal: the columns of source 's' are k"),
    Illegal("a key that is text", {"unique_key": "k"}, r"`unique_key` is 'k'; legal: a tuple of column names, such as \('k',\)"),
    Illegal("a key twice", {"unique_key": ("k", "k")}, "each column once"),
    Illegal(
        "a map as a key",
        {"schema": StructType().add("m", MAP), "unique_key": ("m",)},
        "`unique_key` is 'm'; legal: columns whose types contain no map",
    ),
    Illegal("a variant as a key", {"schema": StructType().add("m", VariantType()), "unique_key": ("m",)}, "no variant"),
    Illegal("no event time", {"event_time": " "}, "`event_time` is ' '; legal: a SQL expression"),
    Illegal("an event time of another type", {"schema": "k STRING, ok BOOLEAN", "event_time": "`OK`"}, "a timestamp, .*; ok is boolean$"),
    Illegal("a mark that is no time", {"schema": "k ARRAY<INT>", "watermark": Punctuated("k")}, "`watermark` is 'k'; .*; k is array<int>$"),
    *[
        Illegal(f"{field} {sql}", {field: value}, "is .*; legal: one expression over one row, without a name: no aggregates")
        for sql in [
            "max(k)",
            "lag(k) OVER (ORDER BY k)",
            "explode(split(k, ' '))",
            "k AS t",
            "k, k",
            "*",
            "every(k = '')",
            "any(k = '')",
            "any(k = '') AND true",
            "`any`(k = '')",
            "json_tuple(k, 'a')",
        ]
        for field, value in [("event_time", sql), ("rules", (RowRule("r", sql),)), ("watermark", Punctuated(sql))]
    ],
    Illegal("an option in two cases", {"options": {"sep": ",", "SEP": ";"}}, "'SEP' is given twice, since names ignore case$"),
    Illegal("two names of one option", {"options": {"sep": ",", "delimiter": ";"}}, "legal: either 'sep' or 'delimiter'"),
    Illegal("a watermark that is text", {"watermark": "1 minute"}, "`watermark` is '1 minute'; legal: BoundedOutOfOrderness"),
    Illegal("a horizon that is too long", {"duplicate_horizon": "99999999999999 weeks"}, "`duplicate_horizon` is .*at most 3652059 days"),
    Illegal("a timeout below zero", {"idle_timeout": -1}, "`idle_timeout` is -1"),
    Illegal("a skew that is no duration", {"future_skew": "soon"}, "`future_skew` is 'soon'"),
    Illegal("a duration of 5,000 digits", {"future_skew": "9" * 5_000 + " ms"}, "`future_skew` is"),
    Illegal("new columns", {"new_columns": "drop"}, "`new_columns` is 'drop'; legal: ignore, quarantine, refuse, add"),
    Illegal("rules of one name", {"rules": (RowRule("x", "k > 1"), RowRule("X", "k > 2"))}, "`rules` is 'X'"),
    Illegal("no delimiter", {"options": {"sep": ""}}, "`options` is .*one or more characters"),
    Illegal("a delimiter that ends lines", {"options": {"sep": "\n"}}, "`options` is .*other than line breaks"),
    Illegal("a delimiter that contains the end of a line", {"options": {"delimiter": "|\r"}}, "`options` is .*other than line breaks"),
    Illegal("a delimiter with a lone backslash", {"options": {"SEP": "|\\"}}, "`options` is .*one or more characters"),
    Illegal(
        "a quote of two",
        {"options": {"quote": "''"}},
        "`options` is .*one character up to U\\+FFFF other than a line break and NUL, or empty text",
    ),
    Illegal("an unknown option", {"options": {"seperator": ";"}}, "^`options` of source 's' has 'seperator', .*: header, sep, .*'sep'\\?$"),
    Illegal("a misspelt option", {"options": {"nulValue": "NA"}}, "'nulValue', which is no option of Spark's .*mean 'nullValue'\\?$"),
    Illegal("an option without effect", {"options": {"MULTILINE": "true"}}, "'MULTILINE', which has no effect here: text files are"),
    Illegal("an option for writing", {"options": {"quoteAll": "true"}}, "'quoteAll', which has no effect here: it is an option for wr"),
    Illegal("a file source's option", {"options": {"pathGlobFilter": "*.csv"}}, "'pathGlobFilter', which has no effect here: .*every file"),
    Illegal("an option that is no text", {"options": {1: "a"}}, "`options` of source 's' has 1, which is no option"),
    Illegal("a number of NaN", {"options": {"nanValue": "n/a"}}, "'nanValue', which has no effect here: the columns of CSV are read as"),
    *[
        Illegal(f"{name} {value!r}", {"options": {name: value}}, f"`options` is .*for '{name}', {legal}")
        for name, value, legal in [
            ("comment", "##", "one character"),
            ("comment", "\U0001f600", "one character"),
            ("maxColumns", "x", "a whole number from 1 to 2147483647$"),
            ("maxColumns", "0", "a whole number"),
            ("maxCharsPerColumn", "-2", "a whole number .*, or -1 for no limit"),
            ("maxStringLen", "-1", "a whole number"),
            ("maxNumLen", "10 MB", "a whole number"),
            ("inputBufferSize", "9999999999", "a whole number"),
            ("allowComments", "maybe", "'true' or 'false'"),
            ("ignoreLeadingWhiteSpace", "", "'true' or 'false'"),
            ("unescapedQuoteHandling", "x", "STOP_AT_CLOSING_QUOTE, "),
            ("timeZone", "Mars", "a region such as"),
            ("timeZone", "", "a region such as"),
        ]
    ],
    Illegal("another mode", {"options": {"mode": "FAILFAST"}}, "`options` is .*quarantine"),
    Illegal("tags as a list", {"tags": ["x"]}, r"`tags` is \['x'\]; legal: a mapping"),
    Illegal("no tags", {"tags": None}, "`tags` is None; legal: a mapping"),
    Illegal("no options", {"options": None}, "`options` is None; legal: a mapping"),
    Illegal("one rule", {"rules": RowRule("r", "k > 1")}, "`rules` is RowRule.*; legal: a tuple of RowRule"),
    Illegal("a rule as text", {"rules": ["k > 1"]}, "`rules` is .*; legal: a tuple of RowRule"),
    Illegal("no key", {"unique_key": None}, "`unique_key` is None; legal: a tuple of column names"),
    Illegal("no horizon", {"duplicate_horizon": None}, "`duplicate_horizon` is None; legal: whole milliseconds"),
    *[
        Illegal(f"{parameter} of {column}", fields, f"`{parameter}` is '.*{column}.*; legal: .*the columns of source 's' are k$")
        for parameter, column, fields in [
            ("event_time", "event_time", {"event_time": "event_time"}),
            ("event_time", "seq", {"event_time": "timestamp_millis(seq)"}),
            ("event_time", "ingested_at", {"event_time": "ingested_at - INTERVAL 1 MINUTE"}),
            ("condition", "seq", {"rules": (RowRule("r", "seq > 1"),)}),
            ("condition", "ingested_at", {"rules": (RowRule("r", "event_time <= ingested_at"),)}),
            ("watermark", "event_time", {"watermark": Punctuated("event_time")}),
            ("marker", "seq", {"watermark": Punctuated("event_time_raw", "seq = 1")}),
            ("watermark", "ingested_at", {"watermark": BatchExpression("max(ingested_at)")}),
        ]
    ],
    Illegal("no source name", {"name": ""}, "`name` is ''; legal: at most 128 characters: a letter"),
    Illegal("a path as a name", {"name": "../x"}, "`name` is '../x'"),
    Illegal("a folder's name", {"name": "a/b"}, "`name` is 'a/b'"),
    Illegal("a reserved name", {"name": "Ledger"}, "`name` is 'Ledger'; legal: a name other than changelog, early, events"),
    Illegal("a long source name", {"name": "a" * 129}, "at most 128"),
]


@pytest.mark.parametrize("case", ILLEGAL, ids=lambda c: c.id)
def test_illegal_contracts_are_refused(case: Illegal) -> None:
    with pytest.raises(OperatorError, match=case.match):
        contract_with(**case.fields)


@pytest.mark.parametrize(
    ("field", "value", "legal"),
    [
        ("operator", None, r"`operator` is None; legal: an operator with its parameters"),
        ("operator", Aggregate, r"`operator` is <class .*>; legal: an operator with its parameters"),
        ("inputs", "l", r"`inputs` is 'l'; legal: a tuple of names of sources and tables, such as \('l',\)$"),
        ("inputs", None, r"`inputs` is None; legal: a tuple of names"),
        ("inputs", (["l"],), r"`inputs` is \(\['l'\],\); legal: a tuple of names"),
        ("description", 5, "`description` is 5; legal: text$"),
        ("version", 0, "`version` is 0; legal: text, such as '2'$"),
        ("columns", {"n": 1}, r"`columns` is \{'n': 1\}; legal: \{name of a column: its description\}"),
        ("prepare", ["l"], r"`prepare` is \['l'\]; legal: \{name of an input: Preparation"),
        ("columns", ["n"], r"`columns` is \['n'\]; legal: \{name of a column: its description\}"),
        ("shape", "n > 1", r"`shape` is 'n > 1'; legal: Shape\(where"),
    ],
)
def test_a_value_of_another_kind_is_refused(field: str, value: Any, legal: str) -> None:
    with pytest.raises(ContractError, match=legal):
        DerivedAsset(**{"name": "n", "inputs": ("l",), "operator": Aggregate(by="k", aggregates={"n": "count(*)"}), field: value})


def test_illegal_rules_watermarks_and_assets_are_refused() -> None:
    with pytest.raises(ContractError, match="`name` is '\\\\x00'"):
        RowRule("\0", "k > 1")
    with pytest.raises(ContractError, match="`condition` is ''"):
        RowRule("x", "")
    with pytest.raises(ContractError, match="`action` is 'drop'; legal: warn, quarantine, fail"):
        RowRule("x", "k > 1", "drop")  # pyright: ignore[reportArgumentType]
    with pytest.raises(ContractError, match="`marker` is ''"):
        Punctuated("w", "")
    with pytest.raises(OperatorError, match="`bound` is '-1 s'"):
        BoundedOutOfOrderness("-1 s")
    with pytest.raises(ContractError, match="`name` is 'events'"):
        DerivedAsset(name="events", inputs=("l",), operator=Aggregate(by="k", aggregates={"n": "count(*)"}))


def test_legal_contracts_are_accepted() -> None:
    legal = ("order-id", "@timestamp", "$type", "a:b", "1st", "größe", "कीमत", "select", "Mixed", "a" * 255)
    contract = contract_with(
        schema=schema_of(*legal), unique_key=legal[:2], options={"sep": "\t", "quote": "", "nullValue": "NA", "mode": "PERMISSIVE"}
    )
    assert contract.struct.fieldNames() == [*legal, "ts"]
    assert contract_with(name="L").log == "events/L"
    assert contract_with(schema="k STRING, v VARIANT", event_time="v").event_time == "v"
    wide = contract_with(schema=schema_of(*[f"c{n}" for n in range(999)]))
    assert len(wide.with_added_columns([StructField(f"new {n}", StringType()) for n in range(100)]).struct) == 1_100


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


def contract_or_error(**fields: Any) -> SourceContract | str:
    """Return the contract, or the text of its error."""
    try:
        return contract_with(**fields)
    except OperatorError as error:
        return str(error)


@pytest.mark.parametrize("field", FIELDS)
@given(data=st.data())
def test_any_value_of_a_field_is_legal_or_refused_with_the_name_of_the_field(field: str, data: st.DataObject) -> None:
    value = data.draw(FIELDS[field])
    found = contract_or_error(**{field: value})
    if isinstance(found, str):
        assert found.startswith(f"`{field}` is {value!r}; legal: ")
        return
    if FIELDS[field] is durations:
        assert 0 <= length_ms(value, field) <= 3_652_059 * 86_400_000
    assert found.log.removeprefix("events/").isidentifier()


@given(st.lists(text, max_size=4))
@example(["K", "K"])
def test_any_column_names_are_legal_or_refused_by_name(names: list[str]) -> None:
    found = contract_or_error(schema=schema_of(*names))
    if isinstance(found, str):
        assert any(found.startswith(f"`schema` is {name!r}; legal: ") for name in [*names, "ts"])
        return
    assert not [n for n in found.struct.fieldNames() if any(c in n for c in " ,;{}()\n\t=.`\"'\\[]*")]


@given(st.dictionaries(st.sampled_from(["sep", "quote", "escape", "mode", "nullValue", "delimiter"]), text, max_size=2))
def test_any_option_is_legal_or_refused_by_name(options: dict[str, str]) -> None:
    found = contract_or_error(options=options)
    assert found.startswith("`options` is {") if isinstance(found, str) else options.get("sep", ",") and options.get("delimiter", ",")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"owners": "team:a"}, r"`owners` is 'team:a'; legal: a list of mail addresses"),
        ({"owners": ["anna"]}, r"`owners` is 'anna'; legal: a list of mail addresses that .* or of teams"),
        ({"owners": ["ops@example.technology"]}, "`owners` is 'ops@example.technology'; legal: .*2 to 7 letters"),
        ({"owners": ["-a@b.co"]}, "`owners` is '-a@b.co'; legal: .*that start with a letter"),
        ({"owners": ["a.b+c@team.example.museum"]}, None),
        ({"owners": [3]}, r"`owners` is 3; legal: a list"),
        ({"owners": ["anna@example.org", "team:data"]}, None),
        ({"tags": {"a b": "c"}}, r"`tags` is \{'a b': 'c'\}; legal: a mapping with keys and values of at most 63"),
        ({"tags": {"a/b/c": "c"}}, r"`tags` is"),
        ({"tags": {"team/a": "x" * 64}}, r"`tags` is"),
        ({"tags": {"team/a": ""}}, None),
    ],
)
def test_owners_and_tags_are_those_that_dagster_accepts(changes: dict[str, Any], message: str | None) -> None:
    made = {
        "source": lambda: SourceContract(name="l", schema="k STRING, ts TIMESTAMP", event_time="ts", **changes),
        "table": lambda: DerivedAsset(name="n", inputs=("l",), operator=Aggregate(by="k", aggregates={"n": "count(*)"}), **changes),
    }
    for make in made.values():
        if message is None:
            value = make()
            dg.AssetSpec("n", owners=value.owners, tags=value.tags)
        else:
            with pytest.raises(ContractError, match=message):
                make()


@pytest.mark.parametrize(
    "changes",
    [
        {"event_time": "Ingested_At"},
        {"rules": (RowRule("r", "event_time >= event_time_raw AND arrival >= 0"),)},
        {"watermark": Punctuated("event_time_raw", "arrival = 0")},
        {"watermark": BatchExpression("max(event_time)")},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_an_expression_can_read_the_columns_that_the_engine_has_at_that_point(changes: dict[str, Any]) -> None:
    contract_with(**changes)


@pytest.mark.parametrize("name", ["output", "type", "class", "import", "advance", "event_logs", "maintain"])
def test_a_table_cannot_have_the_name_of_another_step_in_dagster(name: str) -> None:
    assert contract_with(name=name).log == f"events/{name}"
    with pytest.raises(ContractError, match=f"`name` is '{name}'; legal: a name other than .*, such as '{name}_rows'"):
        DerivedAsset(name=name, inputs=("l",), operator=Aggregate(by="k", aggregates={"n": "count(*)"}))


@pytest.mark.parametrize("group", ["a b", "", "a/", None])
def test_a_group_has_a_name_that_dagster_accepts(group: Any) -> None:
    with pytest.raises(ContractError, match=r"`group` is .*; legal: letters"):
        DerivedAsset(name="n", inputs=("l",), operator=Aggregate(by="k", aggregates={"n": "count(*)"}), group=group)
