"""If one asset fails, the command line and the maintenance job still process the others, and then name the failed one in an error."""

import re
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import dagster as dg
import pytest
from typer.testing import CliRunner

from assets.contracts import DerivedAsset
from assets.ports import TERMS
from operators import Aggregate, IntervalJoin, TopN
from platform_defs.cli import commands as cli
from platform_defs.cli.failures import AdvanceError, StatusError
from platform_defs.engine import MaintenanceError, StepError
from platform_defs.engine.advance.advance import Step
from platform_defs.engine.inputs.progress import Progress
from platform_defs.engine.ledger.ledger import Batch, SourceBatch
from platform_defs.engine.operations.maintenance import Maintained
from platform_defs.orchestration.jobs import maintenance_job
from platform_defs.settings import settings
from tests.platform_defs.cli.test_commands import tidemark
from tests.support.status_reports import status_report

TOTAL = Aggregate(by="k", aggregates={"n": "count(*)"})
BEST = TopN(by="k", order_by="n", rank_end=1, unique_key="k", change="change")
ASSETS = {
    name: DerivedAsset(name=name, inputs=(of,), operator=operator)
    for name, of, operator in [("bad", "l", TOTAL), ("of_bad", "bad", BEST), ("of_of_bad", "of_bad", BEST), ("good", "l", TOTAL)]
}
OVERFLOW = StepError.raised("bad", "ARITHMETIC_OVERFLOW")


@dataclass
class FakeEngine:
    """Advances assets by name. `bad` fails until batch `fixed_at`."""

    error: Exception | None = OVERFLOW
    called: list[str] = field(default_factory=list)
    assets: dict[str, DerivedAsset] = field(default_factory=lambda: ASSETS)
    sources: tuple[str, ...] = ("l", "r")
    sinks: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()
    workspace: None = None
    batches: int = 3
    fixed_at: int = 99

    @property
    def pending(self) -> "FakeEngine":
        return self

    @property
    def accounts(self) -> "FakeEngine":
        return self

    @property
    def failures(self) -> "FakeEngine":
        return self

    @property
    def queries(self) -> "FakeEngine":
        return self

    def enable(self) -> AbstractContextManager[None]:
        return nullcontext()

    def recorded_of_account(self, name: str) -> AbstractContextManager[None]:
        return nullcontext()

    def check(self, name: str, step: Any) -> list[Any]:
        return []

    def describe_progress(self, name: str) -> dict[str, int]:
        return {"lag_ms": 0}

    def steps(self, name: str, until: int | None = None, *, checked: bool = False, purpose: str = "write") -> Generator[Any]:
        self.called.append(name)
        if name == "bad" and self.error:
            raise self.error
        yield Step(Progress(), Progress(step=1, seq=1), 1)

    def rebuild_days(self, name: str, first: object, last: object) -> Any:
        next(self.steps(f"rebuild {name}" if name != "bad" else name))
        return SimpleNamespace(days=(), missing=0, extra=0, kept_from=None, is_compared=True)

    def drain(self, assets: object) -> None:
        return None

    def ingest(self, every: str | None, on_batch: Callable[[Batch], None], on_quiet: object, on_start: Callable[[], None]) -> list[Any]:
        for n in range(1, self.batches + 1):
            self.error = None if n >= self.fixed_at else self.error
            rows = SourceBatch(seq=n, kind="rows", ingested_at=n, source="l", rows_read=1_200, accepted=1_199, quarantined=1, watermark=0)
            on_batch((rows, SourceBatch(seq=n, kind="rows", ingested_at=n, source="r")))
        return []

    def maintain(self) -> list[Maintained]:
        return [Maintained("pairs", 4, 1, 3), Maintained("events/l", failed="a file is lost"), Maintained("total", left="busy")]


def run(monkeypatch: pytest.MonkeyPatch, engine: FakeEngine, *command: str) -> tuple[str, BaseException | None]:
    """The output and the exit code of a command."""
    monkeypatch.setattr(cli, "_engine", lambda: engine)
    result = CliRunner().invoke(cli.app, [*command])
    return result.output, result.exception


@pytest.mark.parametrize(
    "command", [("advance", "--json"), ("drain", "--json"), ("backfill", "--from", "2026-03-01", "--to", "2026-03-01", "--rebuild")]
)
def test_assets_that_do_not_read_a_failed_one_are_advanced(monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]) -> None:
    engine = FakeEngine()
    out, error_raised = run(monkeypatch, engine, *command)
    rebuilt = ["bad", "rebuild good"] if "backfill" in command else ["bad"]
    assert sorted(engine.called) == sorted([*rebuilt, "good"])
    assert "good" in out, "successful steps are shown"
    assert isinstance(error_raised, AdvanceError)
    assert str(error_raised).startswith("bad could not be advanced; assets that do not read these were")
    assert "ARITHMETIC_OVERFLOW" in str(error_raised)


def test_a_stream_prints_what_each_batch_has_ingested_and_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    joined = DerivedAsset(name="joined", inputs=("l", "r"), operator=IntervalJoin(on="k", lower=0, upper=1))
    engine = FakeEngine(batches=2, error=None, assets={"joined": joined, "good": ASSETS["good"]})
    out, _ = run(monkeypatch, engine, "ingest", "--every", "1 second")
    lines = [line for line in out.splitlines() if line.strip()]
    assert lines[0] == f"Watching {settings().landing_root} for files of l, r every 1 second. Ctrl-C ends it."
    assert lines[1] == "batch 1: l 1,200 rows read, 1,199 accepted, 1 quarantined, watermark 1970-01-01 00:00:00.000Z"
    assert re.fullmatch(r"  rows added: joined 1; changes: good 1; \d\.\d s", lines[2])
    assert re.fullmatch(r"  the conservation law holds: (joined, good|good, joined); \d\.\d s", lines[3])
    assert lines[4].startswith("batch 2: l ")


def test_an_interrupted_stream_prints_its_batches_and_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    def ingest(_: object, on_batch: Callable[[Batch], None], *__: object) -> list[Any]:
        on_batch((SourceBatch(seq=1, kind="rows", ingested_at=1, source="l", rows_read=1_200, accepted=1_199),))
        raise KeyboardInterrupt

    engine = FakeEngine(assets={})
    monkeypatch.setattr(engine, "ingest", ingest)
    monkeypatch.setattr(cli, "_engine", lambda: engine)
    result = tidemark("ingest", "--every", "1 second")
    assert result.code == 130
    assert result.err.strip().splitlines()[-1] == "Ended after 1 batch with 1,199 accepted rows."


LOST = {"source": "l", "seq": 1, "ledger": 3, "log": 2}


@pytest.mark.parametrize(
    ("law", "shown", "message"),
    [
        ({"holds": True, "broken": []}, "bad: nothing is finalized yet", None),
        (
            {"holds": False, "broken": [], "ledger_differs_from_log": [LOST]},
            "bad: ledger and log differ for l, batch 1: 3 rows in the ledger, 2 in the log",
            "the conservation law does not hold for bad. The report above",
        ),
        (
            {"holds": False, "broken": [], "refused": "other inputs"},
            "bad: cannot be accounted for: other inputs",
            "bad cannot be accounted for. The report",
        ),
    ],
)
def test_status_fails_if_the_law_does_not_hold(
    monkeypatch: pytest.MonkeyPatch, law: dict[str, Any], shown: str, message: str | None
) -> None:
    counts = {term: {"l": 0} for term in TERMS} | {"results": 0, "closed_to": None, "lag_seconds": 0, "complete_to": None}
    monitored = {"held_back_by": None, "held_back_seconds": None, "last_failure": None}
    asset = {"steps": 0, "waits_for": None, "law": law, **counts, **monitored}
    monkeypatch.setattr(cli.status_report, "recounted_status", lambda *_: status_report(assets={"bad": asset}))
    out, error_raised = run(monkeypatch, FakeEngine(), "status", "--recount")
    assert shown in out
    assert isinstance(error_raised, StatusError) == (message is not None)
    assert message is None or str(error_raised).startswith(message)


def test_the_name_of_a_failed_table_is_shown_if_its_reason_begins_with_a_longer_name() -> None:
    error = AdvanceError.of({"order": "order_wide was rebuilt", "of_order": "of_order lacks a file", "source": "source 'l': its rows"})
    assert str(error).splitlines()[1:] == ["order: order_wide was rebuilt", "of_order lacks a file", "source: source 'l': its rows"]


def test_a_backfill_is_recommended_only_for_tables_that_can_be_accounted_for() -> None:
    law = {"holds": False, "broken": [1], "days_to_rebuild": {"first": "2026-03-01", "last": "2026-03-02"}}
    refused = law | {"refused": "other inputs", "days_to_rebuild": {"first": "2026-02-01", "last": "2026-04-01"}}
    with pytest.raises(StatusError, match=r"`tidemark backfill --from 2026-03-01 --to 2026-03-02 --rebuild`"):
        StatusError.check({"good": law, "bad": refused})
    with pytest.raises(StatusError, match=r"^bad cannot be accounted for\. The report above gives the rows or the reason; after a repair"):
        StatusError.check({"bad": refused})


def test_maintenance_shows_every_table_and_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    out, error_raised = run(monkeypatch, FakeEngine(), "maintain", "--json")
    assert '"pairs"' in out
    assert '"a file is lost"' in out
    assert isinstance(error_raised, MaintenanceError)
    with pytest.raises(dg.Failure, match=r"1 of the lake's tables could not be maintained.*events/l: a file is lost") as failed:
        maintenance_job.execute_in_process(resources={"engine": FakeEngine()})
    assert failed.value.metadata["pairs"].value == "4 files, now 1; 3 deleted"
