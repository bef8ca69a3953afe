"""Two attempts are the same only if everything that their rows depend on is equal."""

from dataclasses import fields, replace
from typing import Any

import pytest
from pyspark.sql.types import StructType

from assets.contracts import BoundedOutOfOrderness, Punctuated, RowRule, SourceContract
from assets.watermark_strategies import Alignment
from platform_defs.engine.formats.files import File
from platform_defs.engine.ingest import attempts
from tests.support.small_sources import ROW, source

FILES = [File(1, "file:/in/a.csv", 7, "l"), File(2, "file:/in/b.csv", 7, "l")]
CHANGES: dict[str, Any] = {
    "name": "m",
    "schema": StructType([*ROW.fields]).add("w", "string"),
    "event_time": "coalesce(ts, ts)",
    "watermark": Punctuated("ts", marker="k = 'mark'"),
    "unique_key": ("k",),
    "duplicate_horizon": "1 day",
    "idle_timeout": "1 hour",
    "future_skew": "1 hour",
    "retention": "30 days",
    "rules": (RowRule("r", "v > 0"),),
    "options": {"nullValue": "NA"},
    "new_columns": "quarantine",
    "owners": ("team:data",),
    "tags": {"domain": "data"},
    "alignment": Alignment("shop", "1 hour"),
}


def _input(contract: SourceContract, files: list[File] = FILES, now: int = 5) -> str:
    return attempts.attempt_of(3, contract, files, now)["input"]


@pytest.mark.parametrize("changed", [f.name for f in fields(SourceContract)])
def test_every_field_of_the_contract_changes_the_attempt(changed: str) -> None:
    assert changed in CHANGES, f"{changed} is a new field of the contract: add a changed value of it to CHANGES"
    contract = source("l", idle_timeout="2 hours")  # an aligned source needs one
    assert _input(replace(contract, **{changed: CHANGES[changed]})) != _input(contract)


def test_a_changed_marker_or_bound_changes_the_attempt() -> None:
    bounds = [BoundedOutOfOrderness("1 minute"), BoundedOutOfOrderness("2 minutes"), Punctuated("ts"), Punctuated("ts", "v = 1")]
    assert len({_input(source("l", watermark=w)) for w in bounds}) == len(bounds)


def test_files_faults_and_the_reader_version_change_the_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    torn = [FILES[0], replace(FILES[1], fault="torn")]
    assert len({_input(source("l"), files) for files in (FILES, FILES[:1], torn, [torn[0], replace(torn[1], fault="missing")])}) == 4
    before = _input(source("l"))
    monkeypatch.setattr(attempts, "READER_VERSION", attempts.READER_VERSION + 1)
    assert _input(source("l")) != before


def test_tries_of_an_attempt_have_the_same_input_whatever_rows_the_clock_accepts() -> None:
    one, other = ({"seq": 3, "input": "a", attempts.GOOD: good} for good in (1, 2))
    assert attempts.is_same_input(one, other)
    assert not attempts.is_same_input(one, {**one, "seq": 4})
    assert not attempts.is_same_input(one, {**one, "input": "b"})
    assert not attempts.is_same_input(one, None)


def test_the_same_attempt_is_recognized_later_except_in_processing_time() -> None:
    assert attempts.attempt_of(3, source("l"), FILES, 5) == attempts.attempt_of(3, source("l"), FILES, 6)
    by_arrival = source("l", event_time="ingested_at")
    assert _input(by_arrival, now=5) != _input(by_arrival, now=6)
    assert _input(source("l", options={"sep": "1", "quote": "2"})) == _input(source("l", options={"quote": "2", "sep": "1"}))
