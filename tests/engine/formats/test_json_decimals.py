"""JSON numbers keep their digits: a decimal column gets the same value as from the same digits in a CSV file, or both are quarantined."""

import json
from pathlib import Path
from urllib.parse import unquote

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from platform_defs.engine import Engine
from platform_defs.engine.lake.tables import Lake
from tests.conftest import MakeEngine
from tests.support.clock import Clock
from tests.support.small_sources import START, iso, land, rows_of, source

TIME = iso(START)
TYPES = {"wide": "decimal(38,18)", "money": "decimal(10,2)", "whole": "decimal(38,0)", "tiny": "decimal(38,38)"}
DIGITS = [
    "12345678901234567890.123456789012345678",
    "0.1000000000000000055",
    "-0.00000000000000000049",
    "-0.0000000000000000005",
    "99999999999999999999.9999999999999999994",
    "99999999999999999999.9999999999999999995",
    "-99999999999999999999.999999999999999999",
    "99999999999999999999999999999999999999",
    "100000000000000000000000000000000000000",
    "0.12345678901234567890123456789012345678901234567890",
    "1.2345678901234567890E-7",
    "1.2345678901234567890123e+10",
    "8.41E21",
    "2.0E-3",
    "1e-7",
    "1E+30",
    "1e99",
    "1e100",
    "1e400",
    "1e-400",
    "1e600000000",
    "0",
    "-0.0",
    "1.005",
    "1.00499999999999999999999",
    "1234567.885",
    "99999999.994999999999999999999",
    "99999999.995",
    "99999999.99500000000000000000001",
    "123456789012345678.91",
    "1234567890123456",
    "123456789.12345678",
]


@pytest.fixture(scope="module")
def engine(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Engine:
    """A column for each type, and for each of them files with the digits as JSON numbers, as JSON texts and as CSV."""
    root, schema = tmp_path_factory.mktemp("numbers"), StructType().add("k", "string").add("ts", "timestamp")
    for name, type_ in TYPES.items():
        schema = schema.add(name, type_)
    sources, folders = {"l": source("l", schema=schema)}, {"l": str(root / "in")}
    engine = Engine(Lake(str(root / "lake")), sources, {}, lambda: spark, Clock(), folders=folders)
    for name in TYPES:
        land(engine, "l", f"{name} number.jsonl", [f'{{"k":"{n}","{name}":{d},"ts":"{TIME}"}}' for n, d in enumerate(DIGITS)])
        land(engine, "l", f"{name} text.jsonl", [f'{{"k":"{n}","{name}":"{d}","ts":"{TIME}"}}' for n, d in enumerate(DIGITS)])
        land(engine, "l", f"{name} fields.csv", [f"k,{','.join(TYPES)},ts", *(_csv_line(n, name, d) for n, d in enumerate(DIGITS))])
    engine.ingest()
    return engine


def _csv_line(k: int, name: str, digits: str) -> str:
    """A line with a value of one column."""
    return f"{k},{','.join(digits if column == name else '' for column in TYPES)},{TIME}"


Outcomes = dict[str, dict[str, str]]


@pytest.fixture(scope="module")
def outcomes(engine: Engine) -> Outcomes:
    """The value or the reason of the quarantine by file and digits."""
    [batch] = engine.ledger.batches()[-1]
    files = [unquote(Path(offset.split("|")[0]).name) for offset in batch.offsets]
    found: Outcomes = {file: {} for file in files}
    values = [f"cast({name} as string) AS {name}" for name in TYPES]
    for row in engine.views.table("events/l").selectExpr("arrival", "k", *values).collect():
        file = files[row.arrival >> 42]
        found[file][DIGITS[int(row.k)]] = row[file.split()[0]]
    for arrival, raw, reason in engine.views.table("quarantine/l").select("arrival", "raw", "reason").collect():
        k = json.loads(raw)["k"] if raw.startswith("{") else raw.split(",")[0]
        found[files[arrival >> 42]][DIGITS[int(k)]] = reason
    return found


@pytest.mark.parametrize("name", TYPES)
def test_a_json_number_equals_the_same_digits_in_csv(outcomes: Outcomes, name: str) -> None:
    assert outcomes[f"{name} fields.csv"].keys() == set(DIGITS)
    assert outcomes[f"{name} number.jsonl"] == outcomes[f"{name} fields.csv"]
    assert outcomes[f"{name} text.jsonl"] == outcomes[f"{name} fields.csv"]
    assert {reason for reason in outcomes[f"{name} fields.csv"].values() if ":" in reason} == {f"type: {name} is no {TYPES[name]}"}


def test_json_decimals_are_exact_next_to_values_of_any_kind(make_engine: MakeEngine) -> None:
    schema = (
        StructType().add("k", "string").add("p", "decimal(38,18)").add("q", "decimal(10,2)").add("ts", "timestamp").add("note", "string")
    )
    engine, number = make_engine([source("l", schema=schema)], []), "0.1000000000000000055"
    rows = {
        "a comma in a note": '"q":1,"note":"12,5"',
        "a comma in a decimal": '"q":"1,5"',
        "a decimal that is none": '"q":"x"',
        "one that overflows": '"q":123456789.5',
        "a text after blanks": '"q":" 2.50 "',
        "a null": '"q":null',
        "an escape": '"q":"\\u0031.5","note":"\\u0031"',
        "a number in a note": '"note":0.1000000000000000055',
        "an object in a note": '"note":{"p":0.5}',
        "an exponent in a text": '"note":"x:1e999"',
        "a huge exponent": '"q":1e600000000',
        "a huge exponent first, the name twice": '"q":1e600000000,"q":2',
        "a huge text first, the name twice": '"q":"1e600000000","q":2',
    }
    land(engine, "l", "1.jsonl", [f'{{"k":"{k}","p":{number},"ts":"{TIME}",{more}}}' for k, more in rows.items()])
    engine.ingest()
    found = {
        k: (p, q, note)
        for k, p, q, note in rows_of(engine.views.table("events/l").selectExpr("k", "cast(p as string)", "cast(q as string)", "note"))
    }
    exact = "0.100000000000000006"
    assert {k: v for k, v in found.items() if v[0] == exact} == {
        "a comma in a note": (exact, "1.00", "12,5"),
        "a text after blanks": (exact, "2.50", None),
        "a null": (exact, None, None),
        "an escape": (exact, "1.50", "1"),
        "a number in a note": (exact, None, "0.1"),
        "an object in a note": (exact, None, '{"p":0.5}'),
    }
    assert found.keys() >= {"an exponent in a text", "a huge exponent first, the name twice", "a huge text first, the name twice"}
    assert rows_of(engine.views.table("quarantine/l"), "reason") == [("type: q is no decimal(10,2)",)] * 4


@pytest.mark.parametrize("number", [50, pytest.param(200, marks=pytest.mark.soak)])
def test_many_json_decimals_are_exact(make_engine: MakeEngine, number: int) -> None:
    schema = StructType().add("k", "string").add("ts", "timestamp")
    for n in range(number):
        schema = schema.add(f"d{n}", "decimal(38,18)")
    engine = make_engine([source("l", schema=schema)], [])
    numbers = ",".join(f'"d{n}":{n}.100000000000000005' for n in range(number))
    land(engine, "l", "1.jsonl", [f'{{"k":"a","ts":"{TIME}",{numbers}}}'])
    engine.ingest()
    [row] = engine.views.table("events/l").collect()
    assert [str(row[f"d{n}"]) for n in range(number)] == [f"{n}.100000000000000005" for n in range(number)]


def test_a_number_with_an_extreme_exponent_is_quarantined(make_engine: MakeEngine) -> None:
    """Spark takes 10 s for each of these, and hours for an exponent of nine digits.

    The options make further lines of the same source legal: their decimals are exact too, and their names are checked.
    """
    item = StructType().add("d", "decimal(10,2)")
    options = {"allowComments": "true", "allowUnquotedFieldNames": "true", "allowNumericLeadingZeros": "true"}
    flat = source("flat", schema=StructType().add("k", "string").add("p", "decimal(10,2)").add("ts", "timestamp"), options=options)
    deep = source("deep", schema=StructType().add("k", "string").add("p", item).add("ts", "timestamp"), options=options)
    engine = make_engine([flat, deep], [])
    land(engine, "flat", "a.csv", ["k,p,ts", f"tiny,1e-10000000,{TIME}", f"good,1.5,{TIME}"])
    land(engine, "flat", "b.jsonl", [f'{{"k":"tiny text","p":"1e-10000000","ts":"{TIME}"}}'])
    below = "1.00499999999999999999999"
    legal = [f'k:"bare",p:{below}', f'"k":"comment","p":{below} /* net */', f'"k":"zeros","p":00{below}']
    illegal = ['"k":"huge","p": /* net */ 1e600000000', 'k:"cased",P:1']
    land(engine, "flat", "d.jsonl", [f'{{"ts":"{TIME}",{line}}}' for line in [*legal, *illegal]])
    tiny = "1e-10000000"
    values = {"tiny": tiny, "text": f'"{tiny}"', "single": f"'{tiny}'", "plus": f'"+{tiny}"', "comment": f"/* net */ {tiny}", "good": "1.5"}
    land(engine, "deep", "c.jsonl", [f'{{"k":"{k}","p":{{"d":{v}}},"ts":"{TIME}"}}' for k, v in values.items()])
    engine.ingest()
    assert rows_of(engine.views.table("events/deep"), "k") == [("good",)]
    assert engine.views.table("quarantine/deep").count() == 5
    exact = [("bare", "1.00"), ("comment", "1.00"), ("good", "1.50"), ("zeros", "1.00")]
    assert rows_of(engine.views.table("events/flat").selectExpr("k", "cast(p as string) AS p")) == exact
    assert rows_of(engine.views.table("quarantine/flat"), "reason") == [
        ("malformed: it has names in another case than the contract's: P",),
        *[("type: p is no decimal(10,2)",)] * 3,
    ]
