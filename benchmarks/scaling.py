"""How a step would scale to more cores: its tasks are measured on this machine, and scheduled on the cores of a larger one.

Spark writes the start and the end of each task to its event log. The time in which no task runs is the driver's: planning, commits, and
the engine. More cores do not shorten it. The tasks of a stage are then scheduled one after the other on the next free core, and stages
run one after the other. Not modelled: the network between machines, the time until a task starts there, and slow machines.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heapreplace
from pathlib import Path
from time import time

from benchmarks import tidemark
from benchmarks.contenders import Job
from benchmarks.data import Shape, prepare

CORES = (1, 2, 4, 8, 16, 32, 64)


@dataclass(frozen=True)
class Task:
    """A task that ran.

    Args:
        stage: the number of its stage, and of the attempt.
        start_ms: its start, in epoch ms.
        end_ms: its end.
    """

    stage: tuple[int, int]
    start_ms: int
    end_ms: int


@dataclass(frozen=True)
class Scaled:
    """A part of the work, as measured and as simulated.

    Args:
        measured_s: its wall time on this machine.
        driver_s: the part of it in which no task runs.
        tasks: the number of tasks.
        simulated_s: its wall time by number of cores.
    """

    measured_s: float
    driver_s: float
    tasks: int
    simulated_s: Mapping[int, float]


def read_tasks(event_logs: Path) -> list[Task]:
    """The tasks in the event logs of a folder that Spark wrote, in order of their start."""
    found = list[Task]()
    for file in event_logs.rglob("*"):
        for line in file.read_text("utf-8").splitlines() if file.is_file() and not file.name.endswith(".crc") else ():
            if line.startswith('{"Event":"SparkListenerTaskEnd"'):
                event = json.loads(line)
                times = event["Task Info"]
                stage = event["Stage ID"], event["Stage Attempt ID"]
                found.append(Task(stage, times["Launch Time"], times["Finish Time"]))
    return sorted(found, key=lambda task: task.start_ms)


def scaled(tasks: Iterable[Task], begin_ms: int, end_ms: int, cores: Sequence[int] = CORES) -> Scaled:
    """Simulate the work between two instants on other numbers of cores."""
    own = [task for task in tasks if begin_ms <= task.start_ms < end_ms]
    driver_ms = (end_ms - begin_ms) - _covered_ms(own)
    stages = defaultdict[tuple[int, int], list[int]](list)
    for task in own:
        stages[task.stage].append(task.end_ms - task.start_ms)
    times = {n: (driver_ms + sum(makespan(lengths, n) for lengths in stages.values())) / 1000 for n in cores}
    return Scaled((end_ms - begin_ms) / 1000, driver_ms / 1000, len(own), times)


def makespan(lengths: Iterable[int], cores: int) -> int:
    """The time from the first start to the last end of tasks, each of which takes the next free core.

    >>> makespan([4, 3, 3], cores=2)
    6
    """
    free = [0] * cores
    heapify(free)
    for length in lengths:
        heapreplace(free, free[0] + length)
    return max(free)


def _covered_ms(tasks: Sequence[Task]) -> int:
    """The time in which at least one task runs; the tasks are in order of their start."""
    covered, until = 0, 0
    for task in tasks:
        covered += max(0, task.end_ms - max(task.start_ms, until))
        until = max(until, task.end_ms)
    return covered


def run(work: Path, rows: int, partitions: int, cores: int, heap: str) -> dict[str, Scaled]:
    """Ingest and advance the payment-order join as one catch-up step, and simulate both parts.

    Args:
        work: the folder for data, lake and event log.
        rows: rows of each table.
        partitions: the shuffle partitions, and the least number of parts of an input; more cores than that have nothing to do.
        cores: the cores of this run.
        heap: the driver's heap.
    """
    data, scratch, log = prepare(Shape(rows), work / "data"), work / f"scaling-{partitions}", work / f"scaling-log-{partitions}"
    log.mkdir(parents=True)
    job = Job(data, scratch, rows, cores=cores, heap=heap)
    spark = tidemark.spark_session(
        job,
        **{
            "spark.eventLog.enabled": "true",
            "spark.eventLog.dir": log.as_uri(),
            "spark.eventLog.rolling.enabled": "false",
            "spark.eventLog.compress": "false",
            "spark.sql.shuffle.partitions": str(partitions),
            "spark.sql.leafNodeDefaultParallelism": str(partitions),
            "spark.sql.adaptive.coalescePartitions.enabled": "false",
        },
    )
    engine = tidemark.make_engine(job, spark, max_step=2 * rows)
    instants = [time()]
    tidemark.ingest(engine, tidemark.complete_files(job))
    instants.append(time())
    engine.drain()
    instants.append(time())
    for _ in engine.advance(tidemark.derived_table(engine)):
        pass
    instants.append(time())
    spark.stop()
    tasks, [begun, ingested, drained, advanced] = read_tasks(log), [round(1000 * instant) for instant in instants]
    return {"ingest": scaled(tasks, begun, ingested), "advance": scaled(tasks, drained, advanced)}
