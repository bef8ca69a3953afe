"""The engine gives Flink's recorded answers, and the comparison detects errors."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.oracle import windowed
from tests.oracle.__main__ import main
from tests.oracle.cases import DATASTREAM, SQL, Case, order_by, parse
from tests.oracle.compare import CaseResult, against_model, check_steps
from tests.oracle.flink import Flink
from tests.oracle.lake import Found, Stepped, bulk, stepwise
from tests.oracle.runner import STEPPED, Gathered, compare_or_fail, gather, report, run, run_all
from tests.oracle.sql_cache import Simulation
from tests.oracle.windowed import WindowCase
from tests.support.shared_data import ORACLE

needs_recorded_answers = pytest.mark.skipif(not ORACLE.is_dir(), reason=f"Flink's recorded answers are not there: {ORACLE}")


def failed(results: Sequence[CaseResult]) -> list[str]:
    return [f"{v.name}: {'; '.join(v.why)}" for v in results if v.status == "failed"]


def smallest(cases: Sequence[Case], per_kind: int) -> list[Case]:
    """For each operator and join type, the cases with the fewest rows among those with a result."""
    found: dict[tuple[str, str], list[Case]] = {}
    for case in sorted(cases, key=lambda c: len(c.stream)):
        if case.expected:
            found.setdefault((case.operator, case.params.how), []).append(case)
    return [case for several in found.values() for case in several[:per_kind]]


@pytest.fixture(scope="module")
def short(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Case, Found]]:
    """A few cases of every kind, in one lake."""
    cases = smallest(gather(ORACLE).cases, 2)
    return list(zip(cases, bulk(spark, tmp_path_factory.mktemp("oracle"), cases), strict=True))


@needs_recorded_answers
@pytest.mark.spark
def test_the_engine_gives_the_rows_of_flink(short: list[tuple[Case, Found]]):
    results = [compare_or_fail(case, found) for case, found in short]
    assert not failed(results)
    assert sum(v.direct for v in results) > 300


@needs_recorded_answers
@pytest.mark.spark
@pytest.mark.parametrize("change", ["add", "drop", "alter"])
def test_a_changed_expected_row_is_detected(short: list[tuple[Case, Found]], change: str):
    for case, found in short:
        if case.operator != DATASTREAM and not Flink(case).is_clean:
            continue
        row = next(iter(case.expected))
        other = tuple(-7 if n == 0 else value for n, value in enumerate(row))
        less, more = Counter([row] * (change != "add")), Counter([row] * (change == "add") + [other] * (change == "alter"))
        assert compare_or_fail(replace(case, expected=case.expected - less + more), found).status == "failed", case.name


@needs_recorded_answers
@pytest.mark.spark
def test_a_changed_late_row_is_detected(short: list[tuple[Case, Found]]):
    case, found = next((c, f) for c, f in short if c.late and c.late["L"])
    assert case.late is not None
    for late in (Counter(), case.late["L"] + Counter([(0, 0)])):
        result = compare_or_fail(replace(case, late={**case.late, "L": late}), found)
        assert result.status == "failed"
        assert "late L" in result.why[0]


@needs_recorded_answers
@pytest.mark.spark
@pytest.mark.parametrize(
    "corrupt",
    [
        lambda f: replace(f, rows=f.rows[1:]),
        lambda f: replace(f, rows=[*f.rows, f.rows[0]]),
        lambda f: replace(f, rows=[{**f.rows[0], "final_at": f.rows[0]["final_at"] + 1}, *f.rows[1:]]),
        lambda f: replace(f, late=[*f.late, ("L", 0, 0)]),
        lambda f: Found(error="no table"),
    ],
    ids=["row lost", "row duplicated", "row final at another time", "row wrongly late", "no result"],
)
def test_a_changed_row_of_the_engine_is_detected(short: list[tuple[Case, Found]], corrupt: Callable[[Found], Found]):
    for case, found in short:
        assert compare_or_fail(case, corrupt(found)).status == "failed", case.name


@needs_recorded_answers
@pytest.mark.spark
def test_a_row_in_another_batch_is_detected(short: list[tuple[Case, Found]]):
    case, found = next((c, f) for c, f in short if c.operator == SQL and len(c.marks) > 1 and f.rows)
    marks = [*case.marks, case.high]
    ranges = zip([case.low - 1, *marks], marks, strict=False)
    rows_by_mark = [[row for row in found.rows if low < row["final_at"] <= mark] for low, mark in ranges]
    steps = [Stepped(mark, rows) for mark, rows in zip(marks, rows_by_mark, strict=True)]
    assert check_steps(case, found, steps, found.late) == []
    early = [Stepped(marks[0], found.rows), *[Stepped(mark, []) for mark in marks[1:]]]
    assert "came" in check_steps(case, found, early, found.late)[0]
    assert "lacks" in check_steps(case, found, [replace(s, rows=s.rows[1:]) for s in steps], found.late)[0]


@pytest.mark.spark
def test_a_run_batch_by_batch_equals_the_bulk_run(spark: SparkSession, tmp_path: Path):
    params = {"join_type": "FULL", "lower": -10, "upper": 20, "residual": "L.k <> 'b' AND L.v < R.v"}
    events = [("L", 1, 100), ("R", 2, 105), ("R", 3, 300)]
    rows = [{"t": "e", "side": side, "id": number, "k": "a", "v": number, "ts": ts} for side, number, ts in events]
    content = {
        "operator": SQL,
        "params": params,
        "expected": [],
        "input": [rows[0], {"t": "w", "ts": 101}, rows[1], {"t": "w", "ts": 105}, rows[2]],
    }
    case = parse(tmp_path, content)
    (found,) = bulk(spark, tmp_path / "bulk", [case])
    steps, late = stepwise(spark, tmp_path / "steps", case)
    assert check_steps(case, found, steps, late) == against_model(case, found) == late == []
    rows_by_mark = [(step.mark, sorted(row["final_at"] for row in step.rows)) for step in steps if step.mark is not None]
    assert rows_by_mark == [(101, []), (105, []), (321, [106, 311])]


def test_a_file_without_a_case_fails_and_an_unknown_operator_is_skipped(tmp_path: Path):
    (tmp_path / "torn.json").write_text("{")
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "no_input.json").write_text('{"operator": "interval_join", "params": {"lower": 0, "upper": 1}, "expected": []}')
    (tmp_path / "other.json").write_text('{"operator": "sort", "input": []}')
    gathered = gather(tmp_path)
    lines = report(gathered, [], 0)
    assert lines[-1] == "0 passed, 2 failed, 1 skipped"
    assert sum(line.startswith("FAILED") and "cannot be read" in line for line in lines) == 2
    assert report(gather(tmp_path, "sort"), [], 0)[-1] == "0 passed, 1 failed, 1 skipped"


@needs_recorded_answers
@pytest.mark.spark
@pytest.mark.parametrize("case", ["dedup/rowtime_first.json", "topn/append_top1_rn.json"])
def test_a_folder_with_cases_of_one_operator_passes(spark: SparkSession, tmp_path: Path, case: str):
    (tmp_path / "case.json").write_text((ORACLE / case).read_text(encoding="utf-8"), encoding="utf-8")
    gathered = gather(tmp_path, case.split("/")[0])
    gathered = replace(gathered, tops=[replace(top, batches=2) for top in gathered.tops])
    results = run_all(spark, tmp_path / "lake", gathered)
    assert [v.status for v in results] == ["passed"]
    assert report(gathered, results, 0)[-1] == "1 passed, 0 failed, 0 skipped"


@needs_recorded_answers
def test_the_model_of_flinks_sql_join_is_exact():
    cases = [case for case in gather(ORACLE, SQL).cases if case.error is None]
    assert cases
    assert [case.name for case in cases if Simulation(case)() != case.expected] == []


@needs_recorded_answers
@pytest.mark.spark
@pytest.mark.oracle_all
def test_the_engine_gives_the_rows_of_flink_in_every_case(spark: SparkSession, tmp_path: Path):
    gathered = gather(ORACLE)
    results = run(spark, tmp_path, gathered.cases, STEPPED)
    assert not gathered.unreadable
    assert not failed(results)


def test_a_folder_without_a_case_of_the_operator_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "case.json").write_text('{"operator": "interval_join"}')
    monkeypatch.setattr("sys.argv", ["oracle", str(tmp_path), "--operator", "intervall_join"])
    with pytest.raises(SystemExit, match=r"^2$"):
        main()
    assert "has no case with the operator 'intervall_join'" in capsys.readouterr().err


def _run_windows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_bad: Callable[[str], bool]) -> list[CaseResult]:
    """The results of the cases a, b and c; cases whose names together are bad cannot be run."""

    def compare_cases(_: object, cases: Sequence[WindowCase]) -> list[CaseResult]:
        if is_bad("".join(case.content["name"] for case in cases)):
            raise ValueError("a bad case")
        return [CaseResult(case.name, "passed") for case in cases]

    monkeypatch.setattr(windowed, "compare_cases", compare_cases)
    cases = [WindowCase({"operator": "dedup", "name": name}) for name in "abc"]
    return run_all(None, tmp_path, Gathered([], [], {}, cases))  # pyright: ignore[reportArgumentType]


def test_a_windowed_case_that_cannot_be_run_fails_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    results = _run_windows(tmp_path, monkeypatch, lambda names: "b" in names)
    assert [(r.name, r.status) for r in results] == [("dedup/a", "passed"), ("dedup/b", "failed"), ("dedup/c", "passed")]
    assert results[1].why == ("cannot be run: ValueError: a bad case",)


def test_an_error_that_no_windowed_case_has_alone_is_raised(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="a bad case"):
        _run_windows(tmp_path, monkeypatch, lambda names: len(names) > 1)


def test_the_position_of_nulls_in_an_order_is_read():
    assert order_by({"order_by": [["v", "DESC", "LAST"], ["id", "ASC"]]}) == ["v DESC NULLS LAST", "id ASC"]
