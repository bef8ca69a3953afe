"""The summary of a cycle, which other programs read as JSON."""

from benchmarks.cycle import Cost, Cycle


def test_a_summary_adds_up_tables_by_phase() -> None:
    cycle = Cycle(rows=10)
    cycle.parts["ingest", "all"] = Cost(1.0, 3, 2)
    cycle.parts["advance", "pairs"] = Cost(0.5, 4, 1)
    cycle.parts["advance", "sums"] = Cost(0.25, 5, 2)
    assert cycle.summary == {
        "rows": 10,
        "seconds": 1.75,
        "jobs": 12,
        "commits": 5,
        "phases": {
            "ingest": {"seconds": 1.0, "jobs": 3, "commits": 2},
            "advance": {"seconds": 0.75, "jobs": 9, "commits": 3},
        },
    }
    assert cycle.tables["advance sums"] == {"seconds": 0.25, "jobs": 5, "commits": 2}
