"""After a kill between any two writes, the next run neither loses nor duplicates rows."""

import random
from pathlib import Path

import pytest

from assets.contracts import DerivedAsset
from operators.changelog import fold
from platform_defs.engine import Engine
from platform_defs.engine.inputs.reader import read_input
from tests.conftest import MakeEngine
from tests.support.example_operators import Spread
from tests.support.json_rows import json_rows_of, values_of
from tests.support.kills import run_and_die
from tests.support.small_sources import HOUR, Event, join, land, replay, rows_of, source

SPREAD = DerivedAsset(name="spread", inputs=("l",), operator=Spread())
KEYED = {"unique_key": ("k", "v")}
SOAK_POINTS = [
    ("ingest.before_append", 1),
    ("ingest.before_append", 2),
    ("ingest.after_log", 1),
    ("ingest.before_ledger", 1),
    ("advance.before_commit", 1),
]


def lines(seed: int, hours: int) -> list[str]:
    """The lines of an hour: out of order, with duplicates and malformed lines."""
    rng = random.Random(seed)
    rows = [Event(rng.choice("abcd"), rng.randrange(200), hours * HOUR + rng.randrange(HOUR)).line for _ in range(30)]
    return [*rows, *rows[:2], '{"k": "a", "v": "many", "ts": "2026-03-01"}', "{cut"]


def land_part(engine: Engine, part: int) -> None:
    """Land a part of both sources; a part that has landed is not changed."""
    for n, name in enumerate(("l", "r")):
        if not (Path(engine.folders[name]) / f"{part}.jsonl").exists():
            land(engine, name, f"{part}.jsonl", lines(10 * part + n, part))


def content(engine: Engine) -> list[object]:
    """The content of all tables and the counts of the ledger."""
    tables = ("events/l", "events/r", "quarantine/l", "quarantine/r", "pairs")
    rows = json_rows_of({table: engine.views.table(table).drop("ingested_at", "path") for table in tables})
    counts = [
        (s.seq, s.source, s.rows_read, s.accepted, s.duplicate, s.quarantined, s.watermark) for e in engine.ledger.batches() for s in e
    ]
    return [rows, counts]


@pytest.fixture(scope="module")
def undisturbed(spark, tmp_path_factory: pytest.TempPathFactory) -> list[object]:
    """The content after one part without a kill."""
    from platform_defs.engine.lake.tables import Lake
    from tests.support.clock import Clock

    root = tmp_path_factory.mktemp("undisturbed")
    folders = {n: str(root / "landing" / n) for n in ("l", "r")}
    sources = {n: source(n, **KEYED) for n in ("l", "r")}
    engine = Engine(Lake(str(root / "lake")), sources, {"pairs": join()}, lambda: spark, Clock(), folders=folders)
    land_part(engine, 1)
    engine.ingest()
    engine.advance("pairs")
    return content(engine)


@pytest.mark.parametrize(
    ("point", "nth"),
    [
        ("ingest.after_quarantine", 1),
        ("ingest.after_log", 2),
        ("ingest.after_ledger", 1),
        ("advance.after_commit", 1),
        *(pytest.param(*rest, marks=pytest.mark.soak) for rest in SOAK_POINTS),
    ],
)
def test_a_run_repeated_after_a_kill_equals_an_undisturbed_run(
    make_engine: MakeEngine, undisturbed: list[object], point: str, nth: int
) -> None:
    def engine() -> Engine:
        return make_engine([source("l", **KEYED), source("r", **KEYED)], [join()])

    first = engine()
    land_part(first, 1)
    if point.startswith("advance"):
        first.ingest()
        run_and_die(lambda: first.advance("pairs"), point, nth)
    else:
        run_and_die(first.ingest, point, nth)
    restarted = engine()
    restarted.ingest()
    restarted.advance("pairs")
    assert content(restarted) == undisturbed


def test_uncommitted_rows_of_another_input_are_removed_first(make_engine: MakeEngine) -> None:
    engine = make_engine([source("l"), source("r")], [join()])
    removed = land(engine, "l", "removed.jsonl", lines(1, 1))
    run_and_die(engine.ingest, "ingest.before_ledger")
    assert not engine.views.table("events/l").isEmpty()
    removed.unlink()
    restarted = make_engine([source("l"), source("r")], [join()])
    restarted.ingestion.control_batches.watermark({"r": 5})
    assert restarted.views.table("events/l").isEmpty()
    assert restarted.views.table("quarantine/l").isEmpty()
    assert restarted.accounts.count_differences("pairs") == {}


def test_after_kills_the_changelog_still_yields_the_upserted_table(make_engine: MakeEngine) -> None:
    """Every step but the first of a table that recomputes changed keys is killed twice."""

    def engine() -> Engine:
        return make_engine([source("l")], [SPREAD])

    kills = [(), ("advance.before_changelog", "advance.after_changelog"), ("advance.before_apply", "advance.after_apply")]
    rng = random.Random(1)
    for part, points in enumerate(kills, 1):
        rows = [Event(rng.choice("abcd"), rng.randrange(200), part * HOUR + n) for n in range(20)]
        replay(engine(), [{"l": [*rows, Event("a", part % 2, part * HOUR + 20)]}])
        for point in points:
            run_and_die(lambda: engine().advance("spread"), point)
        engine().advance("spread")
    current = engine()
    changelog = current.views.table(SPREAD.changelog)
    frames = {
        "table": current.views.table("spread"),
        "of the log": SPREAD.operator(read_input(current.workspace, SPREAD, 0, current.ledger.head)),
        "of the changelog": fold(changelog.drop("changed_at"), key=("k",), order="step"),
    }
    found = values_of(frames | {"kinds": changelog.select("change")})
    assert found["table"] == found["of the log"] == found["of the changelog"] != []
    assert {*found["kinds"]} >= {("+I",), ("-U",), ("+U",)}
    assert current.advance("spread") == []


def test_changes_are_the_exact_difference_of_two_steps(make_engine: MakeEngine) -> None:
    engine = make_engine([source("l")], [SPREAD])
    for part, events in enumerate(([("a", 1), ("b", 5), ("b", 9)], [("a", 4), ("b", 7)], [("b", 0)])):
        replay(engine, [{"l": [Event(k, v, part * HOUR + n) for n, (k, v) in enumerate(events)]}])
        engine.advance("spread")
    changes = rows_of(engine.views.table("changelog/spread"), "step", "change", "k", "spread")
    assert changes == sorted([(1, "+I", "a", 0), (1, "+I", "b", 4), (2, "-U", "a", 0), (2, "+U", "a", 3), (3, "-D", "b", 4)], key=repr)
    assert rows_of(engine.views.table("spread")) == [("a", 3)]
