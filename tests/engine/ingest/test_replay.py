"""A replay writes nothing if another writer has committed since the replay read the log."""

from contextlib import nullcontext
from typing import Any

import pytest

from assets.contracts import Punctuated, RowRule
from platform_defs.engine.ingest import replay as replay_module
from platform_defs.engine.ingest.errors import IngestError
from platform_defs.engine.inputs.stored_rows import read_log
from platform_defs.engine.lake.errors import LakeError
from platform_defs.engine.lake.tables import Lake
from tests.conftest import MakeEngine
from tests.support.kills import run_and_die
from tests.support.small_sources import Event, land, raw_rows, replay, rows_of, source


@pytest.mark.parametrize("written", ["a batch", "uncommitted rows"])
def test_a_replay_is_refused_after_another_writer_has_committed(
    make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch, written: str
) -> None:
    """The other writes after the replay has cleared uncommitted rows, as it can if the locks fail."""
    ours, other = (make_engine([source("l")], []) for _ in range(2))
    replay(ours, [{"l": [Event("a", 1, 0)]}])
    before, clear = ours.ledger.head, replay_module.clear_uncommitted
    land(other, "l", "1.jsonl", [Event("b", 2, 0).line])

    def clear_and_let_the_other_write(*args: Any) -> None:
        clear(*args)
        files = other.ingestion.new_files("l")
        if written == "a batch":
            other.ingestion.batches.files(files)
        else:
            run_and_die(lambda: other.ingestion.batches.files(files), "ingest.before_ledger")

    monkeypatch.setattr(replay_module, "clear_uncommitted", clear_and_let_the_other_write)
    monkeypatch.setattr(Lake, "writer", lambda *_: nullcontext())
    with pytest.raises(LakeError, match="another writer has committed meanwhile, so nothing was written"):
        replay(ours, [{"l": [Event("c", 3, 0)]}])
    monkeypatch.undo()
    assert make_engine([source("l")], []).ledger.head == before + (written == "a batch")
    assert ("c",) not in rows_of(ours.views.table("events/l"), "k")
    replay(ours, [{"l": [Event("c", 3, 0)]}])
    assert ("c",) in rows_of(read_log(ours.workspace, "l", ours.ledger.head), "k")


def test_rows_of_no_given_batch_are_refused_and_no_batch_commits_nothing(make_engine: MakeEngine) -> None:
    engine = make_engine([source("l")], [])
    replay(engine, [])
    assert engine.ledger.head == 0
    rows = raw_rows(engine.spark, [("a", "1", "2026-01-01T00:00:00Z", batch, batch) for batch in (0, 1, 4)])
    with pytest.raises(IngestError, match=r"rows to replay into 'l' belong to the batches \[1, 4\]; legal: 0 to 0"):
        engine.ingestion.replay({"l": rows}, [{}])
    with pytest.raises(IngestError, match=r"legal: none, since no batch was given"):
        engine.ingestion.replay({"l": rows}, [])
    assert engine.ledger.head == 0


def test_a_rule_that_raises_an_error_in_a_replay_is_violated(make_engine: MakeEngine) -> None:
    engine = make_engine([source("l", rules=[RowRule("number", "cast(k AS INT) > 0")])], [])
    with pytest.raises(IngestError, match="a row to replay into 'l' does not pass its contract: rule: number"):
        replay(engine, [{"l": [Event("secret", 1, 0)]}])
    assert engine.ledger.head == 0


def test_a_row_that_violates_a_failing_rule_is_not_replayed_and_one_that_rules_warn_of_is_counted(make_engine: MakeEngine) -> None:
    rules = [RowRule("small", "v < 10", "fail"), RowRule("positive", "v > 0", "warn")]
    engine = make_engine([source("l", rules=rules)], [])
    with pytest.raises(IngestError, match="a row to replay into 'l' does not pass its contract: rule: small"):
        replay(engine, [{"l": [Event("a", 1, 0), Event("b", 10, 1)]}])
    assert engine.ledger.head == 0
    replay(engine, [{"l": [Event("a", 1, 0), Event("b", -1, 1)]}])
    [batch, *_] = engine.ledger.batches()
    assert [(s.accepted, s.warned) for s in batch] == [(2, 1)]


def test_a_marker_is_not_replayed(make_engine: MakeEngine) -> None:
    engine = make_engine([source("l", watermark=Punctuated("ts", marker="k = 'marker'"))], [])
    with pytest.raises(IngestError, match="does not pass its contract: it is a marker; set its watermark by `watermarks`"):
        replay(engine, [{"l": [Event("a", 1, 0), Event("marker", 0, 1)]}])
    assert engine.ledger.head == 0
