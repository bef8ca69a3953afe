"""JSON numbers keep their digits: a decimal column gets the same value as from the same digits in a CSV file, or both are quarantined."""

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from platform_defs.engine import Engine
from platform_defs.engine.lake.tables import Lake
from tests.conftest import MakeEngine
from tests.operators.frames import tagged
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
    """A source for each type: the digits as JSON numbers, as JSON texts and as CSV."""
    root = tmp_path_factory.mktemp("numbers")
    sources = {n: source(n, schema=StructType().add("k", "string").add("p", t).add("ts", "timestamp")) for n, t in TYPES.items()}
    engine = Engine(Lake(str(root / "lake")), sources, {}, lambda: spark, Clock(), folders={n: str(root / "in" / n) for n in sources})
    for name in sources:
        land(engine, name, "number.jsonl", [f'{{"k":"{n}","p":{d},"ts":"{TIME}"}}' for n, d in enumerate(DIGITS)])
        land(engine, name, "text.jsonl", [f'{{"k":"{n}","p":"{d}","ts":"{TIME}"}}' for n, d in enumerate(DIGITS)])
        land(engine, name, "fields.csv", ["k,p,ts", *[f"{n},{d},{TIME}" for n, d in enumerate(DIGITS)]])
    engine.ingest()
    return engine


Outcomes = dict[str, dict[str, str]]


@pytest.fixture(scope="module")
def outcomes(engine: Engine) -> dict[str, Outcomes]:
    """For each type, the value or the reason of the quarantine by file and digits."""
    last = {s.source: [Path(o.split("|")[0]).name for o in s.offsets] for s in engine.ledger.batches()[-1]}
    found: dict[str, Outcomes] = {name: {file: {} for file in files} for name, files in last.items()}
    accepted = {name: engine.views.table(f"events/{name}").selectExpr("arrival", "k", "cast(p as string) AS p") for name in TYPES}
    rejected = {name: engine.views.table(f"quarantine/{name}").select("arrival", "raw", "reason") for name in TYPES}
    for name, arrival, k, p in tagged(accepted).collect():
        found[name][last[name][arrival >> 42]][DIGITS[int(k)]] = p
    for name, arrival, raw, reason in tagged(rejected).collect():
        k = json.loads(raw)["k"] if raw.startswith("{") else raw.split(",")[0]
        found[name][last[name][arrival >> 42]][DIGITS[int(k)]] = reason
    return found


@pytest.mark.parametrize("name", TYPES)
def test_a_json_number_equals_the_same_digits_in_csv(outcomes: dict[str, Outcomes], name: str) -> None:
    found = outcomes[name]
    assert found.keys() == {"number.jsonl", "text.jsonl", "fields.csv"}
    assert found["fields.csv"].keys() == set(DIGITS)
    assert found["number.jsonl"] == found["fields.csv"]
    assert found["text.jsonl"] == found["fields.csv"]


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


def test_many_json_decimals_are_exact(make_engine: MakeEngine) -> None:
    schema = StructType().add("k", "string").add("ts", "timestamp")
    for n in range(200):
        schema = schema.add(f"d{n}", "decimal(38,18)")
    engine = make_engine([source("l", schema=schema)], [])
    numbers = ",".join(f'"d{n}":{n}.100000000000000005' for n in range(200))
    land(engine, "l", "1.jsonl", [f'{{"k":"a","ts":"{TIME}",{numbers}}}'])
    engine.ingest()
    [row] = engine.views.table("events/l").collect()
    assert [str(row[f"d{n}"]) for n in range(200)] == [f"{n}.100000000000000005" for n in range(200)]


def test_a_number_with_an_extreme_exponent_is_quarantined(make_engine: MakeEngine) -> None:
    """Spark takes 10 s for each of these, and hours for an exponent of nine digits."""
    item = StructType().add("d", "decimal(10,2)")
    flat = source("flat", schema=StructType().add("k", "string").add("p", "decimal(10,2)").add("ts", "timestamp"))
    deep = source("deep", schema=StructType().add("k", "string").add("p", item).add("ts", "timestamp"))
    engine = make_engine([flat, deep], [])
    land(engine, "flat", "a.csv", ["k,p,ts", f"tiny,1e-10000000,{TIME}", f"good,1.5,{TIME}"])
    land(engine, "flat", "b.jsonl", [f'{{"k":"tiny text","p":"1e-10000000","ts":"{TIME}"}}'])
    values = {"tiny": "1e-10000000", "tiny text": '"1e-10000000"', "good": "1.5"}
    land(engine, "deep", "c.jsonl", [f'{{"k":"{k}","p":{{"d":{v}}},"ts":"{TIME}"}}' for k, v in values.items()])
    engine.ingest()
    for name in ("flat", "deep"):
        assert rows_of(engine.views.table(f"events/{name}"), "k") == [("good",)]
        assert engine.views.table(f"quarantine/{name}").count() == 2
    assert {reason for (reason,) in rows_of(engine.views.table("quarantine/flat"), "reason")} == {"type: p is no decimal(10,2)"}
