"""A process with a Spark session that works on two equal lakes, one on this machine and one in S3, and prints what it sees as JSON."""

import json
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import obstore
import psutil
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from assets.contracts import DerivedAsset
from operators import Aggregate
from platform_defs import faults
from platform_defs.cli import status
from platform_defs.configured_lake import lake_of
from platform_defs.engine import Engine
from platform_defs.engine.formats.files import list_files
from platform_defs.engine.ingest.errors import UnreadError
from platform_defs.engine.lake.objects import store_at
from platform_defs.engine.lake.tables import Lake
from platform_defs.engine.operations.query import Query
from platform_defs.settings import Settings
from platform_defs.spark.session import spark_config
from tests.support.any_lake import advance_all, put_input
from tests.support.clock import Clock
from tests.support.quick_session import quick_session
from tests.support.s3_server import SECRET_KEY
from tests.support.small_sources import HOUR, MINUTE, Event, join, source

SOURCES = {name: source(name) for name in ("l", "r")}
TOTALS = DerivedAsset(name="totals", inputs=("l",), operator=Aggregate(by="k", aggregates={"n": "count(*)", "most": "max(v)"}))
TABLES = {"pairs": join(), "totals": TOTALS}
BATCHES = [
    {"l": [Event("a", 1, 0), Event("b", 2, MINUTE)], "r": [Event("a", 3, 2 * MINUTE), Event("é x", 4, 3 * MINUTE)]},
    {"l": [Event("b", 5, HOUR), Event("a", 6, -HOUR)], "r": [Event("b", 7, HOUR)]},
    {"l": [Event("c", 8, 3 * HOUR), Event("a", 9, 3 * HOUR)], "r": [Event("c", 10, 3 * HOUR)]},
]
"""The second batch has a late row."""


@dataclass(frozen=True)
class Work:
    """What the process works with.

    Args:
        settings: the settings of the lake in S3.
        local: the folder of the lake on this machine.
    """

    settings: Settings
    local: Path

    @cached_property
    def spark(self) -> SparkSession:
        config = spark_config(self.settings)
        of_store = {name: value for name, value in config.items() if name.startswith(("spark.hadoop.", "spark.delta.logStore."))}
        return quick_session(**of_store, **{"spark.jars": config["spark.jars"]})

    def engine(self, *, remote: bool, clock: Clock) -> Engine:
        lake = lake_of(self.settings) if remote else Lake(str(self.local / "lake"))
        root = self.settings.landing_root if remote else str(self.local / "landing")
        return Engine(lake, SOURCES, TABLES, lambda: self.spark, clock, folders={name: f"{root}/{name}" for name in SOURCES})


def land(engine: Engine, batch: int) -> None:
    """Land the files of a batch; one name needs encoding."""
    for name, events in BATCHES[batch].items():
        content = "".join(f"{event.line}\n" for event in events)
        file = f"day {batch}/ü %41-{batch}.jsonl"
        put_input(engine, name, file, content)


def seen(engine: Engine) -> dict[str, Any]:
    """All rows, accounts and counts of a lake."""
    law = status.recounted_status(engine, ["pairs"])["assets"]["pairs"]["law"]
    pinned = engine.snapshot()
    tables = ["events/l", "events/r", *TABLES]
    rows, _ = Query(pinned.lake, pinned.ledger, pinned.sources, pinned.assets)("SELECT k, n, most FROM totals ORDER BY k", 100)
    return {
        "rows": {t: sorted(repr([str(v) for v in row]) for row in engine.views.table(t).collect()) for t in tables},
        "ledger": [[repr((r.seq, r.source, r.kind, r.watermark, r.accepted)) for r in entry] for entry in engine.ledger.entries()],
        "accounts": sorted(
            repr((str(a.side), str(a.day), a.accepted, a.matched, a.unmatched, a.late)) for a in engine.accounts.days("pairs")
        ),
        "holds": law["holds"],
        "status": status.recorded_status(engine, ["pairs"])["assets"]["pairs"]["law"]["holds"],
        "query": rows,
        "late": sorted(repr([str(v) for v in row]) for row in engine.views.late("pairs", "l").select("k", "v").collect()),
    }


def whole_run(engine: Engine, begun: int = 0) -> dict[str, Any]:
    """Ingest and advance the batches, drain, maintain and rebuild."""
    for batch in range(begun, len(BATCHES)):
        if batch > begun or begun == 0:
            land(engine, batch)
        engine.ingest()
        advance_all(engine)
    engine.drain()
    advance_all(engine)
    engine.maintain(small_files=1, retention_hours=0)
    for _ in engine.remake(["pairs", "totals"], downstream=True):
        pass
    return seen(engine)


def killed_run(work: Work) -> None:
    """Ingest the first batch, and die when the rows of the second one are in the logs and its ledger batch is not."""
    engine = work.engine(remote=True, clock=Clock())
    land(engine, 0)
    engine.ingest()
    advance_all(engine)
    land(engine, 1)

    def kill(point: str) -> None:
        if point == "ingest.before_ledger":
            os._exit(9)

    faults.install(kill)
    engine.ingest()


def log_store(work: Work, path: str) -> list[str]:
    """What Spark's log store does with a second commit of a version: of the same content, and of another one."""
    jvm: Any = work.spark._jvm
    conf = cast(Any, work.spark)._jsparkSession.sessionState().newHadoopConf()
    store, commit = jvm.tidemark.ConditionalLogStore(conf), jvm.org.apache.hadoop.fs.Path(path)

    def write(line: str) -> str:
        lines = jvm.java.util.ArrayList()
        lines.add(line)
        try:
            store.write(commit, lines.iterator(), False, conf)
        except Py4JJavaError as error:
            return str(error.java_exception.getClass().getName())
        return "written"

    return [write("one"), write("one"), write("two")]


def refused_by_the_store(work: Work) -> list[str]:
    """Ingest a file for which Spark has no permission; returns the error and the counts of the quarantine."""
    engine = work.engine(remote=True, clock=Clock())
    obstore.put(store_at(engine.folders["l"], engine.lake.storage_options), "new.jsonl", (Event("z", 1, 9 * HOUR).line + "\n").encode())
    hadoop = cast(Any, work.spark)._jsc.hadoopConfiguration()
    hadoop.set("fs.s3a.access.key", "no-key")
    hadoop.set("fs.s3a.impl.disable.cache", "true")
    try:
        engine.ingest()
    except UnreadError as error:
        return [str(error), str(sum(source.quarantined or 0 for entry in engine.ledger.entries() for source in entry))]
    return ["nothing was refused"]


def command_lines() -> str:
    """The command lines of this process and of its JVM."""
    found = list[list[str]]()
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):  # it has ended, or is a zombie
            found.append(process.cmdline())
    return repr(found)


def compared(work: Work) -> dict[str, Any]:
    """The local run, and the rest of the run in S3 that was killed."""
    remote = work.engine(remote=True, clock=Clock())
    listing: dict[str, Callable[[], Any]] = {
        "by_spark": lambda: sorted(list_files(work.spark, remote.folders["l"], "l")),
        "by_pages": remote.ingestion.landings["l"].new,
    }
    files = {name: [(f.path, f.modified, f.length) for f in look()] for name, look in listing.items()}
    return {
        "listing": files,
        "local": whole_run(work.engine(remote=False, clock=Clock())),
        "s3": whole_run(remote, begun=1),
        "log_store": log_store(work, f"{work.settings.lake}/_log_store/{0:020}.json"),
        "secret_is_visible": SECRET_KEY in command_lines(),
        "refused": refused_by_the_store(work),
    }


if __name__ == "__main__":
    mode, connections, lake, local = sys.argv[1:]
    lease = "3 s" if mode == "killed" else "60 s"  # the next process need not wait long for the lease of the killed one
    the_work = Work(Settings(connections=connections, lake=lake, lease=lease), Path(local))  # pyright: ignore[reportCallIssue]
    if mode == "killed":
        killed_run(the_work)
    else:
        sys.stdout.write(json.dumps(compared(the_work)))
