"""The report of the benchmarks: the sections of the docs' page, made from recorded results."""

import re

import pytest

from benchmarks import report, results
from benchmarks.steps import curve
from platform_defs.settings import PROJECT

MACHINE = {
    "cpu": "a slow one",
    "cores": 2,
    "memory_gib": 8,
    "system": "Linux 6",
    "python": "3.11.7",
    "java": "17",
    "versions": {"pyspark": "4.1.3"},
    "commit": "abc1234",
}
STEPS = [{"ingest": 1.0 + n / 10, "advance": 0.5, "law": 0.25} for n in range(24)]


def record(kind, contender, rows, seconds, outcome=None, **cell):
    named = {"kind": kind, "contender": contender, "rows": rows, "keys": 0, "turn": 0, "batches": 10, "first": 0, "within_ms": 600_000}
    cost = {"wall_s": seconds + 20, "cpu_s": 2 * seconds, "peak_mb": 2_048, "other_cpu_s": 0.1, "load": 0.2}
    about = {"kind": kind, "cell": {**named, **cell}, "at": "2026-03-01T10:00:00Z", "machine": MACHINE}
    return {**about, **cost, "outcome": {"seconds": seconds, "found": 75, **(outcome or {})}}


def at_both_sizes(contender, low, high, **outcome):
    return [record("join", contender, rows, seconds, outcome) for rows, seconds in ((1_000_000, low), (5_000_000, high))]


JOIN = [
    *at_both_sizes("catch_up", 5.0, 17.0, ingest_s=30.0),
    *at_both_sizes("ten", 40.0, 88.0, empty_s=1.4, steps=STEPS[:10]),
    *at_both_sizes("flink", 10.0, 50.0),
    *at_both_sizes("spark_batch", 6.0, 14.0),
]
PAGE = PROJECT / "docs" / "explanation" / "benchmarks.md"
SAMPLE = [
    *JOIN,
    record("rows", "catch_up", 1_000_000, 4.0),
    record("rows", "catch_up", 20_000_000, 60.0),
    record("keys", "catch_up", 1_000_000, 9.0, keys=10_000),
    record("bounds", "ten", 1_000_000, 44.0, {"steps": STEPS}, within_ms=3_600_000),
    record("batch", "ten", 1_011_500, 30.0, {"steps": STEPS}, batches=24, first=1_000_000),
    record(
        "age", "ten", 1_011_500, 30.0, {"steps": STEPS, "files": [{"step": 24, "ledger": 1, "orders": 24}]}, batches=24, first=1_000_000
    ),
    record("lake", "ten", 61_500, 30.0, {"steps": [{**lap, "checks": 0.5} for lap in STEPS]}, batches=24, first=50_000),
    record("lake", "ten", 10_011_500, 60.0, {"steps": [{**lap, "checks": 2.0} for lap in STEPS]}, batches=24, first=10_000_000),
    record("backlog", "backlog", 20_000_000, 120.0, {"ingest_s": 300.0, "steps": 25}, heap="1g", options={"max_step": 2_000_000}),
]


def table_row(text, start):
    (found,) = [row for row in text.splitlines() if row.startswith(f"| {start}")]
    return [cell.strip() for cell in found.strip("|").split("|")][1:]


def test_the_table_row_of_a_contender_has_its_slope_and_its_cost_at_each_size():
    cells = table_row(report.join(SAMPLE), "Flink DataStream, heap state")
    assert cells == ["1 M / 5 M", "1", "5.00", "10.0 / 50.0", "30.0 / 70.0", "20.0 / 100", "2,048 / 2,048"]


def test_a_contender_that_was_not_run_has_no_table_row():
    assert "DuckDB" not in report.join(SAMPLE)


def test_the_report_notes_that_flink_was_skipped():
    assert "Flink was skipped" in report.join([r for r in JOIN if r["cell"]["contender"] != "flink"])
    assert "Flink was skipped" not in report.join(JOIN)


def test_the_join_section_has_the_timings_of_the_engine():
    text = report.join(JOIN)
    assert "before the catch-up: 30.0 / 30.0 s" in text
    assert "without the first: ingest 1.50 / 1.50 s, advance 0.50 / 0.50 s, conservation check 0.25 / 0.25 s" in text


def test_a_check_that_was_not_made_has_no_timing():
    steps = [{"ingest": 1.0, "advance": 0.5}] * 3
    text = report.hot_items([record("hot_items", "ten", 1_000_000, 40.0, {"steps": steps})])
    assert "without the first: ingest 1.00 s, advance 0.50 s." in text
    assert "without the first: -." in report.hot_items([record("hot_items", "flink", 1_000_000, 40.0)])


def test_the_report_names_the_machine_and_its_other_load():
    text = report.machine(SAMPLE)
    assert text.startswith(
        "2 cores (a slow one), 8 GiB, Linux 6; Java 17, Python 3.11.7; pyspark 4.1.3. Measured 2026-03-01 at `abc1234`. "
    )
    assert text.endswith("used at most 0% of the CPU during a run.")


def test_failed_runs_are_listed():
    failed_record = {**record("join", "spark_stream", 5_000_000, 0.0), "failed": "ended with 1; its log is x\nmore"}
    assert "- spark_stream at 5 M: ended with 1; its log is x\n" in report.join([*JOIN, failed_record]) + "\n"


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("catch-up slope, relative to Flink", ["0.20 times", "0.30 times", "**missed**"]),
        ("ten-batch slope, relative to Flink", ["0.50 times", "1.20 times", "**missed**"]),
        ("catch-up slope, relative to Spark's", ["0.033 times", "not measured", ""]),
        ("catch-up slope, relative to the hand-written", ["1.30 times", "1.50 times", "**missed**"]),
        ("empty step", ["1.50 s", "1.40 s", "met"]),
    ],
)
def test_a_target_is_met_missed_or_not_measured(target, expected):
    assert table_row(report.targets(SAMPLE), target) == expected


def test_the_curve_excludes_warm_up_and_tail_steps():
    (point,) = curve(SAMPLE)
    assert (point.rows, point.parts_s) == (1_000, pytest.approx([2.05, 0.5, 0.25]))


def test_growth_lake_sizes_age_and_backlog_have_table_rows():
    assert table_row(report.growth(SAMPLE), "20 M") == ["60.0", "1.50", "2,048"]
    assert table_row(report.growth(SAMPLE), "10 k") == ["100", "9.00", "75"]
    assert table_row(report.growth(SAMPLE), "60") == ["44.0", "3.05", "75"]
    assert table_row(report.age(SAMPLE), "22 to 23") == ["4.00", "4.04", "1", "24"]
    assert table_row(report.lake_sizes(SAMPLE), "100 k") == ["2.35", "0.50", "0.25", "0.50", "3.60", "1.00"]
    assert table_row(report.lake_sizes(SAMPLE), "20 M") == ["2.35", "0.50", "0.25", "2.00", "5.10", "1.42"]
    assert table_row(report.backlog(SAMPLE), "40 M") == ["1g", "2 M", "25", "120", "3.00", "300", "2,048"]


@pytest.mark.parametrize("section", report.SECTIONS)
def test_a_section_without_results_states_it(section):
    text = report.SECTIONS[section]([])
    assert report.NOT_MEASURED in text or "not measured" in text


@pytest.mark.parametrize("section", report.SECTIONS)
def test_the_page_has_markers_for_each_section(section):
    written = report.replace_section(PAGE.read_text(), section, "here it is", PAGE)
    assert re.search(rf"<!-- measured:{section} -->\nhere it is\n<!-- /measured:{section} -->", written)


def test_a_section_without_results_keeps_its_text(tmp_path):
    pytest.importorskip("matplotlib", reason="the plots need the dependency group `bench`")
    page = tmp_path / "explanation" / "benchmarks.md"
    page.parent.mkdir()
    page.write_text(report.replace_section(PAGE.read_text(), "join", "of an earlier run", PAGE))
    results.append(tmp_path / "results.jsonl", next(r for r in SAMPLE if r["kind"] == "backlog"))
    report.write(tmp_path / "results.jsonl", tmp_path)
    written = page.read_text()
    assert "<!-- measured:join -->\nof an earlier run\n" in written
    assert table_row(written, "40 M") == ["1g", "2 M", "25", "120", "3.00", "300", "2,048"]


def test_a_page_without_markers_is_refused(tmp_path):
    with pytest.raises(report.ReportError, match="has no `<!-- measured:join -->`"):
        report.replace_section("nothing", "join", "", tmp_path)


def test_the_same_results_make_the_same_files(tmp_path):
    pytest.importorskip("matplotlib", reason="the plots need the dependency group `bench`")
    for record_ in SAMPLE:
        results.append(tmp_path / "results.jsonl", record_)
    made = []
    for docs in (tmp_path / "one", tmp_path / "two"):
        (docs / "explanation").mkdir(parents=True)
        (docs / "explanation" / "benchmarks.md").write_text(PAGE.read_text())
        made.append({path.name: path.read_bytes() for path in report.write(tmp_path / "results.jsonl", docs)})
    assert made[0] == made[1]
    assert set(made[0]) == {"benchmarks.md", "bench-join.svg", "bench-growth.svg", "bench-batch.svg", "bench-age.svg"}
