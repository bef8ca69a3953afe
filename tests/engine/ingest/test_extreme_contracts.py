"""Contracts with extreme legal values: long durations, unusual names of rules and sources, and types of every kind."""

from typing import Any

from assets.contracts import BoundedOutOfOrderness, RowRule
from tests.conftest import MakeEngine
from tests.support.small_sources import Event, land, source


def test_rows_of_contracts_with_extreme_values_are_ingested(make_engine: MakeEngine) -> None:
    """Extreme legal values, each in a separate source."""
    forever = f"{3_652_059} days"
    given: dict[str, dict[str, Any]] = {
        "durations": dict.fromkeys(("duplicate_horizon", "idle_timeout", "future_skew"), forever),
        "zeros": {**dict.fromkeys(("duplicate_horizon", "idle_timeout"), 0), "watermark": BoundedOutOfOrderness(forever)},
        "Upper_9": {
            "rules": (RowRule("k.`k` 'is' {0} %s \\ é", "k != 'x'", "warn"), RowRule("$1", "k != 'y'"), RowRule("-", "true", "fail"))
        },
        "t" * 128: {"schema": "k string, v int, ts timestamp, c char(3), vc varchar(5), d decimal(38,18), n timestamp_ntz, b binary"},
        "nested": {"schema": "k string, v int, ts timestamp, s struct<_a:struct<`b-c`:int>>, l array<map<string,struct<x:date>>>"},
        "variants": {"schema": "k string, v int, ts timestamp, x variant"},
        "options": {"options": {"nullValue": "NA", "mode": "PERMISSIVE", "sep": "\t"}},
    }
    engine = make_engine([source(name, unique_key=("k",), **fields) for name, fields in given.items()], [])
    for name in given:
        land(engine, name, "1.jsonl", [Event("a", 1, 0).line, Event("x", 1, 1).line, Event("a", 1, 0).line])
    [entry, *_] = engine.ingest()  # a source with a tiny idle timeout is idle in the next batch
    assert {s.source: (s.accepted, s.duplicate, s.quarantined) for s in entry} == dict.fromkeys(given, (2, 1, 0))
    assert {s.warned for s in entry if s.source == "Upper_9"} == {1}
