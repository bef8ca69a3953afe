"""One asset's failure does not stop the others: the command line and the maintenance job try all, then fail with the names."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import dagster as dg
import pytest
from typer.testing import CliRunner

from assets.contracts import DerivedAsset
from operators import Aggregate, TopN
from platform_defs.cli import commands as cli
from platform_defs.cli.failures import AdvanceError
from platform_defs.engine import MaintenanceError, StepError
from platform_defs.engine.operations.maintenance import Maintained
from platform_defs.jobs import maintenance_job

TOTAL = Aggregate(by="k", aggregates={"n": "count(*)"})
BEST = TopN(by="k", order_by="n", rank_end=1, unique_key="k", change="change")
ASSETS = {
    name: DerivedAsset(name=name, inputs=(of,), operator=operator)
    for name, of, operator in [("bad", "l", TOTAL), ("of_bad", "bad", BEST), ("of_that", "of_bad", BEST), ("good", "l", TOTAL)]
}
OVERFLOW = StepError.raised("bad", "ARITHMETIC_OVERFLOW")


@dataclass
class FakeEngine:
    """Advances by name; `bad` fails until it is fixed."""

    error: Exception | None = OVERFLOW
    asked: list[str] = field(default_factory=list)
    assets: dict[str, DerivedAsset] = field(default_factory=lambda: ASSETS)
    entries: int = 3
    mended_at: int = 99

    @property
    def pending(self) -> "FakeEngine":
        return self

    def described(self, name: str) -> dict[str, int]:
        return {"lag_ms": 0}

    def steps(self, name: str, until: int | None = None, *, checked: bool = False) -> Iterator[Any]:
        self.asked.append(name)
        if name == "bad" and self.error:
            raise self.error
        yield SimpleNamespace(after=SimpleNamespace(step=1, seq=1, closed_to=None), rows=1)

    def rebuild(self, name: str, first: object, last: object) -> Any:
        next(self.steps(f"rebuild {name}" if name != "bad" else name))
        return SimpleNamespace(days=(), missing=0, extra=0)

    def drain(self) -> None:
        return None

    def ingest(self, every: str | None, entered: Callable[[object], None]) -> list[Any]:
        for n in range(self.entries):
            self.error = None if n >= self.mended_at else self.error
            entered(n)
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
    out, ended = run(monkeypatch, engine, *command)
    rebuilt = ["bad", "rebuild good"] if "backfill" in command else ["bad"]
    assert engine.asked == [*rebuilt, "good"]
    assert "good" in out, "what was done is shown"
    assert isinstance(ended, AdvanceError)
    assert str(ended).startswith("bad could not be advanced; assets that do not read these were")
    assert "ARITHMETIC_OVERFLOW" in str(ended)


def test_maintenance_shows_every_table_and_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    out, ended = run(monkeypatch, FakeEngine(), "maintain", "--json")
    assert '"pairs"' in out
    assert '"a file is lost"' in out
    assert isinstance(ended, MaintenanceError)
    with pytest.raises(dg.Failure, match=r"1 of the lake's tables could not be maintained.*events/l: a file is lost") as failed:
        maintenance_job.execute_in_process(resources={"engine": FakeEngine()})
    assert failed.value.metadata["pairs"].value == "4 files, now 1; 3 deleted"
