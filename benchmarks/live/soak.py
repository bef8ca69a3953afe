"""The soak: a steady rate of events through Kafka for half an hour, while job, broker and workers are killed at random moments."""

import json
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.live import final_checks
from benchmarks.live.cluster import Cluster, cluster
from benchmarks.live.flat import OUTSIDE_EXECUTOR_MB, OUTSIDE_MB, growths, not_flat
from benchmarks.live.kills import KINDS, Kill, Killer, Kind, plan, with_recovery
from benchmarks.live.observed import steps
from benchmarks.live.pipeline import EVENTS
from benchmarks.live.processes import Sending, until
from benchmarks.live.quiet import QuietReports
from benchmarks.live.report import write_samples
from benchmarks.live.samples import Sample, Sampler, files_by_kind
from benchmarks.live.world import World, streaming
from benchmarks.results import machine
from platform_defs.engine import Engine
from platform_defs.settings.values import memory_mib
from platform_defs.setup.broker import running_broker
from platform_defs.spark.session import LOGGING

_QUIET_S = 45.0
"""No kill is made in this many seconds before the last event; in a short soak, in the last quarter of the time."""
_CAUGHT_UP_S = 300.0


class SoakError(ValueError):
    """A soak that cannot be run."""

    @classmethod
    def no_workers(cls, workers: int) -> "SoakError":
        """Kills of workers need at least two workers."""
        return cls(f"`workers` is {workers}, and `kill` names worker; legal: 2 or more workers, or kinds of kills without worker")

    @classmethod
    def illegal_memory(cls, name: str, value: str, error: ValueError) -> "SoakError":
        """A heap of an illegal size."""
        return cls(f"`{name}` is {value!r}; {error}")

    @classmethod
    def unknown(cls, kind: str) -> "SoakError":
        """A kind of kills that does not exist."""
        return cls(f"`kill` names {kind!r}; legal: {', '.join(KINDS)}, separated by commas")


@dataclass(frozen=True, kw_only=True)
class Soak:
    """What to run.

    Args:
        work: the folder for all files of the run; its content is deleted first.
        minutes: for how long events are sent.
        rate: events per second.
        keys: the number of keys.
        every: the interval of the stream.
        kill: the kinds of kills.
        kill_every_s: the average time between two kills, in seconds.
        sample_s: the time between two samples, in seconds.
        heap: the heap of the stream's driver.
        cores: the cores of the stream without workers.
        workers: the workers of the cluster, of one core each; 0 for a stream in one process.
        executor_memory: the heap of the executor of each worker.
        seed: the seed of the kills.
    """

    work: Path
    minutes: float = 30.0
    rate: float = 5_000.0
    keys: int = 200
    every: str = "1 second"
    kill: tuple[Kind, ...] = KINDS
    kill_every_s: float = 120.0
    sample_s: float = 10.0
    heap: str = "1536m"
    cores: int = 2
    workers: int = 2
    executor_memory: str = "1g"
    seed: int = 7

    def __post_init__(self) -> None:
        for kind in self.kill:
            if kind not in KINDS:
                raise SoakError.unknown(kind)
        if "worker" in self.kill and self.workers < 2:
            raise SoakError.no_workers(self.workers)
        for name, value in (("heap", self.heap), ("executor_memory", self.executor_memory)):
            try:
                memory_mib(value)
            except ValueError as error:
                raise SoakError.illegal_memory(name, value, error) from None

    @property
    def most_mb(self) -> dict[str, float]:
        """The most resident memory of the driver's JVM, and of all executors, in MiB."""
        executors = self.workers * (memory_mib(self.executor_memory) + OUTSIDE_EXECUTOR_MB)
        return {"jvm_mb": memory_mib(self.heap) + OUTSIDE_MB} | ({"executors_mb": executors} if self.workers else {})

    @property
    def spark(self) -> dict[str, str]:
        """Options of Spark for the cluster; none without one."""
        if not self.workers:
            return {}
        return {
            "spark.driver.host": "127.0.0.1",
            "spark.executor.memory": self.executor_memory,
            "spark.executor.extraJavaOptions": f"-XX:+UseSerialGC -Dlog4j2.configurationFile={LOGGING.as_uri()}",
            "spark.shuffle.io.maxRetries": "1",  # for a worker that was killed: Spark then computes its part of the shuffle again
            "spark.shuffle.io.retryWait": "100ms",
            "spark.sql.leafNodeDefaultParallelism": "2",
        }


def run(soak: Soak, note: Callable[[str], None]) -> dict[str, Any]:
    """Run the soak; returns what was measured, with its problems under `problems`.

    Args:
        soak: what to run.
        note: receives a line for each sample and each kill.
    """
    shutil.rmtree(soak.work, ignore_errors=True)
    soak.work.mkdir(parents=True)
    with running_broker(soak.work / "broker") as broker:
        with _workers(soak) as workers:
            world = World(soak.work, broker, workers, soak.spark)
            world.create_topics()
            samples, killer, acked = _sent(soak, world, note)
        engine = world.engine()
        on_disk = files_by_kind(world.lake)
        kills = _recovered(killer, engine)  # by the stream, not by `finish`
        final_checks.finish(engine, QuietReports())
        wrong = [*final_checks.problems(engine, acked), *not_flat(samples, soak.rate, soak.most_mb), *_unrecovered(kills)]
        engine.maintain(retention_hours=0)
        kept = files_by_kind(world.lake)
    found = {"soak": {**asdict(soak), "work": str(soak.work)}, "machine": machine(), "at": datetime.now(UTC).isoformat(timespec="seconds")}
    found |= {"acked": acked, "kills": [kill.as_dict() for kill in kills], "ended": killer.ended, "on_disk": on_disk, "maintained": kept}
    found |= {"growth": {name: value and round(value, 3) for name, value in growths(samples).items()}, "steps": _numbers(engine)}
    found |= {"problems": wrong, "samples": [sample.as_dict() for sample in samples]}
    (soak.work / "soak.json").write_text(json.dumps(found, indent=1))
    write_samples(found["samples"], soak.work / "soak.csv")
    return found


@contextmanager
def _workers(soak: Soak) -> Iterator[Cluster | None]:
    if not soak.workers:
        yield None
        return
    with cluster(soak.work / "cluster", soak.workers, memory=soak.executor_memory) as started:
        yield started


def _sent(soak: Soak, world: World, note: Callable[[str], None]) -> tuple[list[Sample], Killer, int]:
    """Send all events while the stream runs. Then wait until they are ingested, and, at most five minutes, until a step follows each kill.

    Returns:
        The samples, the kills, and the number of events.
    """
    with streaming(world, soak.every, soak.heap, soak.cores) as stream:
        planned = plan(soak.kill, soak.kill_every_s, soak.minutes * 60 - min(_QUIET_S, soak.minutes * 15), soak.seed)
        killer, sampler = Killer(world, stream, planned, soak.seed, note), Sampler(world, stream)
        sending = world.produce(soak.rate, soak.minutes * 60, soak.keys)
        try:
            samples = _watch(soak, sampler, killer, sending, note)
        finally:
            sending.end()
        acked = sending.wait()["acked"]
        engine, began = world.engine(), time.monotonic()

        def wait(condition: Callable[[], bool], problem: Callable[[], str]) -> None:
            def is_true() -> bool:
                killer.look(soak.minutes * 60 + time.monotonic() - began)
                return condition()

            until(is_true, _CAUGHT_UP_S, problem, poll_s=1.0)

        wait(lambda: sampler.accepted >= acked, lambda: f"the ledger has {sampler.accepted:,} of {acked:,} events")
        with suppress(TimeoutError):  # `run` reports it as a problem
            wait(lambda: not _unrecovered(_recovered(killer, engine)), lambda: "no step followed a kill")
    return samples, killer, acked


def _watch(soak: Soak, sampler: Sampler, killer: Killer, sending: Sending, note: Callable[[str], None]) -> list[Sample]:
    """Take samples and make the kills until all events are sent."""
    samples, began = list[Sample](), time.monotonic()
    while sending.process.poll() is None:
        samples.append(sampler.take(sending.counts["acked"]))
        note(f"{samples[-1]}")
        while (passed := time.monotonic() - began) < len(samples) * soak.sample_s and sending.process.poll() is None:
            killer.look(passed)
            time.sleep(0.1)
    return samples


def _recovered(killer: Killer, engine: Engine) -> list[Kill]:
    return with_recovery(killer.made, _begun(engine), _steps(engine))


def _begun(engine: Engine) -> list[tuple[int, int]]:
    """When each batch with rows was begun, in epoch ms, and its number."""
    return [(row.ingested_at, row.seq) for batch in engine.ledger.batches() for row in batch if row.source == EVENTS and row.kind == "rows"]


def _steps(engine: Engine) -> dict[str, list[tuple[int, int]]]:
    """The time of the commit of each step, in epoch ms, and the newest batch in it, by table."""
    tables = {asset.name: asset.changelog if asset.operator.emits.upserts else asset.name for asset in engine.assets.values()}
    return {name: steps(Path(engine.lake.path(table))) for name, table in tables.items()}


def _unrecovered(kills: Sequence[Kill]) -> list[str]:
    return [f"no step followed the kill of the {kill.kind} at {kill.seconds:.0f} s" for kill in kills if kill.step_s is None]


def _numbers(engine: Engine) -> dict[str, int]:
    return {"ledger": engine.ledger.head} | {name: engine.pending.progress(name).step for name in engine.assets}
