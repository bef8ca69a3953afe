"""Columns are built once for each JVM and for equal arguments, and again for others."""

from dataclasses import replace

import pytest
from pyspark import SparkContext

from assets.contracts import RowRule, SourceContract
from platform_defs.engine.formats.built_once import built_once
from tests.conftest import MakeEngine
from tests.support.small_sources import START, iso, land, rows_of, source

CONTRACT = SourceContract(name="l", schema="k STRING, ts TIMESTAMP", event_time="ts")


def test_columns_are_built_once_for_equal_arguments_and_a_jvm(monkeypatch: pytest.MonkeyPatch) -> None:
    built = list[tuple[SourceContract, str, int]]()

    @built_once
    def build(contract: SourceContract, name: str, number: int = 0) -> int:
        built.append((contract, name, number))
        return len(built)

    assert [build(CONTRACT, "a"), build(replace(CONTRACT), "a"), build(CONTRACT, "a")] == [1, 1, 1]
    assert [build(replace(CONTRACT, event_time="now_ts", schema="now_ts TIMESTAMP"), "a"), build(CONTRACT, "b")] == [2, 3]
    assert [build(CONTRACT, "a", number=2), build(CONTRACT, "a", number=2), build(CONTRACT, "a")] == [4, 4, 1]
    monkeypatch.setattr(SparkContext, "_gateway", object())
    assert [build(CONTRACT, "a"), build(CONTRACT, "a")] == [5, 5]


def test_contracts_with_one_name_are_equal_only_with_equal_values() -> None:
    others = [replace(CONTRACT, new_columns="quarantine"), replace(CONTRACT, options={"sep": ";"}), replace(CONTRACT, future_skew=None)]
    assert len({CONTRACT, replace(CONTRACT), *others}) == 1 + len(others)


def test_a_changed_contract_applies_to_the_next_batch_of_its_source(make_engine: MakeEngine) -> None:
    first = make_engine([source("l")], [])
    land(first, "l", "1.csv", ["k,v,ts", f"a,5,{iso(START)}"])
    first.ingest()
    second = make_engine([source("l", options={"sep": ";"}, rules=(RowRule("v is small", "v < 3"),))], [])
    land(second, "l", "2.csv", ["k;v;ts", f"b;1;{iso(START)}", f"c;5;{iso(START)}"])
    land(second, "l", "3.jsonl", [f'{{"k": "d", "v": 7, "ts": "{iso(START)}"}}'])
    second.ingest()
    assert rows_of(second.views.table("events/l"), "k") == [("a",), ("b",)]
    assert rows_of(second.views.table("quarantine/l"), "reason") == [("rule: v is small",)] * 2
