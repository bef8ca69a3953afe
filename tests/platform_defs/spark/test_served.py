"""A served session: other processes attach to its JVM, each with its own session; if none is served, a process starts its own JVM."""

import json
import os
import signal
import socket
import stat
import subprocess
import sys
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from threading import Lock, Thread
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyspark.sql import SparkSession

from platform_defs.settings import Settings
from platform_defs.setup.ports import HOST
from platform_defs.spark import served
from platform_defs.spark.served import ServeError, attach_session, served_session, serving_session
from platform_defs.spark.session import spark_config
from tests.support.java_objects import objects_of

CONFIG = {"spark.master": "local[2]"}


def session_of(port: int = 1, secret: str = "s") -> SparkSession:
    address = SimpleNamespace(port=port, auth_token=secret)
    return cast(SparkSession, SimpleNamespace(sparkContext=SimpleNamespace(_gateway=SimpleNamespace(java_parameters=address))))


def test_only_this_user_can_read_the_file_and_it_is_deleted_at_the_end(tmp_path: Path) -> None:
    file = tmp_path / "state" / "session.json"
    with socket.create_server((HOST, 0)) as jvm, serving_session(session_of(jvm.getsockname()[1]), CONFIG, file) as own:
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert served_session(file) == own
        assert own.pid == os.getpid()
        with pytest.raises(ServeError, match=rf"process {os.getpid()} serves a Spark session already.*TIDEMARK_SESSION_FILE"):
            serving_session(session_of(), CONFIG, file).__enter__()
    assert [*file.parent.iterdir()] == []


def test_a_file_whose_jvm_has_ended_is_free_even_if_a_process_has_its_process_id(tmp_path: Path) -> None:
    """In a container, a killed `tidemark serve` and its successor have the same process id."""
    file = tmp_path / "session.json"
    with serving_session(session_of(), CONFIG, file), serving_session(session_of(), CONFIG, file):
        pass


@pytest.mark.parametrize("text", ["", "{", "[]", '{"pid": 1}', '"text"', "missing", "ended"])
def test_a_file_that_records_no_running_process_is_ignored(tmp_path: Path, text: str) -> None:
    file = tmp_path / "session.json"
    if text == "ended":
        process = subprocess.Popen([sys.executable, "-c", ""])
        process.wait()
        text = json.dumps({"pid": process.pid, "port": 1, "secret": "s", "version": "4", "config": CONFIG})
    if text != "missing":
        file.write_text(text)
    assert served_session(file) is None
    assert attach_session(file, CONFIG) is None
    with serving_session(session_of(), CONFIG, file) as own:
        assert served_session(file) == own


def test_a_process_with_another_configuration_does_not_attach(tmp_path: Path) -> None:
    with serving_session(session_of(), CONFIG, tmp_path / "session.json"):
        assert attach_session(tmp_path / "session.json", CONFIG | {"spark.driver.memory": "9g"}) is None


def test_ctrl_c_does_not_wait_for_ever_for_the_end_of_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread that cancels them may wait for a lock that the interrupted thread holds."""
    lock = Lock()
    monkeypatch.setattr(served, "_CANCEL_S", 0.01)
    monkeypatch.setattr(served, "cancel_jobs", lock.acquire)
    with lock, pytest.raises(KeyboardInterrupt, match=r"^$"):
        served._interrupt(signal.SIGINT, None)


MILLISECOND = "java_method('java.lang.Thread', 'sleep', id - id + 1)"
"""An expression that takes a millisecond, and no core's time."""
CHILD = f"""
import os, time
from platform_defs.settings import settings
from platform_defs.spark.session import session

spark = session(settings())
assert session(settings()) is spark
MILLISECOND = {MILLISECOND!r}
"""


def child(script: str, values: Mapping[str, str]) -> subprocess.Popen[str]:
    """A process that attaches and then runs a script."""
    environment = {**os.environ, **{f"TIDEMARK_{name.upper()}": value for name, value in values.items()}}
    command = [sys.executable, "-c", CHILD + textwrap.dedent(script)]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.fixture
def served_by_this_process(spark: SparkSession, tmp_path: Path) -> Iterator[dict[str, str]]:
    """The settings of a process that attaches to the JVM of the tests."""
    values = {"session_file": str(tmp_path / "session.json"), "spark_master": "local[2]", "driver_memory": "1g"}
    with serving_session(spark, spark_config(Settings(**values)), Path(values["session_file"])):  # pyright: ignore[reportArgumentType]
        yield values


def test_a_process_has_a_session_of_its_own_in_the_served_jvm(spark: SparkSession, served_by_this_process: dict[str, str]) -> None:
    spark.range(1).createOrReplaceTempView("of_the_server")
    spark.conf.set("spark.sql.shuffle.partitions", "7")
    done = child(
        """
        assert not spark.catalog.tableExists("of_the_server")
        spark.range(3).createOrReplaceTempView("of_the_child")
        spark.conf.set("spark.sql.shuffle.partitions", "3")
        frames = [spark.range(100).selectExpr(f"id + {n} AS v") for n in range(50)]
        for _ in range(3):
            del frames[::2]
            time.sleep(0.5)
        print(spark.sparkContext.applicationId, frames[0].where("v > 97").count(), spark.conf.get("spark.sql.ansi.enabled"))
        print(*[frame._jdf._target_id for frame in frames])
        """,
        served_by_this_process,
    )
    out, err = done.communicate(timeout=120)
    first, names = (line.split() for line in out.splitlines())
    assert (done.returncode, first) == (0, [spark.sparkContext.applicationId, "9", "true"]), err
    assert spark.conf.get("spark.sql.shuffle.partitions") == "7"
    assert not spark.catalog.tableExists("of_the_child")
    java: Any = spark._jvm
    default: Any = java.org.apache.spark.sql.classic.SparkSession.getDefaultSession().get()
    assert default.conf().get("spark.sql.shuffle.partitions") != "3"
    assert {*names}.isdisjoint(objects_of(spark))  # else a served JVM would run out of memory in time


def test_ctrl_c_cancels_only_the_jobs_of_its_process(spark: SparkSession, served_by_this_process: dict[str, str], tmp_path: Path) -> None:
    done = child(
        """
        from threading import Thread
        spark.sparkContext.setJobGroup(str(os.getpid()), "")

        def look():
            while not spark.sparkContext.statusTracker().getJobIdsForGroup(str(os.getpid())):
                time.sleep(0.05)
            print("running", flush=True)

        Thread(target=look, daemon=True).start()
        spark.range(0, 10**6, 1, 1).selectExpr(MILLISECOND).collect()
        """,
        served_by_this_process,
    )
    own: list[int] = []
    assert cast(Any, done.stdout).readline() == "running\n"
    properties, released = cast(Any, spark)._jvm.java.lang.System, f"tests.{tmp_path}"  # tests share the JVM, so the name is unique
    is_released = f"java_method('java.lang.Boolean', 'getBoolean', '{released}') = 'true'"
    slow = spark.range(0, 200_000, 1, 1).where(f"if({is_released}, true, {MILLISECOND} = '')")
    thread = Thread(target=lambda: own.append(slow.count()))
    thread.start()
    try:
        done.send_signal(signal.SIGINT)
        _, err = done.communicate(timeout=120)
        assert "KeyboardInterrupt" in err
        assert own == [], "the job of this process went on while the other process's job was cancelled"
    finally:
        properties.setProperty(released, "true")
        thread.join()
        properties.clearProperty(released)
    assert len(own) == 1
    assert own[0] > 0, "the job ended only after it was released"
    tracker = spark.sparkContext.statusTracker()
    assert [getattr(tracker.getJobInfo(job), "status", None) for job in tracker.getJobIdsForGroup(str(done.pid))] == ["FAILED"]
