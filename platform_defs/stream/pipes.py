"""Runs a bounded stream in a process that Dagster Pipes starts, on this or another machine, and sends its events to Dagster's run.

The process sends each event as a message of Pipes, since the materializations and checks of Pipes itself cannot have a partition.
"""

from collections.abc import Iterable
from typing import Any, cast

import dagster as dg
from dagster_pipes import PipesContext

from operators.errors import TidemarkError
from platform_defs.engine import Engine, LawError
from platform_defs.orchestration.daily_partitions import daily_partitions
from platform_defs.pipelines import configured_pipeline
from platform_defs.settings import Settings
from platform_defs.settings.stream_trigger import AVAILABLE_NOW, StreamTrigger
from platform_defs.stream.dagster_reports import DagsterReports
from platform_defs.stream.run import StreamRun

_EVENT, _LAW, _ERROR = "tidemark.event", "tidemark.law", "tidemark.error"


class _Launched:
    """Sends the events of a stream's reports to a run, by messages of Pipes."""

    def __init__(self, pipes: PipesContext) -> None:
        self._pipes = pipes

    @property
    def log(self) -> Any:
        """The log of the run."""
        return self._pipes.log

    def log_event(self, event: Any) -> None:
        """Send an event to the run."""
        self._pipes.report_custom_message({_EVENT: dg.serialize_value(event)})

    def consume_events(self) -> Iterable[Any]:
        """Return no events: each was sent at once."""
        return ()


def run_launched(values: Settings, engine: Engine, pipes: PipesContext) -> None:
    """Ingest the present input, advance all tables, account for those that have changed, and report to the run that started this process.

    An error of Tidemark, such as a violated conservation law or a table that could not be advanced, is sent to the run, which then fails.
    This process ends without an error, since Pipes drops the messages of a process that fails.
    """
    try:
        reports = DagsterReports(_Launched(pipes), engine, daily_partitions(values, configured_pipeline(values)), interval_s=60.0)
        with reports.stored_at_end():
            StreamRun(engine, reports).run(StreamTrigger.read(AVAILABLE_NOW))
    except LawError as error:
        pipes.report_custom_message({_LAW: str(error)})
    except TidemarkError as error:
        pipes.report_custom_message({_ERROR: str(error)})


def log_reported(context: dg.OpExecutionContext, completed: dg.PipesClientCompletedInvocation) -> None:
    """Log the events that `tidemark pipes` has sent, as those of this run.

    Args:
        context: the step that has run a client of Pipes.
        completed: the result of the client's `run`.

    Raises:
        Failure: the conservation law does not hold for a table, or the process has reported another error. The run may be retried only
            after another error.
    """
    messages = [message for message in completed.get_custom_messages() if isinstance(message, dict)]
    for message in messages:
        if _EVENT in message:
            context.log_event(cast(Any, dg.deserialize_value(message[_EVENT])))
    violations, errors = ([message[key] for message in messages if key in message] for key in (_LAW, _ERROR))
    if violations or errors:
        raise dg.Failure("; ".join([*violations, *errors]), allow_retries=not violations)
