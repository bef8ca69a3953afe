"""Describes why a run of Dagster failed.

It shows the text of Tidemark's own errors and of a `dg.Failure`. Of any other error it shows the class only, as the text may quote rows.
"""

from collections.abc import Iterator

import dagster as dg
from dagster import DagsterInstance

from operators.errors import TidemarkError
from platform_defs.safe_text import one_line, shortened

_LONGEST = 500


def failed_steps(instance: DagsterInstance, run_id: str) -> str | None:
    """The failed steps of a run; None if no step failed.

    Each has the description of its `dg.Failure`, the text of Tidemark's error, or the class of any other error.
    """
    failures = list[str]()
    for entry in instance.all_logs(run_id, of_type=dg.DagsterEventType.STEP_FAILURE):
        data = entry.get_dagster_event().step_failure_data
        names, error = list[str](), data.error
        while error is not None:
            names.append(error.cls_name or "an error")
            name, _, text = error.message.partition(": ")
            if name.strip() in _own_error_names():
                names = [text.strip() or name.strip()]
                break
            error = error.cause
        description = data.user_failure_data.description if data.user_failure_data else None
        failures.append(f"{entry.step_key}: {description or (names[-1] if names else 'failed')}")
    return short_line("; ".join(failures)) if failures else None


def has_failed_with(instance: DagsterInstance, run_id: str, kind: type[Exception]) -> bool:
    """Whether a step of a run failed with an error of a class."""
    for entry in instance.all_logs(run_id, of_type=dg.DagsterEventType.STEP_FAILURE):
        error = entry.get_dagster_event().step_failure_data.error
        while error is not None:
            if error.message.partition(": ")[0].strip() == f"{kind.__module__}.{kind.__qualname__}":
                return True
            error = error.cause
    return False


def short_line(text: str) -> str:
    """The text in one line. Beyond 500 characters it is cut, and its length is added."""
    return shortened(one_line(text), _LONGEST)


def _own_error_names() -> set[str]:
    """The classes of Tidemark's own errors, with their modules: another library's class may have the same name."""
    return {f"{kind.__module__}.{kind.__qualname__}" for kind in _subclasses(TidemarkError)}


def _subclasses(kind: type) -> Iterator[type]:
    """The direct and indirect subclasses of a class."""
    for subclass in kind.__subclasses__():
        yield subclass
        yield from _subclasses(subclass)
