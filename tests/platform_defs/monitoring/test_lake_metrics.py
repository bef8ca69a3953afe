"""The metrics of a lake, and their scrape while the lake changes or cannot be read. No test starts Spark."""

import logging
import shutil
from collections.abc import Callable
from datetime import date
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from assets.contracts import DerivedAsset
from operators import Tumbling, WindowedAggregate
from platform_defs.engine import Engine
from platform_defs.engine.accounting.day_accounts import DayAccount
from platform_defs.engine.lake.reads import ReadTables
from platform_defs.engine.ledger.ledger import Ledger
from platform_defs.monitoring.fresh_checks import evaluate_limits
from platform_defs.monitoring.lake_metrics import LakeMetrics
from tests.support.bare_lake import bare_engine, commit_batch, commit_step
from tests.support.clock import NOON, Clock
from tests.support.recorded_accounts import record_accounts
from tests.support.small_sources import HOUR, MINUTE, START, join, source

Values = dict[str, float]
Scrape = Callable[[], Values]


@pytest.fixture
def engine(tmp_path: Path, clock: Clock) -> Engine:
    return bare_engine(tmp_path, clock, [source("l"), source("r")], [join()])


@pytest.fixture
def scrape(engine: Engine) -> Scrape:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(LakeMetrics(engine))

    def samples() -> Values:
        families = text_string_to_metric_families(generate_latest(registry).decode())
        found = {f"{s.name}{sorted(s.labels.items()) or ''}": s.value for family in families for s in family.samples}
        return {name.removeprefix("tidemark_"): value for name, value in found.items() if "scrape_seconds" not in name}

    return samples


def _samples(values: Values, metric: str) -> Values:
    """The samples of a metric by the values of their labels."""
    return {name[len(metric) :]: value for name, value in values.items() if name.partition("[")[0] == metric}


def test_an_empty_lake_has_no_rows_and_no_watermarks(scrape: Scrape) -> None:
    found = scrape()
    assert (found["up"], found["ledger_batches_total"], found["table_steps_total[('table', 'pairs')]"]) == (1, 0, 0)
    assert set(_samples(found, "source_rows_total").values()) == {0}
    assert not [name for name in found if "watermark" in name or "account" in name or name.startswith("ledger_batch_timestamp")]


def test_the_counts_of_sources_add_up(engine: Engine, scrape: Scrape, clock: Clock) -> None:
    commit_batch(engine, {"l": {"watermark": START, "rows_read": 10, "accepted": 5, "duplicate": 2, "quarantined": 2, "markers": 1}})
    first = scrape()
    clock.pass_ms(MINUTE)
    commit_batch(engine, {"l": {"watermark": START + HOUR, "warned": 3}, "r": {"kind": "inactive", "idle": True, "watermark": None}})
    found = scrape()
    outcomes = {"accepted": 15, "duplicate": 2, "quarantined": 2, "marker": 1}
    assert {f"[('outcome', '{o}'), ('source', 'l')]": n for o, n in outcomes.items()}.items() <= _samples(
        found, "source_rows_total"
    ).items()
    assert first["source_rows_total[('outcome', 'accepted'), ('source', 'l')]"] == 5
    assert _samples(found, "source_read_rows_total") == {"[('source', 'l')]": 20, "[('source', 'r')]": 0}
    assert _samples(found, "source_warned_rows_total") == {"[('source', 'l')]": 3, "[('source', 'r')]": 0}
    assert _samples(found, "source_watermark_timestamp_seconds") == {"[('source', 'l')]": (START + HOUR) / 1000}
    assert _samples(found, "source_watermark_lag_seconds") == {"[('source', 'l')]": (NOON + MINUTE - START - HOUR) / 1000}
    assert _samples(found, "source_idle") == {"[('source', 'l')]": 0, "[('source', 'r')]": 1}
    assert _samples(found, "source_active_timestamp_seconds") == {"[('source', 'l')]": (NOON + MINUTE) / 1000}
    assert (found["ledger_batches_total"], found["ledger_batch_timestamp_seconds"]) == (2, (NOON + MINUTE) / 1000)


def test_the_progress_of_tables(engine: Engine, scrape: Scrape, clock: Clock) -> None:
    commit_batch(engine, {"l": {"watermark": START}, "r": {"watermark": START}})
    commit_step(engine, "pairs", closed_to=START)
    commit_batch(engine, {"l": {"watermark": START + 2 * HOUR}, "r": {"watermark": START + HOUR}})  # 1 ms after the first
    clock.pass_ms(MINUTE + 1)
    found = scrape()
    by = "[('table', 'pairs')]"
    expected = {
        "steps_total": 1,
        "watermark_timestamp_seconds": (START + HOUR) / 1000,
        "finalized_timestamp_seconds": START / 1000,
        "lag_seconds": 3600,
        "unhandled_rows": 20,
        "stale_seconds": 60,
        "refused": 0,
        "failed": 0,
    }
    assert {name: found[f"table_{name}{by}"] for name in expected} == expected
    assert _samples(found, "table_held_back_by_info") == {"[('source', 'r'), ('table', 'pairs')]": 1}
    assert _samples(found, "table_held_back_seconds") == {by: 3600}
    assert not {name for name in found if name.startswith(("table_waits_for_info", "source_waits_for_info", "source_ahead"))}
    commit_step(engine, "pairs", closed_to=START + HOUR)
    now = scrape()
    assert (now[f"table_steps_total{by}"], now[f"table_lag_seconds{by}"], now[f"table_stale_seconds{by}"]) == (2, 0, 0)
    newest = engine.lake.newest_commit("pairs", "progress")
    assert newest is not None
    assert now[f"table_step_timestamp_seconds{by}"] == (newest.at or 0) / 1000


def test_the_state_of_a_table_is_the_handled_rows_in_files_that_are_read_again(engine: Engine, scrape: Scrape) -> None:
    def log(name: str, *rows: tuple[int, int]) -> None:
        times = pa.array([event_time for _, event_time in rows], pa.timestamp("ms", "UTC"))
        write_deltalake(engine.lake.path(f"events/{name}"), pa.table({"seq": [seq for seq, _ in rows], "event_time": times}), mode="append")

    commit_batch(engine, {"l": {"watermark": START}, "r": {"watermark": START}})
    log("l", (1, START - 6 * MINUTE), (1, START + MINUTE))
    log("l", (1, START - HOUR))
    log("r", (1, START - 30 * MINUTE))
    log("r", (2, START + HOUR))
    assert _samples(scrape(), "table_state_rows") == {"[('part', 'event_log'), ('table', 'pairs')]": 0}, "the table has not handled a row"
    commit_step(engine, "pairs", closed_to=START)
    found = scrape()
    assert _samples(found, "table_state_rows") == {"[('part', 'event_log'), ('table', 'pairs')]": 2}, (
        "the join's interval is from -5 to 10 minutes"
    )
    [newest, *_] = sorted(Path(engine.lake.path("events/l")).glob("*.parquet"), key=lambda file: -file.stat().st_size)
    part = "[('part', 'event_log'), ('table', 'pairs')]"
    assert _samples(found, "table_state_bytes") == {part: newest.stat().st_size}
    assert (found[f"table_state_files{part}"], found[f"table_skipped_files{part}"]) == (1, 2), (
        "of the four files, the one that is in neither count has a row that is not handled yet"
    )


def test_maintenance_does_not_change_the_time_of_the_newest_step(engine: Engine, scrape: Scrape) -> None:
    commit_batch(engine, {"l": {"watermark": START}, "r": {"watermark": START}})
    commit_step(engine, "pairs", closed_to=START)
    by = "table_step_timestamp_seconds[('table', 'pairs')]"
    before = scrape()[by]
    delta, newest = engine.lake.delta("pairs"), engine.lake.newest_commit("pairs", "progress")
    assert delta is not None
    assert newest is not None
    engine.lake.carry_metadata({"progress": newest}, delta)
    assert engine.lake.version("pairs") == 1
    assert scrape()[by] == before


def test_the_last_account_and_failure(engine: Engine, scrape: Scrape, clock: Clock) -> None:
    commit_batch(engine, {"l": {"watermark": START}, "r": {"watermark": START}})
    commit_step(engine, "pairs", closed_to=START)
    day = DayAccount("l", date(2026, 3, 1), accepted=10, matched=8, late=1)
    record_accounts(engine, "pairs", [day])
    clock.pass_ms(MINUTE)
    with pytest.raises(AssertionError, match="a session is started"):
        engine.advance("pairs")
    found = scrape()
    assert found["table_law_holds[('table', 'pairs')]"] == 0, "10 rows are accepted, and 8 are matched and 1 is late"
    assert found["table_account_timestamp_seconds[('table', 'pairs')]"] == NOON / 1000
    assert found["table_account_age_seconds[('table', 'pairs')]"] == 60
    assert found["table_account_rows[('side', 'l'), ('table', 'pairs'), ('term', 'late')]"] == 1
    assert (found["table_failed[('table', 'pairs')]"], found["table_failure_timestamp_seconds[('table', 'pairs')]"]) == (
        1,
        (NOON + MINUTE) / 1000,
    )


def test_a_lake_that_was_created_again_is_counted_again(engine: Engine, scrape: Scrape) -> None:
    for _ in range(3):
        commit_batch(engine, {"l": {"watermark": START}, "r": {"watermark": START}})
    commit_step(engine, "pairs", closed_to=START)
    assert scrape()["source_read_rows_total[('source', 'l')]"] == 30
    shutil.rmtree(engine.lake.root)
    commit_batch(engine, {"l": {"watermark": START}, "r": {"watermark": START}})
    commit_step(engine, "pairs", closed_to=START, operator=None)
    found = scrape()
    assert (found["source_read_rows_total[('source', 'l')]"], found["table_steps_total[('table', 'pairs')]"]) == (10, 1)


def test_a_lake_that_cannot_be_read_is_down(engine: Engine, scrape: Scrape, caplog: pytest.LogCaptureFixture) -> None:
    commit_batch(engine, {"l": {"watermark": START}})
    [file] = Path(engine.lake.path("ledger"), "_delta_log").glob("*.json")
    content = file.read_bytes()
    file.write_bytes(content[:50])
    with caplog.at_level(logging.WARNING):
        assert (scrape(), scrape()) == ({"up": 0}, {"up": 0})
    assert caplog.text.count("the lake cannot be read for metrics") == 1
    file.write_bytes(content)
    assert scrape()["up"] == 1


def test_a_table_that_cannot_be_read_hides_no_other_metric(engine: Engine, scrape: Scrape) -> None:
    commit_batch(engine, {"l": {"watermark": START}, "r": {"watermark": START}})
    commit_step(engine, "pairs", closed_to=START)
    [file] = Path(engine.lake.path("pairs"), "_delta_log").glob("*.json")
    file.write_bytes(file.read_bytes()[:50])
    found = scrape()
    assert _samples(found, "table_readable") == {"[('table', 'pairs')]": 0}
    assert (found["up"], found["source_read_rows_total[('source', 'l')]"]) == (1, 10)
    assert not _samples(found, "table_steps_total")


def test_a_table_that_cannot_be_read_hides_only_the_metrics_of_its_reader_that_depend_on_it(
    tmp_path: Path, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    by_key = WindowedAggregate(by="k", window=Tumbling(size="10 minutes"), aggregates={"n": "count(*)"})
    tables = [join(), join("others"), DerivedAsset(name="windows", inputs=("pairs",), operator=by_key)]
    engine = bare_engine(tmp_path, clock, [source("l"), source("r")], tables)
    commit_batch(engine, {"l": {"watermark": START}, "r": {"watermark": START}})
    for name in ("pairs", "windows", "others"):
        commit_step(engine, name, closed_to=START)
    record_accounts(engine, "windows", [DayAccount("l", date(2026, 3, 1), accepted=10)])
    [file] = Path(engine.lake.path("pairs"), "_delta_log").glob("*.json")
    file.write_bytes(file.read_bytes()[:50])
    registry = CollectorRegistry(auto_describe=False)
    registry.register(LakeMetrics(engine))

    def values(metric: str) -> dict[str, float]:
        families = text_string_to_metric_families(generate_latest(registry).decode())
        return {s.labels["table"]: s.value for family in families for s in family.samples if s.name == f"tidemark_{metric}"}

    assert values("table_readable") == {"pairs": 0, "others": 1, "windows": 1}
    assert values("table_steps_total") == {"others": 1, "windows": 1}
    assert values("table_failed") == {"others": 0, "windows": 0}
    assert values("table_law_holds").keys() == {"windows"}
    assert values("table_stale_seconds").keys() == {"others"}
    texts = [record.getMessage() for record in caplog.records if record.name == LakeMetrics.__module__]
    logged = [text.partition(" cannot be read for metrics: ")[0] for text in texts]
    assert logged == [*dict.fromkeys(logged)], "each reason is logged at the first of the scrapes only"
    assert {*logged} == {"pairs", "windows"}
    found = evaluate_limits(engine, dict.fromkeys(engine.assets, HOUR))
    assert {name: result["passed"] for name, result in found.items()} == {"pairs": False, "others": True, "windows": False}
    assert found["windows"]["description"].startswith("It is not known how long rows have waited: ")


def test_a_scrape_reads_only_new_batches_and_opens_no_table_again(engine: Engine, scrape: Scrape, monkeypatch: pytest.MonkeyPatch) -> None:
    commit_batch(engine, {"l": {"watermark": START}, "r": {"watermark": START}})
    commit_step(engine, "pairs", closed_to=START)
    scrape()
    opened, counted = list[str](), list[int]()
    open_table, count_rows = ReadTables.delta, Ledger.totals_by_source
    monkeypatch.setattr(ReadTables, "delta", lambda lake, table: opened.append(table) or open_table(lake, table))
    monkeypatch.setattr(Ledger, "totals_by_source", lambda ledger, after=0: counted.append(after) or count_rows(ledger, after))
    scrape()
    commit_batch(engine, {"l": {"watermark": START + HOUR}, "r": {"watermark": START}})
    assert scrape()["source_read_rows_total[('source', 'l')]"] == 20
    assert {*opened} == {"events/l", "events/r"}, "the event logs do not exist, so no opened table can be kept"
    assert counted == [1]


def test_names_and_units_follow_the_conventions(engine: Engine, scrape: Scrape) -> None:
    commit_batch(engine, {"l": {"watermark": START}, "r": {"watermark": START}})
    for name in {sample.partition("[")[0] for sample in scrape()}:
        assert not name.endswith(("_ms", "_milliseconds", "_count")), f"{name} is not in base units"
        assert ("timestamp" in name) <= name.endswith("_timestamp_seconds")
