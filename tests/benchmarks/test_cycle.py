"""The summary of a cycle, which other programs read as JSON."""

import subprocess

import psutil
import pytest

from benchmarks.cycle import Cost, Cycle, _join_alone, _of_processes
from platform_defs.settings import Settings
from platform_defs.shop import shop


def test_a_summary_adds_up_tables_by_phase() -> None:
    cycle = Cycle(rows=10)
    cycle.parts["ingest", "all"] = Cost(1.0, 3, 2, 1.5)
    cycle.parts["advance", "pairs"] = Cost(0.5, 4, 1, 0.5)
    cycle.parts["advance", "sums"] = Cost(0.25, 5, 2, 0.25)
    assert cycle.summary == {
        "rows": 10,
        "seconds": 1.75,
        "jobs": 12,
        "commits": 5,
        "cpu_s": 2.25,
        "memory_mb": 0,
        "phases": {
            "ingest": {"seconds": 1.0, "jobs": 3, "commits": 2, "cpu_s": 1.5},
            "advance": {"seconds": 0.75, "jobs": 9, "commits": 3, "cpu_s": 0.75},
        },
    }
    assert cycle.tables["advance sums"] == {"seconds": 0.25, "jobs": 5, "commits": 2, "cpu_s": 0.25}


def test_the_join_alone_has_its_sources_and_suites() -> None:
    alone = _join_alone(shop(Settings()))  # pyright: ignore[reportCallIssue]
    assert ([*alone.sources_by_name], [*alone.tables_by_name]) == (["orders", "payments"], ["payment_order_wide"])
    assert {*alone.suites_by_name()} == {"orders", "payments", "payment_order_wide"}


def test_a_child_process_that_ends_meanwhile_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    started = subprocess.Popen(["true"])
    child = psutil.Process(started.pid)
    started.wait()
    monkeypatch.setattr(psutil.Process, "children", lambda *_, **__: [child, psutil.Process()])
    assert [process.pid for process in _of_processes(lambda process: process.memory_info() and process)] == [psutil.Process().pid] * 2
