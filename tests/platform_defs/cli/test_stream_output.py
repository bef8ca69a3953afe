"""The lines and warnings that a stream prints."""

from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyspark.errors import AnalysisException

from platform_defs.cli.stream_output import StreamOutput
from platform_defs.engine.lake.errors import LakeBusy
from platform_defs.engine.operations.advance_all import PendingRetry

ENGINE: Any = SimpleNamespace(assets={}, sources=())


@pytest.mark.parametrize(
    ("topics", "text"),
    [({}, "files of l, r every 5 s"), ({"r": "a topic"}, "files of l, r, and the topics of r, every 5 s")],
    ids=["files", "files and a topic"],
)
def test_the_first_line_names_what_is_read(topics: dict[str, str], text: str) -> None:
    lines, engine = list[str](), SimpleNamespace(sources=("l", "r"), topics=topics)
    with StreamOutput(cast(Any, engine), lines.append, pytest.fail).framed("/in", "5 s"):
        assert lines == [f"Watching /in for {text}. Ctrl-C ends it."]


@pytest.mark.parametrize(
    ("error", "tries", "warning"),
    [
        (
            LakeBusy.released_for("total", "process 7 (tidemark rebuild)"),
            2,
            "total is skipped until it is free: total is released for process 7 (tidemark rebuild); the stream goes on with it when that "
            "process has ended. Other assets continue",
        ),
        (OSError("no such disk"), 1, "total does not advance (1 try): no such disk. The next try is in 4 s; other assets continue"),
        (
            ValueError("the row is s3cret"),
            1,
            "total does not advance (1 try): ValueError. The next try is in 4 s; other assets continue",
        ),
        (
            AnalysisException("the row is s3cret"),
            3,
            "total does not advance (3 tries): Spark failed with AnalysisException. The next try is in 4 s; other assets continue",
        ),
    ],
    ids=["another writer", "an error of the machine", "an error of another library", "an error of Spark"],
)
def test_a_table_that_does_not_advance_is_warned_of_with_the_reason(error: Exception, tries: int, warning: str) -> None:
    warnings = list[str]()
    StreamOutput(ENGINE, pytest.fail, warnings.append).report_failure("total", PendingRetry(error, tries, 4.0, 0.0))
    assert warnings == [warning]


def test_a_table_that_could_not_be_accounted_for_is_warned_of() -> None:
    warnings = list[str]()
    StreamOutput(ENGINE, pytest.fail, warnings.append).report_unaccounted("total", OSError("disk"))
    assert warnings == ["total could not be accounted for: disk. The next try is after its next step"]
