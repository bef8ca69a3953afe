"""A workspace on a snapshot."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from assets.contracts import BoundedOutOfOrderness, DerivedAsset
from platform_defs.cli.failures import Failures, without_rows
from platform_defs.engine import Engine
from platform_defs.engine.advance.corrections import is_corrected
from platform_defs.engine.advance.oldest_change import oldest_change
from platform_defs.engine.ingest.clock import waits_of
from platform_defs.engine.inputs.progress import results_table
from platform_defs.engine.inputs.timelines import operator_timeline
from platform_defs.engine.inputs.waited_for import MAX_KEY_LENGTH, late_key, watermark_key
from platform_defs.engine.lake.tables import LakeSnapshot
from platform_defs.engine.ledger.summarize import summary_of
from tests.support.bare_lake import bare_engine, commit_batch, commit_step
from tests.support.clock import Clock
from tests.support.small_sources import START, join, source


def _ladder(steps: int) -> list[DerivedAsset]:
    """Tables that are each joined from the two before. The last one reads the first along more than 1.6^(steps - 2) paths."""
    return [join("t0"), join("t1", ("l", "t0")), *[join(f"t{n}", (f"t{n - 2}", f"t{n - 1}")) for n in range(2, steps)]]


def _ladder_engine(folder: Path, tables: Sequence[DerivedAsset]) -> Engine:
    """An engine with a ladder of tables, whose columns are not checked: joins of joins have columns of the same name."""
    engine = bare_engine(folder, Clock(), [source("l"), source("r")], [])
    object.__setattr__(engine, "assets", {table.name: table for table in tables})
    return engine


def test_a_snapshot_opens_each_table_once_and_after_its_readers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each table is joined from the two before it. A walk along each path to the first table would not end: there are 10^12 of them."""
    steps = 60
    tables = [*_ladder(steps), join("other")]
    opened = list[str]()
    workspace = bare_engine(tmp_path, Clock(), [source("l"), source("r")], []).pending.workspace
    workspace = replace(workspace, assets={table.name: table for table in tables})
    monkeypatch.setattr(LakeSnapshot, "delta_for_reading", lambda _, table: opened.append(table))
    last = f"t{steps - 1}"
    workspace.take_snapshot(last)
    assert workspace.input_named(last).sources == {"l", "r"}
    assert opened == [results_table(workspace.assets[last]), *[f"t{n}" for n in reversed(range(steps))]]


def test_a_long_ladder_of_tables_is_described_at_once(tmp_path: Path) -> None:
    """Nothing walks along each path between two tables: there are more than 10^8 of them, and such a walk takes minutes."""
    tables = _ladder(40)
    clocked = source("l", event_time="ingested_at", watermark=BoundedOutOfOrderness("1 minute"))
    engine = _ladder_engine(tmp_path, tables)
    commit_batch(engine, {"l": {"watermark": START}, "r": {"watermark": START}})
    for table in tables:
        commit_step(engine, table.name, closed_to=START)
    workspace, last = engine.pending.workspace, tables[-1]
    assert engine.pending.describe_progress(last.name)["steps"] == 1
    assert operator_timeline(workspace, last).after[1] is not None
    assert not is_corrected(last, engine.assets)
    assert (oldest_change(workspace, last) or START) < START
    failures = Failures(engine.assets, without_rows, {"other": "failed"})
    assert not failures.is_blocked(last.name)
    failures.reasons["t0"] = "failed"
    assert failures.is_blocked(last.name)
    assert len(waits_of({"l": clocked, "r": source("r")}, engine.assets)["l"]) == len(tables)


def test_the_key_of_a_long_ladder_is_short_and_a_summary_records_its_watermark(tmp_path: Path) -> None:
    tables = _ladder(40)
    engine = _ladder_engine(tmp_path, tables)
    for mark in (START, START + 1, START + 2):
        commit_batch(engine, {"l": {"watermark": mark}, "r": {"watermark": mark}})
    workspace, last = engine.pending.workspace, tables[-1]
    keys = [watermark_key(table, workspace.input_named) for table in tables]
    assert keys[0] == "l r", "a key that is not too long is not hashed"
    assert max(map(len, keys)) <= MAX_KEY_LENGTH
    assert len(set(keys)) == len(tables)
    assert late_key(last, tables[-2], workspace.input_named).startswith(keys[-1])
    engine.ledger.summarize(engine.ledger.version, summary_of(engine.ledger, 2, {keys[-1]: START - 7}, {}))
    assert operator_timeline(workspace, last).after[2] == START - 7
