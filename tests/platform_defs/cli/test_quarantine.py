"""The output of the quarantine commands, and of an ingest that skipped files: tables in 80 columns, JSON, and one-line errors."""

from types import SimpleNamespace
from typing import Any

import pytest

from platform_defs.cli import commands as cli
from platform_defs.cli import quarantine as quarantine_cli
from platform_defs.engine.formats.files import File
from platform_defs.engine.formats.unreadable_files import Unread
from platform_defs.engine.ingest.errors import UnreadError
from platform_defs.engine.ingest.quarantine_error import QuarantineError
from platform_defs.engine.ingest.quarantine_list import QuarantinedFile, RejectedRows
from platform_defs.engine.ingest.release import Released
from platform_defs.engine.ledger.ledger import SourceBatch
from tests.platform_defs.cli.test_commands import tidemark

LONG_REASON = "malformed: it has columns that the contract does not name: " + ", ".join(f"c{n}" for n in range(60))
CORRUPTED = QuarantinedFile(File(1, f"file:/in/{'deep/' * 20}a%20b%1B%5B31m.jsonl.gz", 7, "orders"), 3, "malformed: torn")
REQUESTED = QuarantinedFile(File(1, "file:/in/c.jsonl.gz", 7, "orders"), 4, "malformed: \x1b]0;title\x07", is_retry_requested=True)


class _Quarantine:
    """A quarantine with fixed results, which records the requests."""

    def __init__(self) -> None:
        self.requests = list[tuple[Any, ...]]()

    def files(self, source: str) -> list[QuarantinedFile]:
        return [CORRUPTED, REQUESTED] if source == "orders" else []

    def rows(self, source: str) -> list[RejectedRows]:
        if source not in ("orders", "payments"):
            raise QuarantineError.no_source(source, ["orders", "payments"])
        return (
            [RejectedRows(source, LONG_REASON, 1_234_567, 12), RejectedRows(source, "type: \u202e\x1b[2J[red]", 1, 0)]
            if source == "orders"
            else []
        )

    def retry(self, *request: Any) -> list[QuarantinedFile]:
        self.requests.append(request)
        return [CORRUPTED] if request[0] == "orders" else []

    def release(self, *request: Any) -> list[Released]:
        self.requests.append(request)
        return [Released("released-20260301T120000000000Z-1.jsonl", 12)] if request[0] == "orders" else []


@pytest.fixture
def quarantine(monkeypatch: pytest.MonkeyPatch) -> _Quarantine:
    fake = _Quarantine()
    ingestion = SimpleNamespace(quarantine=fake, quarantine_list=fake)
    engine = SimpleNamespace(ingestion=ingestion, sources={"orders": None, "payments": None}, folders={"orders": "/in", "payments": "/in"})
    monkeypatch.setattr(quarantine_cli, "_engine", lambda: engine)
    return fake


@pytest.mark.parametrize("command", [["list"], ["list", "orders"], ["retry", "orders"], ["release", "orders"]])
def test_tables_fit_80_columns_and_no_control_character_reaches_the_terminal(quarantine: _Quarantine, command: list[str]) -> None:
    result = tidemark("quarantine", *command)
    assert (result.code, result.err) == (0, "")
    assert all(len(line) <= 80 for line in result.out.splitlines())
    assert result.out.replace("\n", "").isprintable()
    if command[0] == "list":
        assert all(text in result.out for text in ("1,234,567", r"\x1b", r"\u202e", "[red]", "again)", "rejected rows"))


def test_json_output_is_complete(quarantine: _Quarantine) -> None:
    assert tidemark("quarantine", "list", "--json").json["sources"] == {
        "orders": {
            "files": [
                {"file": f"file:/in/{'deep/' * 20}a b\x1b[31m.jsonl.gz", "seq": 3, "reason": "malformed: torn", "asked": False},
                {"file": "file:/in/c.jsonl.gz", "seq": 4, "reason": "malformed: \x1b]0;title\x07", "asked": True},
            ],
            "rows": [
                {"reason": LONG_REASON, "rows": 1_234_567, "released": 12},
                {"reason": "type: \u202e\x1b[2J[red]", "rows": 1, "released": 0},
            ],
        },
        "payments": {"files": [], "rows": []},
    }
    report = tidemark("quarantine", "release", "orders", "--reason", "type", "--reason", "rule", "--file", "a.csv", "--json").json
    assert report == {"source": "orders", "folder": "/in", "files": [{"file": "released-20260301T120000000000Z-1.jsonl", "rows": 12}]}
    assert len(tidemark("quarantine", "retry", "orders", "a.gz", "b.gz", "--json").json["files"]) == 1
    assert quarantine.requests == [("orders", ["type", "rule"], ["a.csv"]), ("orders", ["a.gz", "b.gz"])]


@pytest.mark.parametrize(
    ("args", "code", "message"),
    [
        (["list", "payments"], 0, "Nothing is in quarantine: payments."),
        (["retry", "payments"], 0, "There is no file to read again."),
        (["release", "payments"], 0, "There are no matching rows to release."),
        (["list", "refunds"], 1, "error: `source` is 'refunds'; legal: orders, payments"),
        (["retry", "refunds"], 1, "error: `source` is 'refunds'; legal: orders, payments"),
        (["release", "refunds"], 1, "error: `source` is 'refunds'; legal: orders, payments"),
        (["retry"], 2, "source"),
        (["destroy"], 2, "destroy"),
    ],
)
def test_empty_results_and_wrong_arguments_are_one_line_messages(quarantine: _Quarantine, args: list[str], code: int, message: str) -> None:
    result = tidemark("quarantine", *args)
    assert result.code == code
    assert message in result.out + result.err
    assert "Traceback" not in result.err


def test_an_ingest_that_skipped_files_reports_its_batches_and_the_error(monkeypatch: pytest.MonkeyPatch) -> None:
    unread = [Unread(File(1, f"file:/in/{n}.jsonl", 7, "orders"), "SocketTimeoutException: Read timed out") for n in range(7)]

    def ingest(*_: object, **__: object) -> None:
        raise UnreadError(unread, [(SourceBatch(seq=1, kind="rows", ingested_at=1, source="orders", rows_read=3, accepted=3),)])

    monkeypatch.setattr(cli, "_engine", lambda: SimpleNamespace(ingest=ingest, steps=list, assets={}))
    result = tidemark("ingest")
    assert result.code == 1
    assert "Ledger batches" in result.out
    assert "error: source 'orders': 7 files could not be read: file:/in/0.jsonl (SocketTimeoutException: Read timed out), " in result.err
    assert "and 2 more. The cause is the machine, the store or the network, not the content" in result.err
