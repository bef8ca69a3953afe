"""The command line prints rows escaped, complete and within the terminal's width. No test starts Spark."""

from dataclasses import asdict
from datetime import date
from typing import Any

import pytest

from platform_defs.cli import monitored, render, status
from platform_defs.engine.operations.maintenance import Maintained
from platform_defs.engine.operations.rebuild import Rebuilt
from tests.support.status_reports import status_report

EVIL = "\x1b[31m\x9b2J[bold]:warning:[/]\u202e\x07\\"
ESCAPED = r"\x1b[31m\x9b2J[bold]:warning:[/]\u202e\x07"


def _late(rows: list[dict[str, Any]], total: int | None = None) -> dict[str, Any]:
    return {"source": "payments", "asset": "wide", "total": len(rows) if total is None else total, "rows": rows}


@pytest.fixture(params=[80, 200], ids=["narrow", "wide"])
def width(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(render.out, "_width", request.param)
    return request.param


def test_late_rows_fit_the_terminal_and_are_escaped(width: int, capsys: pytest.CaptureFixture[str]) -> None:
    row = {
        "payment_id": EVIL,
        EVIL: 1.5,
        "amount": None,
        "items": [{"a": 1}],
        "paid": True,
        "big": 2**40,
        "event_time": "2026-03-01T00:00:00Z",
    }
    render.print_late(_late([row, row], 7))
    out = capsys.readouterr().out
    assert out.startswith("Late rows of payments for wide: 7, of which 2 are shown")
    assert out.count(ESCAPED) == (4 if width == 80 else 3)
    assert out.count('[{"a": 1}]') == 2
    assert max(map(len, out.splitlines())) <= width
    assert out.replace("\n", "").isprintable()
    assert "…" not in out


def test_the_columns_of_rows_have_the_names_by_which_a_query_can_select_them(width: int, capsys: pytest.CaptureFixture[str]) -> None:
    render.print_result({"rows": [{"window_end": "x", "a_b": 1, "a b": 2}], "has_more": False})
    assert capsys.readouterr().out.splitlines()[1].split("  ") == ["window_end", " a_b", " a b"]


def test_a_long_value_is_cut_and_its_length_shown(width: int, capsys: pytest.CaptureFixture[str]) -> None:
    render.print_late(_late([{"a": "x" * 1_000}]))
    out = capsys.readouterr().out
    assert out.startswith("Late rows of payments for wide: 1\n")
    assert out.count("x") == 200
    assert "(1,000 characters)" in out


def test_a_table_of_batches_fits_80_columns_and_leaves_out_counts_of_0(monkeypatch, capsys) -> None:
    monkeypatch.setattr(render.out, "_width", 80)
    counts = {"rows_read": 3_000, "accepted": 2_999, "duplicate": 2, "quarantined": 1, "markers": 0, "warned": 0}
    source = {**counts, "watermark": "2026-03-01 12:00:00.000Z", "idle": False}
    render.print_batches({"entries": [{"seq": 12, "kind": "rows", "sources": {"payments": source}}]})
    _, header, _, row, *_ = capsys.readouterr().out.splitlines()
    assert header.split() == ["seq", "source", "read", "accepted", "duplicate", "quarantined", "watermark"]
    assert row.split() == ["12", "payments", "3,000", "2,999", "2", "1", "2026-03-01", "12:00:00"]


def test_without_late_rows_one_line_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    render.print_late(_late([]))
    assert capsys.readouterr().out == "No row of payments is late for wide.\n"


def test_names_and_reasons_are_escaped_in_every_table(width: int, capsys: pytest.CaptureFixture[str]) -> None:
    """The file name in a maintenance report, the name of a lake, and a side of a violated law."""
    render.print_maintained({"tables": [asdict(Maintained(EVIL, 1, 1, left=EVIL, held_back=EVIL))]})
    failure = {"at": "2026-03-01 12:00:00.000Z", "error": "OSError", "message": EVIL}
    monitored = {"held_back_by": EVIL, "held_back_seconds": 3600.0, "last_failure": failure}
    asset = {"steps": 0, "waits_for": [EVIL], "law": {"holds": True, "broken": []}, **monitored}
    retention = {"first_batch": 1, "removable_rows": 0, "held_back": EVIL}
    status.print_recounted(status_report(lake=f"/data/{EVIL}", ledger_retention=retention, assets={EVIL: asset}))
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert "\u202e" not in out
    assert f"Lake /data/{ESCAPED}" in out
    assert f"{ESCAPED}\\: nothing is finalized yet; it waits for an advance of {ESCAPED}" in out.replace("\n", "")
    assert f"ledger: kept from batch 1 on; held back: {ESCAPED}\\" in out
    assert f"Source {ESCAPED}\\ holds back {ESCAPED}\\: its watermark is 1 h behind that of the next source." in out
    assert f"{ESCAPED}\\: the last advance failed at 2026-03-01 12:00:00.000Z: {ESCAPED}" in out
    assert out.replace("\n", "").isprintable()


NOT_HELD_BACK = {"held_back_by": None, "held_back_seconds": None, "last_failure": None}


@pytest.mark.parametrize(("behind", "shown"), [(59.0, ""), (60.0, "1 min behind"), (None, "it has no watermark yet")])
def test_a_source_that_holds_back_tables_is_shown_from_a_minute_on(behind: float | None, shown: str, capsys) -> None:
    tables = {name: NOT_HELD_BACK | {"held_back_by": "payments", "held_back_seconds": behind} for name in ("a", "b")}
    monitored.print_report(status_report(assets={**tables, "c": NOT_HELD_BACK}))
    out = capsys.readouterr().out
    assert ("Source payments holds back a, b: " in out) == bool(shown)
    assert shown in out


@pytest.mark.parametrize(
    ("ahead", "why"),
    [(7200.0, "the watermark of orders is 2 h ahead"), (None, "payments has no watermark yet"), (0.5, "the watermark of orders is")],
)
def test_a_source_that_waits_for_its_alignment_group_is_shown(ahead: float | None, why: str, capsys) -> None:
    waits = {"waits_for": "payments", "ahead_seconds": ahead, "last_failure": None}
    free = {"waits_for": None, "ahead_seconds": None, "last_failure": None}
    monitored.print_report(status_report(sources={"orders": waits, "payments": free}))
    out = capsys.readouterr().out
    assert out.startswith(f"Source orders waits for payments of its alignment group: {why}")
    assert out.count("Source") == 1


def test_a_failed_publish_is_shown(capsys) -> None:
    failure = {"at": "2026-03-01 12:00:00.000Z", "error": "SinkError", "message": "no route"}
    monitored.print_report(status_report(sink_failures={"totals": failure}))
    assert capsys.readouterr().out == "totals: the last publish to Kafka failed at 2026-03-01 12:00:00.000Z: no route\n"


def test_a_failed_ingest_is_shown(capsys) -> None:
    failure = {"at": "2026-03-01 12:00:00.000Z", "error": "LakeError", "message": "no route"}
    monitored.print_report(status_report(ingest_failure=failure))
    assert capsys.readouterr().out == "ingest: the last run failed at 2026-03-01 12:00:00.000Z: no route\n"


def test_a_table_of_rows_by_side_with_filtered_rows_fits_80_columns(monkeypatch, capsys) -> None:
    monkeypatch.setattr(render.out, "_width", 80)
    terms = {term: {"rides": 1_000_000, "fares": 0} for term in ("accepted", "matched", "unmatched", "pending", "late", "filtered")}
    none = {term: {"rides": 0, "fares": 0} for term in ("missing", "extra")}
    times = {"closed_to": None, "lag_seconds": 0, "complete_to": None, "waits_for": []}
    table = {"steps": 1, "ledger_entry": 1, "pairs": 1, "law": {"holds": True, "broken": []}, **terms, **none, **times, **NOT_HELD_BACK}
    status.print_recounted(status_report(assets={"ride_fares": table}))
    out = capsys.readouterr().out
    assert "…" not in out
    assert "missing" not in out
    assert "late + filtered, on every side and day" in out
    assert "  1 pair; handled up to ledger batch 1" in out


@pytest.mark.parametrize(("complete", "text"), [(True, "Nothing to do: every table is at its watermark.\n"), (False, "")])
def test_nothing_to_do_is_printed_only_if_every_table_was_advanced(complete: bool, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    render.print_steps({"steps": []}, complete=complete)
    assert capsys.readouterr().out == text


def test_a_table_of_sources_fits_80_columns(monkeypatch, capsys) -> None:
    monkeypatch.setattr(render.out, "_width", 80)
    counts = dict.fromkeys(render.COUNTS, 1000) | dict.fromkeys(render.RARE, 0)
    source = {**counts, "watermark": "2026-03-02T08:49:35.687Z", "idle": True, "waits_for": None, "last_failure": None}
    status.print_recorded(status_report(sources={"order_updates": source}))
    out = capsys.readouterr().out
    assert "…" not in out
    assert "Idle sources: order_updates" in out


def test_a_rebuild_names_the_days_that_it_corrected() -> None:
    day = date(2026, 3, 1)
    assert render.rebuild_outcome("pairs", Rebuilt(day, day, (day,), 1, 2)) == {
        "asset": "pairs",
        "days_corrected": ["2026-03-01"],
        "missing": 1,
        "extra": 2,
    }


def test_a_backfill_names_a_table_whose_rows_cannot_be_compared(capsys: pytest.CaptureFixture[str]) -> None:
    day = date(2026, 3, 1)
    rebuilt = [render.rebuild_outcome("total", Rebuilt(day, day, is_compared=False)), render.rebuild_outcome("pairs", Rebuilt(day, day))]
    render.print_backfill({"rebuilt": rebuilt, "steps": []})
    [total, pairs, *_] = capsys.readouterr().out.splitlines()
    assert total.startswith("total: not compared, since")
    assert total.endswith("`tidemark rebuild total --downstream`")
    assert pairs == "pairs: rebuilt, no difference"
