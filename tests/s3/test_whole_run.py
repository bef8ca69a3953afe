"""A pipeline's whole run with the lake and the landing folders in S3, by a real S3 server: it equals the run on local files."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tests.support.s3_server import ACCESS_KEY, BUCKET, SECRET_KEY, s3_server

pytestmark = [pytest.mark.s3, pytest.mark.spark]
_COMMIT = re.compile(r"^PUT /\S+/_delta_log/\d{20}\.json (if-none-match=\S+)$", re.MULTILINE)


@dataclass(frozen=True)
class Runs:
    """Two processes: one that was killed, and one that did the rest.

    Args:
        killed: the first one's exit status.
        seen: what the second one printed.
        errors: what both wrote to standard error.
        requests: the log of the server.
    """

    killed: int
    seen: dict[str, Any]
    errors: str
    requests: str


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runs]:
    folder = tmp_path_factory.mktemp("s3")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    environment |= {"KEY_OF_THE_LAKE": ACCESS_KEY, "SECRET_OF_THE_LAKE": SECRET_KEY}
    with s3_server(folder / "server.log") as server:
        (folder / "connections.yaml").write_text(server.connections)
        given = [str(folder / "connections.yaml"), f"s3a://{BUCKET}/the/lake", str(folder)]
        processes = [
            subprocess.run(
                [sys.executable, "-m", "tests.s3.child", mode, *given], capture_output=True, text=True, check=False, env=environment
            )
            for mode in ("killed", "compared")
        ]
        errors = "".join(process.stderr for process in processes)
        assert processes[1].returncode == 0, errors
        yield Runs(processes[0].returncode, json.loads(processes[1].stdout), errors, (folder / "server.log").read_text())


def test_a_run_in_s3_equals_the_run_on_local_files_although_it_was_killed(runs: Runs) -> None:
    assert runs.killed == 9, runs.errors
    assert {"rows", "ledger", "accounts", "late"} <= runs.seen["s3"].keys()
    for part, expected in runs.seen["local"].items():
        assert runs.seen["s3"][part] == expected, part
    assert (runs.seen["s3"]["holds"], runs.seen["s3"]["status"]) == (True, True)
    assert len(runs.seen["s3"]["late"]) == 1
    assert {row["k"]: row["n"] for row in runs.seen["s3"]["query"]} == {"a": 3, "b": 2, "c": 1}


def test_objects_are_listed_in_the_states_that_spark_sees(runs: Runs) -> None:
    listing = runs.seen["listing"]
    assert len(listing["by_spark"]) == 2
    assert listing["by_pages"] == [listing["by_spark"][1]]  # the first one is in the ledger


def test_every_commit_is_a_conditional_put(runs: Runs) -> None:
    commits = _COMMIT.findall(runs.requests)
    assert len(commits) > 20
    assert set(commits) == {"if-none-match=*"}


def test_sparks_log_store_refuses_another_commit_of_a_version(runs: Runs) -> None:
    assert runs.seen["log_store"] == ["written", "written", "java.nio.file.FileAlreadyExistsException"]


def test_a_file_that_the_store_refuses_is_not_quarantined(runs: Runs) -> None:
    error, quarantined = runs.seen["refused"]
    assert "1 file could not be read" in error
    assert "The cause is the machine, the store or the network, not the content" in error
    assert quarantined == "0"


def test_credentials_are_neither_logged_nor_on_a_command_line(runs: Runs) -> None:
    assert not runs.seen["secret_is_visible"]
    for secret in (ACCESS_KEY, SECRET_KEY):
        assert secret not in runs.errors + json.dumps(runs.seen)
