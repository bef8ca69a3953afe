"""The parts of the chaos run: the plan of the kills, the comparison of lakes and the table of outcomes."""

from collections import Counter
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from platform_defs.engine.faults import POINTS
from tests.chaos import table
from tests.chaos.__main__ import Chaos, arguments, main
from tests.chaos.content import COMPARED, TABLES, content, differences
from tests.chaos.plan import ABANDONED_POINTS, REMOVAL_POINTS, Planner
from tests.chaos.stream import Action
from tests.chaos.trial import GOOD, Trial, TrialError

SCRIPT = [Action(kind, 0, n) for n, kind in enumerate(["ingest", "abandoned", "drain", "advance", "verify"])]
PASSED = {
    0: ["ingest.after_log", "ingest.after_log", "ingest.after_ledger"],
    1: [],
    2: ["control_batch.before_ledger"],
    3: ["advance.after_apply"],
    4: [],
}


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    for name in TABLES:
        write_deltalake(str(tmp_path / name), pa.table({"a": [1, 2, 2], "path": [f"{tmp_path}/x"] * 3}))
    return tmp_path


def test_a_lost_duplicated_or_altered_row_is_detected(lake: Path) -> None:
    expected = content(str(lake), lake)
    assert differences(expected, content(str(lake), lake)) == []
    DeltaTable(str(lake / "wide")).delete("a = 1")
    write_deltalake(str(lake / "takings"), pa.table({"a": [1], "path": [f"{lake}/x"]}), mode="append")
    DeltaTable(str(lake / "ledger")).update(new_values={"a": 3}, predicate="a = 1")
    found = differences(expected, content(str(lake), lake))
    assert [t.partition(",")[0] for t in found] == ["ledger: 1 rows missing", "wide: 1 rows missing", "takings: 0 rows missing"]
    assert "1 too many" in found[2]
    assert "'path', \"'/x'\"" in found[0], "the path of the trial's folder is removed"


def test_a_lake_that_differs_or_violates_the_law_fails_the_trial(lake: Path) -> None:
    trial = Trial(lake, 1, 1, False, None, print, last_check=GOOD | {"changelog_equal": False})
    with pytest.raises(TrialError, match="the law does not hold"):
        trial.checked_content(None)
    trial.last_check["changelog_equal"] = True
    with pytest.raises(TrialError, match=r"differs from an undisturbed run's: ledger: 1 rows missing, 0 too many"):
        trial.checked_content({name: Counter({(("a", "9"),): 1}) for name in COMPARED})


def test_rarely_killed_points_come_first_and_the_seed_determines_every_choice() -> None:
    def killed(seed: int) -> list[tuple[str, int]]:
        planner, rng, found = Planner(SCRIPT, PASSED, 20, min_kills_per_point=2), Random(seed), []
        for _ in range(40):
            for index, (point, nth) in planner.plan(rng, 0, Counter(), False).items():
                planner.record(point, int(index))
                found.append((point, nth))
        return found

    first = killed(1)
    assert first == killed(1)
    assert first != killed(2)
    assert {p for p, _ in first} >= {*REMOVAL_POINTS, "ingest.after_ledger", "control_batch.before_ledger", "advance.after_apply", "timer"}
    assert {nth for p, nth in first if p == "ingest.after_log"} <= {1, 2}
    assert Planner(SCRIPT, PASSED, 0, min_kills_per_point=1).plan(Random(1), 0, Counter(), False) == {}


CHOOSABLE = {*ABANDONED_POINTS, *REMOVAL_POINTS, "ingest.after_ledger", "control_batch.before_ledger", "advance.after_apply"}


def test_only_points_that_the_plan_can_choose_are_points_without_kill() -> None:
    planner = Planner(SCRIPT, PASSED | {1: ["kept.before_commit"], 4: ["maintenance.before_vacuum"]}, 20, min_kills_per_point=2)
    assert planner.points_without_kill() == [p for p in POINTS if p in CHOOSABLE]
    planner.record("advance.after_apply", 3)
    assert planner.points_without_kill() == [p for p in POINTS if p in CHOOSABLE - {"advance.after_apply"}]
    assert Planner(SCRIPT[:1], PASSED, 20, min_kills_per_point=2).points_without_kill() == ["ingest.after_log", "ingest.after_ledger"]


@pytest.mark.parametrize(
    ("kills", "failed", "without_kill", "code"),
    [
        pytest.param("300", [], (), 0, id="a full run with a kill at every point of the script"),
        pytest.param("300", [], ("ingest.after_ledger",), 1, id="a full run without a kill at one of them"),
        pytest.param("40", [], ("ingest.after_ledger",), 0, id="a short run"),
        pytest.param("40", ["the lake differs"], (), 1, id="a trial that failed"),
    ],
)
def test_the_exit_code_is_1_for_a_failed_trial_or_a_full_run_that_missed_a_point_of_its_script(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kills: str, failed: list[str], without_kill: tuple[str, ...], code: int
) -> None:
    def run(chaos: Chaos) -> Planner:
        planner = Planner(SCRIPT, PASSED, chaos.kills, min_kills_per_point=1)
        for point in CHOOSABLE.difference(without_kill):
            planner.record(point, 0)
        chaos.failed += failed
        return planner

    monkeypatch.setattr(Chaos, "__call__", run)
    assert main(["--kills", kills, "--work", str(tmp_path), "--no-docs"]) == code
    named = [line.partition("points without a kill: ")[2] for line in (tmp_path / "chaos.log").read_text().splitlines()]
    assert [names for names in named if names] == [*without_kill]


def test_the_table_lists_every_point_and_its_outcome(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before\n{table.BEGIN}\nof the run before\n{table.END}\nafter\n", encoding="utf-8")
    monkeypatch.setattr(table, "PAGE", page)
    planner = Planner(SCRIPT, PASSED, 1, min_kills_per_point=1)
    planner.record("ingest.after_log", 0)
    table.write(table.table(planner, "one kill", 0))
    text = page.read_text(encoding="utf-8")
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert "of the run before" not in text
    assert [line.split("`")[1] for line in text.splitlines() if line.startswith("| `")] == [*POINTS, "timer"]
    assert "| 1 | ingest 1 | the lake of an undisturbed run" in text
    assert text.count("not killed in this run") == len(POINTS)
    table.write(table.table(planner, "again", 2))
    assert "2 trials differ" in page.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("given", "docs"), [([], True), (["--kills", "40"], False), (["--kills", "40", "--docs"], True), (["--no-docs"], False)]
)
def test_a_short_run_does_not_replace_the_published_table(given: list[str], docs: bool) -> None:
    assert arguments(given).docs is docs


def test_reliability_md_lists_every_point() -> None:
    """Also points that were added since `make chaos` last wrote the table."""
    text = table.PAGE.read_text(encoding="utf-8")
    assert [p for p in POINTS if f"| `{p}` |" not in text] == []
