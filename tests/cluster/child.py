"""A process that runs a small pipeline with its lake in S3, set up by environment variables, and prints what it sees as JSON.

While it runs, it kills Spark workers, each when tasks of another job are running.
"""

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from threading import Event as Signal
from threading import Thread
from typing import Any, cast
from unittest.mock import patch

import obstore
import psutil
from py4j.protocol import Py4JJavaError
from pyspark import SparkContext
from pyspark.sql import functions as F

from assets.contracts import DerivedAsset
from assets.pipeline import Pipeline
from operators import Aggregate
from platform_defs.cli import status
from platform_defs.configured_engine import make_engine
from platform_defs.engine import Engine
from platform_defs.engine.formats.unreadable_files import ReadRetries
from platform_defs.engine.ingest.errors import UnreadError
from platform_defs.engine.ingest.hadoop_files import list_files
from platform_defs.engine.lake import small_queries
from platform_defs.engine.lake.objects import store_at
from platform_defs.engine.operations.query import Query
from platform_defs.settings import settings
from tests.support.cluster import kill_with_children
from tests.support.json_rows import values_of
from tests.support.kills import run_and_die
from tests.support.s3_server import SECRET_KEY
from tests.support.small_sources import HOUR, MINUTE, Event, join, source

TABLES = [
    join(),
    DerivedAsset(name="totals", inputs=("l",), operator=Aggregate(by="k", aggregates={"n": "count(*)", "most": "max(v)"})),
]
"""A table of closed ranges and an upserted table; the process that Pipes launches has a table of windows."""
PIPELINE = Pipeline(sources=[source("l"), source("r")], tables=TABLES)
ROWS, KEYS = 2_000, 200


@dataclass(frozen=True)
class Killer:
    """Kills workers while tasks run.

    Args:
        workers: their process ids, in this order.
        every: the number of jobs from one kill to the next.
    """

    workers: Sequence[int]
    every: int

    @contextmanager
    def __call__(self) -> Iterator[None]:
        """Kill workers until all are killed, or the block ends."""
        ended = Signal()
        thread = Thread(target=self._run, args=(ended,), daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def _run(self, ended: Signal) -> None:
        left, seen, tracker = list(self.workers), set[int](), cast(SparkContext, SparkContext._active_spark_context).statusTracker()
        while left and not ended.wait(0.005):
            seen |= {job for job in tracker.getActiveJobsIds() if _runs(tracker, job)}
            if len(seen) >= self.every * (len(self.workers) - len(left) + 1):
                kill_with_children(left.pop(0))
                sys.stderr.write(f"killed a worker in job {max(seen)}\n")


def _runs(tracker: Any, job: int) -> bool:
    of_job = tracker.getJobInfo(job)
    stages = [tracker.getStageInfo(stage) for stage in of_job.stageIds] if of_job else []
    return any(stage is not None and stage.numActiveTasks for stage in stages)


def events(batch: int, side: int) -> list[Event]:
    """The rows of a batch in order of time, except that every hundredth row is 20 minutes earlier; some of these are late."""
    start = batch * HOUR
    return [
        Event(f"k{(n * 7 + side) % KEYS}", n, start + n * HOUR // ROWS - (20 * MINUTE if n % 100 == 0 else 0)) for n in range(side, ROWS)
    ]


def land(engine: Engine, batch: int) -> None:
    """Land the files of a batch, one with a line that cannot be read. The names of the files and a key need encoding in a URL."""
    for side, name in enumerate(engine.sources):
        lines = [event.line for event in [*events(batch, side), Event("é x", batch, batch * HOUR)]] + ["{no JSON"] * side
        _put_input(engine, name, f"day {batch}/ü %41-{batch}.jsonl", "".join(f"{line}\n" for line in lines))


def _put_input(engine: Engine, source: str, file: str, content: str) -> None:
    if engine.lake.is_local:
        path = Path(engine.folders[source], file)
        path.parent.mkdir(parents=True)
        path.write_text(content, encoding="utf-8")
    else:
        obstore.put(store_at(engine.folders[source], engine.lake.storage_options), file, content.encode())


def with_retries(work: Callable[[], object]) -> None:
    """Do work again after an error, as Dagster retries a run that failed."""
    for attempt in range(3):
        try:
            work()
            return
        except Exception as error:
            if attempt == 2:
                raise
            sys.stderr.write(f"retried after {type(error).__name__}: {str(error)[:2000]}\n")


def advance_all(engine: Engine) -> None:
    """Advance all tables, without accounts: those at the end are of all days."""
    for name in engine.assets:
        with_retries(partial(engine.advance, name))


def begin(engine: Engine) -> None:
    """Ingest and advance the first batch, and land the second one."""
    land(engine, 0)
    with_retries(engine.ingest)
    advance_all(engine)
    land(engine, 1)


def complete(engine: Engine, while_advancing: Callable[[], AbstractContextManager[None]] = nullcontext) -> None:
    """Ingest the second batch, drain, and advance."""
    with_retries(engine.ingest)
    with_retries(engine.drain)
    with while_advancing():
        advance_all(engine)


def finish(engine: Engine, while_advancing: Callable[[], AbstractContextManager[None]]) -> None:
    """Complete the run, for which Spark writes what deltalake would write; then maintain and rebuild."""
    with patch.object(small_queries, "SMALL_INPUT_BYTES", 0):
        complete(engine, while_advancing)
    with_retries(lambda: engine.maintain(small_files=1, retention_hours=0))
    with_retries(lambda: [*engine.rebuild_tables(["pairs", "totals"], downstream=True)])


def seen(engine: Engine) -> dict[str, Any]:
    """The number of rows and a hash of each table, the accounts, the batches, and the results of queries."""
    names = ["events/l", "events/r", *engine.assets]
    hashed = F.sum(F.xxhash64(F.to_json(F.struct("*"), {"ignoreNullFields": "false"})).cast("decimal(38,0)")).cast("string")
    law = status.recounted_status(engine, [*engine.assets])["assets"]
    recorded = {name: engine.accounts.recorded_account(name) for name in engine.assets}
    rows = values_of({name: engine.views.table(name).agg(F.count("*").alias("rows"), hashed.alias("hash")) for name in names})
    ledger = engine.ledger.batches()
    batches = [[repr((r.seq, r.source, r.kind, r.watermark, r.accepted, r.quarantined)) for r in batch] for batch in ledger]
    snapshot = engine.snapshot()
    queried, _ = Query(snapshot.lake, snapshot.ledger, snapshot.sources, snapshot.assets)("SELECT k, n, most FROM totals ORDER BY k", 1_000)
    return {
        "rows": rows,
        "ledger": batches,
        "holds": {name: law[name]["law"]["holds"] for name in engine.assets if law[name]["law"]},
        "accounts": {name: [(d.side, d.day, d.terms) for d in found.days] for name, found in recorded.items() if found},
        "status": status.recorded_status(engine, ["pairs"])["assets"]["pairs"]["law"]["holds"],
        "query": queried,
        "late": sorted(repr([str(v) for v in row]) for row in engine.views.late("pairs", "l").select("k", "v").collect()),
    }


def listings(engine: Engine) -> dict[str, Any]:
    """The files of source `l` as Spark lists them, and the new files as the ingest finds them page by page."""
    looks: dict[str, Callable[[], Any]] = {
        "by_spark": lambda: sorted(list_files(engine.spark, engine.folders["l"], "l")),
        "by_pages": engine.ingestion.file_finders["l"].new,
    }
    return {name: [(f.path, f.modified, f.length) for f in look()] for name, look in looks.items()}


def log_store(engine: Engine) -> list[str]:
    """What Spark's log store does with a commit, with the same commit again, and with another commit of the same version."""
    jvm: Any = engine.spark._jvm
    conf = cast(Any, engine.spark)._jsparkSession.sessionState().newHadoopConf()
    store, commit = jvm.tidemark.ConditionalLogStore(conf), jvm.org.apache.hadoop.fs.Path(f"{engine.lake.root}/_log_store/{0:020}.json")

    def write(line: str) -> str:
        lines = jvm.java.util.ArrayList()
        lines.add(line)
        try:
            store.write(commit, lines.iterator(), False, conf)
        except Py4JJavaError as error:
            return str(error.java_exception.getClass().getName())
        return "written"

    return [write("one"), write("one"), write("two")]


def refused_by_the_store(engine: Engine) -> list[str]:
    """Ingest a file that Spark may not read; returns the error, and how many more rows are in quarantine."""
    batches = replace(engine.ingestion.batches, retries=lambda: ReadRetries((0.1, 0.1)))
    engine.ingestion.__dict__["batches"] = batches  # as many retries as in the product, with shorter waits
    before = engine.ledger.totals("l")["quarantined"]
    obstore.put(store_at(engine.folders["l"], engine.lake.storage_options), "new.jsonl", (Event("z", 1, 9 * HOUR).line + "\n").encode())
    hadoop = cast(Any, engine.spark)._jsc.hadoopConfiguration()
    hadoop.set("fs.s3a.access.key", "no-key")
    hadoop.set("fs.s3a.impl.disable.cache", "true")
    try:
        engine.ingest()
    except UnreadError as error:
        return [str(error), str(engine.ledger.totals("l")["quarantined"] - before)]
    return ["nothing was refused"]


def command_lines() -> str:
    """The command lines of all processes: of this one, its JVM and the executors."""
    found = list[list[str]]()
    for process in psutil.process_iter():
        with suppress(psutil.NoSuchProcess):  # the process has ended, or is a zombie
            found.append(process.cmdline())
    return repr(found)


def main(workers: Sequence[int]) -> dict[str, Any]:
    """Run the pipeline: an engine is killed at a fault point, another engine does the rest, and workers are killed meanwhile."""
    killed = make_engine(settings(), PIPELINE)
    begin(killed)
    with_retries(lambda: run_and_die(killed.ingest, "ingest.before_ledger"))
    engine = make_engine(settings(), PIPELINE)
    listed = listings(engine)
    finish(engine, Killer(workers, every=3))
    visible = SECRET_KEY in command_lines()
    found = {"seen": seen(engine), "listings": listed, "log_store": log_store(engine), "secret_is_visible": visible}
    return found | {"refused": refused_by_the_store(engine)}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(json.loads(sys.argv[1]))))
