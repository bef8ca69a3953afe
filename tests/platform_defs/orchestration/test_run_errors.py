"""The text that describes why a run of Dagster failed: it never has the text of another library's error, which may quote a row."""

import dagster as dg
import pytest
from dagster import DagsterInstance

from platform_defs.engine.lake.errors import LakeError
from platform_defs.orchestration.run_errors import failed_steps


class _OfAnotherLibrary(Exception): ...


_OfAnotherLibrary.__name__ = _OfAnotherLibrary.__qualname__ = "LakeError"
_ROW = "order 17 of Ada Lovelace"


def _wrapped(cause: Exception) -> Exception:
    error = ValueError(_ROW)
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (LakeError("no table: name another"), "no table: name another"),
        (_wrapped(LakeError("no table\nat all")), r"no table\nat all"),
        (_OfAnotherLibrary(_ROW), "LakeError"),
        (_wrapped(KeyError(_ROW)), "KeyError"),
        (dg.Failure("the day is not final"), "the day is not final"),
    ],
)
def test_a_failed_step_is_described_by_tidemarks_own_texts_only(error: Exception, text: str) -> None:
    @dg.op
    def step() -> None:
        raise error

    @dg.job
    def job() -> None:
        step()

    instance = DagsterInstance.ephemeral()
    run = job.execute_in_process(instance=instance, raise_on_error=False)
    assert failed_steps(instance, run.run_id) == f"step: {text}"
