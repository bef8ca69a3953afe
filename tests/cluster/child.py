"""A process that runs a small pipeline as the settings in its environment say, and prints what its tables hold as JSON.

While it runs, it kills Spark workers, each when tasks of another job are running.
"""

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from threading import Event as Signal
from threading import Thread
from typing import Any, cast

from pyspark import SparkContext
from pyspark.sql import functions as F

from assets.contracts import DerivedAsset
from assets.pipeline import Pipeline
from operators import Aggregate, Tumbling, WindowedAggregate
from platform_defs.cli import status
from platform_defs.configured_engine import make_engine
from platform_defs.engine import Engine
from platform_defs.engine.lake import small_queries
from platform_defs.settings import settings
from tests.support.any_lake import advance_all, put_input
from tests.support.cluster import kill_with_children
from tests.support.small_sources import HOUR, MINUTE, Event, join, source

TABLES = [
    join(),
    DerivedAsset(
        name="sums",
        inputs=("l",),
        operator=WindowedAggregate(by="k", window=Tumbling(size="10 minutes"), aggregates={"n": "count(*)", "total": "sum(v)"}),
    ),
    DerivedAsset(name="totals", inputs=("l",), operator=Aggregate(by="k", aggregates={"n": "count(*)", "most": "max(v)"})),
]
PIPELINE = Pipeline(sources=[source("l"), source("r")], tables=TABLES)
BATCHES, ROWS, KEYS = 2, 2_000, 200


@dataclass(frozen=True)
class Killer:
    """Kills workers while tasks run.

    Args:
        workers: their process ids, in this order.
        every: the number of jobs from one kill to the next.
    """

    workers: Sequence[int]
    every: int

    def run(self, ended: Signal) -> None:
        """Wait for the next running job of those counted, and kill a worker; until all are killed, or the work has ended."""
        left, seen = list(self.workers), set[int]()
        while left and not ended.wait(0.005):
            context = SparkContext._active_spark_context
            if getattr(context, "_jsc", None) is None:
                continue  # the session starts
            tracker = cast(SparkContext, context).statusTracker()
            seen |= {job for job in tracker.getActiveJobsIds() if _runs(tracker, job)}
            if len(seen) >= self.every * (len(self.workers) - len(left) + 1):
                kill_with_children(left.pop(0))
                sys.stderr.write(f"killed a worker in job {max(seen)}\n")


def _runs(tracker: Any, job: int) -> bool:
    of_job = tracker.getJobInfo(job)
    stages = [tracker.getStageInfo(stage) for stage in of_job.stageIds] if of_job else []
    return any(stage is not None and stage.numActiveTasks for stage in stages)


def events(batch: int, side: int) -> list[Event]:
    """The rows of a batch, in order of time but for each hundredth one, some of which are late."""
    start = batch * HOUR
    return [
        Event(f"k{(n * 7 + side) % KEYS}", n, start + n * HOUR // ROWS - (20 * MINUTE if n % 100 == 0 else 0)) for n in range(side, ROWS)
    ]


def land(engine: Engine, batch: int) -> None:
    """Land the files of a batch, with a line that cannot be read."""
    for side, name in enumerate(engine.sources):
        content = "".join(f"{event.line}\n" for event in events(batch, side)) + "{no JSON\n"
        put_input(engine, name, f"{batch}.jsonl", content)


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


def run(engine: Engine) -> None:
    for batch in range(BATCHES):
        small_queries.SMALL_INPUT_BYTES = 0 if batch else 4 << 20  # from the second batch on, Spark writes what deltalake would
        land(engine, batch)
        with_retries(engine.ingest)
        with_retries(lambda: advance_all(engine))
    with_retries(engine.drain)
    with_retries(lambda: advance_all(engine))


def seen(engine: Engine) -> dict[str, Any]:
    """The number of rows and a hash of each table, the accounts, and the batches."""
    names = ["events/l", "events/r", *engine.assets]
    hashed = F.sum(F.xxhash64(F.to_json(F.struct("*"), {"ignoreNullFields": "false"})).cast("decimal(38,0)"))
    law = status.recounted_status(engine, [*engine.assets])["assets"]
    rows = {name: engine.views.table(name).agg(F.count("*"), hashed).first() or () for name in names}
    entries = engine.ledger.entries()
    batches = [[repr((r.seq, r.source, r.kind, r.watermark, r.accepted, r.quarantined)) for r in entry] for entry in entries]
    return {
        "rows": {name: [str(value) for value in of_table] for name, of_table in rows.items()},
        "ledger": batches,
        "holds": {name: law[name]["law"]["holds"] for name in engine.assets if law[name]["law"]},
        "late": engine.views.late("pairs", "l").count(),
    }


if __name__ == "__main__":
    killer, ended = Killer(json.loads(sys.argv[1]), every=25), Signal()
    thread = Thread(target=killer.run, args=(ended,), daemon=True)
    thread.start()
    the_engine = make_engine(settings(), PIPELINE)
    run(the_engine)
    ended.set()
    thread.join()
    sys.stdout.write(json.dumps(seen(the_engine)))
