"""Describes why a run of Dagster failed.

It shows the text of Tidemark's own errors and of a `dg.Failure`. Of any other error it shows the class only, as the text may quote rows.
"""

from collections.abc import Iterator

import dagster as dg
from dagster import DagsterInstance
from dagster_shared.error import SerializableErrorInfo

from operators.errors import TidemarkError
from platform_defs.safe_text import one_line, shortened

_LONGEST = 500


def failed_steps(instance: DagsterInstance, run_id: str) -> str | None:
    """The failed steps of a run; None if no step failed.

    Each has the description of its `dg.Failure`, the text of Tidemark's error, or else the class of the root cause.
    """
    failures, own_names = list[str](), _own_error_names()
    for entry in instance.all_logs(run_id, of_type=dg.DagsterEventType.STEP_FAILURE):
        data = entry.get_dagster_event().step_failure_data
        names = list[str]()
        for error in _causes(data.error):
            names.append(error.cls_name or "an error")
            name, text = _name_and_text(error)
            if name in own_names:
                names = [text or name]
                break
        description = data.user_failure_data.description if data.user_failure_data else None
        failures.append(f"{entry.step_key}: {description or (names[-1] if names else 'failed')}")
    return short_line("; ".join(failures)) if failures else None


def has_failed_with(instance: DagsterInstance, run_id: str, kind: type[Exception]) -> bool:
    """Whether a step of a run failed with an error of a class."""
    for entry in instance.all_logs(run_id, of_type=dg.DagsterEventType.STEP_FAILURE):
        causes = _causes(entry.get_dagster_event().step_failure_data.error)
        if any(_name_and_text(error)[0] == _full_name(kind) for error in causes):
            return True
    return False


def _causes(error: SerializableErrorInfo | None) -> Iterator[SerializableErrorInfo]:
    """An error, its cause, and so on."""
    while error is not None:
        yield error
        error = error.cause


def _name_and_text(error: SerializableErrorInfo) -> tuple[str, str]:
    """The class of an error with its module, and the error's text."""
    name, _, text = error.message.partition(": ")
    return name.strip(), text.strip()


def _full_name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def short_line(text: str) -> str:
    """The text in one line. Beyond 500 characters it is cut, and its length is added."""
    return shortened(one_line(text), _LONGEST)


def _own_error_names() -> set[str]:
    """The classes of Tidemark's own errors, with their modules: another library's class may have the same name."""
    return {_full_name(kind) for kind in _subclasses(TidemarkError)}


def _subclasses(kind: type) -> Iterator[type]:
    """The direct and indirect subclasses of a class."""
    for subclass in kind.__subclasses__():
        yield subclass
        yield from _subclasses(subclass)
