"""Early results of open windows and of pairs that are not final: their content, their triggers, and their replacement by final results."""

from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from assets.contracts import DerivedAsset, Punctuated
from operators import (
    EveryInterval,
    EveryRows,
    EveryStep,
    OperatorError,
    Session,
    Sliding,
    TopK,
    TriggerContext,
    Tumbling,
    WindowedAggregate,
)
from operators.triggers import read_trigger
from platform_defs.engine import Engine, faults
from platform_defs.engine.advance import early_results
from platform_defs.engine.inputs.identity import identity_of
from platform_defs.engine.lake.errors import LakeError
from platform_defs.engine.lake.reads import ReadTables
from platform_defs.engine.lake.small_queries import is_small
from tests.conftest import MakeEngine
from tests.support.bare_lake import bare_engine
from tests.support.clock import Clock
from tests.support.small_sources import HOUR, MINUTE, START, Event, join, land, law_violations, replay, rows_of, source

TRIGGERS = {"step": EveryStep(), "rows": EveryRows(2), "interval": EveryInterval("1 hour"), "never": None}


def _asset(name: str, **spec: Any) -> DerivedAsset:
    operator = WindowedAggregate(**{"by": "k", "window": Tumbling(size="5 minutes"), "aggregates": {"n": "count(*)"}, **spec})
    return DerivedAsset(name=name, inputs=("l",), operator=operator)


def _results(engine: Engine, asset: str) -> list[tuple[Any, ...]]:
    """Key, the start of the window in minutes, count, and whether it is final."""
    return _results_by_asset(engine, asset)[asset]


def _results_by_asset(engine: Engine, *assets: str) -> dict[str, list[tuple[Any, ...]]]:
    """The results of several assets, read by one query."""
    at = ((F.unix_millis("window_start") - START) / MINUTE).cast("int").alias("at")
    frames = [engine.views.with_early(a).select(F.lit(a).alias("asset"), "k", at, "n", "is_final") for a in assets]
    found: dict[str, list[tuple[Any, ...]]] = {a: [] for a in assets}
    for asset, *result in rows_of(reduce(DataFrame.union, frames)):
        found[asset].append(tuple(result))
    return found


def test_a_trigger_makes_early_results_of_open_windows(make_engine: MakeEngine) -> None:
    engine = make_engine([source("l")], [_asset(name, early=trigger) for name, trigger in TRIGGERS.items()])
    batches = [
        [Event("a", 1, 0), Event("b", 1, 1), Event("b", 1, 2)],
        [Event("a", 1, 3), Event("b", 1, 4), Event("a", 1, 4 * MINUTE)],
        [Event("b", 1, 5), Event("b", 1, 4 * MINUTE)],
        [Event("a", 1, 7 * MINUTE)],
    ]
    shown: dict[str, list[Any]] = {name: [] for name in TRIGGERS}
    for batch in batches:
        replay(engine, [{"l": batch}])
        names = [name for name, trigger in TRIGGERS.items() if trigger or batch is batches[-1]]  # without one, only final results are shown
        for name in names:
            engine.advance(name)
        for name, results in _results_by_asset(engine, *names).items():
            shown[name].append(results)
    final = [("a", 0, 3, True), ("b", 0, 5, True)]
    # the watermark is -1, 3, 3 and 6 minutes: the first window closes with the last batch
    assert shown["step"] == [
        [("a", 0, 1, False), ("b", 0, 2, False)],
        [("a", 0, 3, False), ("b", 0, 3, False)],
        [("a", 0, 3, False), ("b", 0, 5, False)],
        [*final[:1], ("a", 5, 1, False), *final[1:]],
    ]
    assert shown["rows"] == [
        [("b", 0, 2, False)],
        [("a", 0, 3, False), ("b", 0, 2, False)],
        [("a", 0, 3, False), ("b", 0, 5, False)],
        final,
    ]
    assert shown["interval"] == [shown["step"][0], shown["step"][1], shown["step"][1], final]
    assert shown["never"] == [final]
    version = engine.lake.version("early/step")
    assert engine.advance("step") == []
    assert engine.lake.version("early/step") == version
    assert rows_of(engine.views.table("early/step"), "k", "n", "rows_seen", "is_final") == [("a", 1, 1, False)]


def test_overlapping_windows_and_sessions_have_early_results(make_engine: MakeEngine) -> None:
    windows = {"sliding": Sliding(size="4 minutes", slide="2 minutes"), "session": Session(gap="2 minutes", longest="1 hour")}
    engine = make_engine([source("l")], [_asset(name, window=w, early=EveryStep()) for name, w in windows.items()])
    replay(engine, [{"l": [Event("a", 1, 0), Event("a", 1, 3 * MINUTE)]}, {"l": [Event("a", 1, MINUTE + 1)]}])
    for name in windows:
        engine.advance(name)
    assert _results_by_asset(engine, *windows) == {
        "sliding": [("a", -2, 1, True), ("a", 0, 3, False), ("a", 2, 1, False)],
        "session": [("a", 0, 3, False)],
    }


def test_a_session_that_grows_continues_those_that_were_shown(make_engine: MakeEngine) -> None:
    """Two sessions merge. The trigger by rows counts the rows that were shown of both; by interval, they stay as they were shown."""
    triggers = {"rows": EveryRows(3), "interval": EveryInterval("1 hour")}
    session = Session(gap="5 minutes", longest="1 hour")
    engine = make_engine([source("l")], [_asset(name, window=session, early=trigger) for name, trigger in triggers.items()])
    batches = [
        [Event("a", 1, at) for at in (0, 1, 2)] + [Event("a", 1, 6 * MINUTE)],
        [Event("a", 1, 4 * MINUTE)],
        [Event("a", 1, 5 * MINUTE), Event("b", 1, 5 * MINUTE)],
    ]
    shown: dict[str, list[Any]] = {name: [] for name in triggers}
    for batch in batches:
        replay(engine, [{"l": batch}])
        for name in triggers:
            engine.advance(name)
        for name, results in _results_by_asset(engine, *triggers).items():
            shown[name].append(results)
    first = [("a", 0, 3, False)]
    assert shown["rows"] == [first, first, [("a", 0, 6, False)]]
    both = [*first, ("a", 6, 1, False)]
    assert shown["interval"] == [both, both, both]


def test_a_trigger_by_processing_time_follows_the_clock_of_the_ledger(make_engine: MakeEngine, clock: Clock) -> None:
    engine = make_engine([source("l")], [_asset("counts", early=EveryInterval("10 minutes", by="processing"))])
    shown: list[Any] = []
    for passed in (9, 1, 9, 20):  # minutes since noon: 9, 10, 19, 39
        clock.pass_ms(passed * MINUTE)
        replay(engine, [{"l": [Event("a", 1, 0)]}])
        engine.advance("counts")
        shown += [row[2] for row in _results(engine, "counts")]
    assert shown == [1, 2, 2, 4]
    assert engine.advance("counts") == []


@dataclass(frozen=True)
class _LargeAndSoonFinal:
    """Shows a window with at least `rows` rows, once the watermark is in its last two minutes."""

    rows: int

    def fires(self, now: TriggerContext, before: TriggerContext) -> Column | bool:
        """See `Trigger`."""
        if now.watermark is None:
            return False
        soon = F.unix_millis("window_end") - F.lit(now.watermark) <= F.lit(2 * MINUTE)
        return soon & (now.rows >= self.rows) & (before.rows < self.rows)


def test_a_custom_trigger_decides_by_rows_window_and_watermark(make_engine: MakeEngine) -> None:
    engine = make_engine([source("l")], [_asset("counts", early=_LargeAndSoonFinal(2))])
    shown: list[Any] = []
    for batch in [
        [Event("a", 1, 0), Event("a", 1, 1), Event("b", 1, 2), Event("c", 1, 3 * MINUTE)],
        [Event("c", 1, 5 * MINUTE - 1)],
        [Event("a", 1, 4 * MINUTE)],
    ]:
        replay(engine, [{"l": batch}])
        engine.advance("counts")
        shown.append(_results(engine, "counts"))
    assert shown == [[], [("a", 0, 2, False), ("c", 0, 2, False)], [("a", 0, 2, False), ("c", 0, 2, False)]]


def test_a_correction_does_not_change_early_results(make_engine: MakeEngine) -> None:
    engine = make_engine([source("l")], [_asset("counts", early=EveryStep(), allowed_lateness="10 minutes")])
    replay(engine, [{"l": [Event("a", 1, 0), Event("a", 1, 7 * MINUTE)]}])
    engine.advance("counts")
    replay(engine, [{"l": [Event("a", 1, 1)]}])
    engine.advance("counts")
    assert _results(engine, "counts") == [("a", 0, 2, True), ("a", 5, 1, False)]


def test_early_results_do_not_wait_for_the_first_closed_window(make_engine: MakeEngine) -> None:
    silent = source("l", watermark=Punctuated("CAST(NULL AS TIMESTAMP)"))
    pairs = join(inputs=("l", "r"))
    over_pairs = DerivedAsset(name="over_pairs", inputs=("pairs",), operator=_asset("any", early=EveryStep()).operator)
    engine = make_engine([silent, source("r")], [_asset("counts", early=EveryStep()), pairs, over_pairs])
    land(engine, "l", "1.jsonl", [Event("a", 1, 0).line])
    engine.ingest()
    assert [engine.advance(name) for name in ("counts", "pairs", "over_pairs")] == [[], [], []]
    assert _results(engine, "counts") == [("a", 0, 1, False)]
    other = make_engine([silent], [_asset("counts")])
    replay(other, [{"l": [Event("a", 1, 6 * MINUTE)]}])
    other.advance("counts")
    assert _results(other, "counts") == [("a", 0, 1, True)]


def test_pairs_are_shown_before_they_are_final(make_engine: MakeEngine) -> None:
    """Pairs only: a row without a match is shown when it is final. For a semi join, a left row is shown with its earliest match so far."""
    triggers: dict[str, dict[str, Any]] = {
        "step": {"how": "full", "early": EveryStep()},
        "hourly": {"how": "inner", "early": EveryInterval("1 hour")},
        "semi": {"how": "semi", "early": EveryStep()},
    }
    engine = make_engine([source("l"), source("r")], [join(name, **spec) for name, spec in triggers.items()])
    batches = [
        {"l": [Event("a", 1, 2 * MINUTE)], "r": [Event("a", 2, 7 * MINUTE)]},
        {"l": [Event("b", 3, 4 * MINUTE)], "r": [Event("a", 4, 6 * MINUTE), Event("c", 5, 7 * MINUTE)]},
        {"l": [Event("d", 6, 61 * MINUTE + 1)], "r": [Event("d", 7, 61 * MINUTE + 1)]},
    ]
    shown: dict[str, list[Any]] = {name: [] for name in triggers}
    for batch in batches:
        replay(engine, [batch])
        for name in triggers:
            engine.advance(name)
        for name, pairs in _shown_pairs(engine, *triggers).items():
            shown[name].append(pairs)
    first, second = (1, 2, 7), (1, 4, 6)
    final, last = [(*first, True), (*second, True)], (6, 7, 61, False)
    # the watermark is 1, 3 and 60 minutes: it passes a multiple of an hour in the first batch and in the last
    unmatched = [(3, None, 14, True), (None, 5, 12, True)]
    assert shown["step"] == [[(*first, False)], [(*first, False), (*second, False)], sorted([*final, *unmatched, last], key=repr)]
    assert shown["hourly"] == [[(*first, False)], [(*first, False)], [*final, last]]
    assert shown["semi"] == [[(1, None, 7, False)], [(1, None, 6, False)], [(1, None, 6, True), (6, None, 61, False)]]
    assert rows_of(engine.views.table("early/step"), "left_v", "right_v", "rows_seen", "is_final") == [(6, 7, 2, False)]
    assert law_violations(engine, "step") == law_violations(engine, "semi") == set()


def _shown_pairs(engine: Engine, *assets: str) -> dict[str, list[tuple[Any, ...]]]:
    """The values of both rows of each result (of the left one for a semi join), its time in minutes, and whether it is final; one query."""
    at = ((F.unix_millis("result_time") - START) / MINUTE).cast("int").alias("at")
    frames, found = list[DataFrame](), {asset: list[tuple[Any, ...]]() for asset in assets}
    for asset in assets:
        rows = engine.views.with_early(asset)
        values = ["left_v", "right_v"] if "right_v" in rows.columns else ["v AS left_v", "CAST(NULL AS INT) AS right_v"]
        frames.append(rows.selectExpr(f"'{asset}' AS asset", "result_time", "is_final", *values))
    for asset, *pair in rows_of(reduce(DataFrame.union, frames).select("asset", "left_v", "right_v", at, "is_final")):
        found[asset].append(tuple(pair))
    return found


def test_a_view_with_early_results_is_a_small_query_and_names_a_lost_file(make_engine: MakeEngine) -> None:
    engine = make_engine([source("l")], [_asset("counts", early=EveryStep())])
    replay(engine, [{"l": [Event("a", 1, 0), Event("a", 1, HOUR)]}])
    engine.advance("counts")
    assert is_small(engine.views.with_early("counts"))
    assert _results(engine, "counts") == [("a", 0, 1, True), ("a", 60, 1, False)]
    for table in ("counts", "early/counts"):
        [file] = Path(engine.lake.path(table)).glob("commit-*/*.parquet")
        lost = file.rename(file.with_suffix(".lost"))
        with pytest.raises(LakeError, match=rf"^{table} lacks a data file: .*{file.name}"):
            engine.views.with_early("counts")
        lost.rename(file)


@pytest.mark.parametrize("at", ["early.before_commit", "early.after_commit"])
def test_a_killed_run_repeats_its_early_results(make_engine: MakeEngine, at: str) -> None:
    engine = make_engine([source("l")], [_asset("counts", early=EveryRows(1))])
    replay(engine, [{"l": [Event("a", 1, 0)]}])

    def kill(name: str) -> None:
        if name == at:
            raise RuntimeError("killed")

    faults.install(kill)
    with pytest.raises(RuntimeError, match="killed"):
        engine.advance("counts")
    faults.install(None)
    engine.advance("counts")
    assert _results(engine, "counts") == [("a", 0, 1, False)]


def test_an_order_in_the_notation_of_an_earlier_version_continues_the_early_results(
    make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    top = TopK(k=1, by="k", order_by="v DESC", window=Tumbling(size="5 minutes"), early=EveryRows(2))
    engine = make_engine([source("l")], [DerivedAsset(name="top", inputs=("l",), operator=top)])
    with monkeypatch.context() as earlier:
        earlier.setattr(early_results, "identity_of", lambda asset: identity_of(asset).replace('"v DESC"', '"v desc"'))
        replay(engine, [{"l": [Event("a", 1, 0), Event("a", 2, 1)]}])
        engine.advance("top")
    replay(engine, [{"l": [Event("a", 9, 2)]}])
    engine.advance("top")
    assert rows_of(engine.views.with_early("top"), "k", "v") == [("a", 2)], (
        "one row since the last shown result does not make the trigger fire"
    )


def test_a_trigger_can_change_without_recomputing_the_table(make_engine: MakeEngine) -> None:
    engine = make_engine([source("l")], [_asset("counts")])
    replay(engine, [{"l": [Event("a", 1, 0)]}])
    engine.advance("counts")
    changed = make_engine([source("l")], [_asset("counts", early=EveryStep())])
    changed.advance("counts")
    assert _results(changed, "counts") == [("a", 0, 1, False)]


@pytest.mark.parametrize(
    ("text", "trigger"),
    [
        ("", None),
        ("every step", EveryStep()),
        ("every 1 row", EveryRows(1)),
        ("every 90 s", EveryInterval("90 s")),
        ("every 90 s of processing time", EveryInterval("90 s", by="processing")),
        ("Every Step", EveryStep()),
        ("EVERY 5 ROWS", EveryRows(5)),
        ("every 90 s OF processing time", EveryInterval("90 s", by="processing")),
        ("every 10 Minutes", EveryInterval("10 Minutes")),
        ("\tevery\t10  minutes\n", EveryInterval("10 minutes")),
        ("every  5\n rows", EveryRows(5)),
        ("every 10 minutes of\n  processing time", EveryInterval("10 minutes", by="processing")),
    ],
)
def test_a_trigger_is_parsed_from_text(text: str, trigger: Any) -> None:
    assert read_trigger(text) == trigger


@pytest.mark.parametrize(
    ("text", "why"), [("step", r"'every step', 'every 100 rows'"), ("every so often", "`trigger` is 'every so often'; legal: 'every step'")]
)
def test_invalid_trigger_text_is_refused(text: str, why: str) -> None:
    with pytest.raises(OperatorError, match=why):
        read_trigger(text)


def test_an_illegal_trigger_is_refused() -> None:
    with pytest.raises(OperatorError, match="`by` is 'clock'; legal: event, processing"):
        EveryInterval("1 minute", by="clock")  # pyright: ignore[reportArgumentType]
    with pytest.raises(OperatorError, match="`rows` is 0; legal: a whole number of at least 1"):
        EveryRows(0)
    with pytest.raises(OperatorError, match=r"`interval` is 0; legal: a duration of more than zero$"):
        EveryInterval(0)


def test_a_window_that_becomes_final_while_the_results_are_read_is_in_them(
    make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = make_engine([source("l")], [_asset("counts", early=EveryStep())])
    replay(engine, [{"l": [Event("a", 1, 0)]}])
    engine.advance("counts")
    replay(engine, [{"l": [Event("b", 1, HOUR)]}])
    newest_commit, steps = ReadTables.newest_commit, [lambda: engine.advance("counts")]

    def then_advance(self: ReadTables, table: str, key: str) -> Any:
        found = newest_commit(self, table, key)
        if table == "counts" and steps:
            steps.pop()()
        return found

    monkeypatch.setattr(ReadTables, "newest_commit", then_advance)
    assert ("a", 0, 1, False) in _results(engine, "counts")
    assert ("a", 0, 1, True) in _results(engine, "counts")


def test_a_snapshot_has_early_results_no_newer_than_their_table(tmp_path: Path, clock: Clock) -> None:
    engine = bare_engine(tmp_path, clock, [source("l")], [_asset("counts", early=EveryStep()), _asset("final")])
    lake: Any = engine.snapshot().lake
    assert list(lake._tables) == ["final", "early/counts", "counts"]
