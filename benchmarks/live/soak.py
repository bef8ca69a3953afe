"""The soak: a steady rate of events through Kafka for half an hour, while the broker is killed at random moments."""

import json
import random
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.live import verdict
from benchmarks.live.quiet import QuietReports
from benchmarks.live.report import write_samples
from benchmarks.live.samples import Sample, Sampler, growth
from benchmarks.live.world import Sending, StreamProcess, World, streaming, until
from benchmarks.results import machine
from platform_defs.setup.broker import Broker, running

MOST_GROWTH = {"outside_mb": 1.15, "python_mb": 1.15, "live_mb": 1.15, "files": 1.5}
"""How much each measure may grow from the first third of the samples to the last."""
MOST_BEHIND_S = 20.0
"""How far the ledger may be behind the broker, in seconds of the rate, half a minute or longer after a kill."""
_QUIET_S = 30.0
_CAUGHT_UP_S = 300.0


@dataclass(frozen=True, kw_only=True)
class Soak:
    """What to run.

    Args:
        work: the folder of everything; its content is deleted.
        minutes: for how long events are sent.
        rate: events in a second.
        keys: the number of keys.
        every: the interval of the stream.
        kill_every_s: the average time between two kills of the broker, in seconds.
        sample_s: the time between two samples, in seconds.
        heap: the heap of the stream.
        cores: the cores of the stream.
        seed: the seed of the kills.
    """

    work: Path
    minutes: float = 30.0
    rate: float = 5_000.0
    keys: int = 200
    every: str = "1 second"
    kill_every_s: float = 120.0
    sample_s: float = 10.0
    heap: str = "2g"
    cores: int = 2
    seed: int = 7


def run(soak: Soak, note: Callable[[str], None]) -> dict[str, Any]:
    """Run the soak; returns what was measured, with its problems under `problems`.

    Args:
        soak: what to run.
        note: receives a line now and then.
    """
    shutil.rmtree(soak.work, ignore_errors=True)
    soak.work.mkdir(parents=True)
    with running(soak.work / "broker") as broker:
        world = World(soak.work, broker)
        world.create_topics()
        with streaming(world, soak.every, soak.heap, soak.cores) as stream:
            sending = world.produce(soak.rate, soak.minutes * 60, soak.keys)
            try:
                samples, kills = _watch(soak, world, stream, sending, note)
            finally:
                sending.end()
            acked, sampler = sending.wait()["acked"], Sampler(world, stream)
            until(lambda: sampler.accepted >= acked, _CAUGHT_UP_S, 1.0)
        engine = world.engine()
        verdict.finish(engine, QuietReports())
        wrong = [*verdict.problems(engine, acked), *not_flat(samples, kills, soak.rate)]
        warnings = [line for line in stream.lines if "warning" in line.lower()]
    found = {"soak": {**asdict(soak), "work": str(soak.work)}, "machine": machine(), "at": datetime.now(UTC).isoformat(timespec="seconds")}
    found |= {"acked": acked, "kills": kills, "growth": {name: round(growth(samples, name), 3) for name in MOST_GROWTH}}
    found |= {"steps": _steps(engine), "warnings": len(warnings), "problems": wrong, "samples": [sample.as_dict() for sample in samples]}
    (soak.work / "soak.json").write_text(json.dumps(found, indent=1))
    write_samples(found["samples"], soak.work / "soak.csv")
    return found


def _watch(
    soak: Soak, world: World, stream: StreamProcess, sending: Sending, note: Callable[[str], None]
) -> tuple[list[Sample], list[float]]:
    """Take samples and kill the broker until all events are sent; returns the samples, and the times of the kills."""
    chance, sampler, samples, kills = random.Random(soak.seed), Sampler(world, stream), list[Sample](), list[float]()
    began = time.monotonic()
    next_kill, last_kill = chance.uniform(0.5, 1.5) * soak.kill_every_s, soak.minutes * 60 - _QUIET_S
    while sending.process.poll() is None:
        stream.require_running()
        samples.append(sampler.take(sending.counts["acked"]))
        note(f"{samples[-1]}")
        while (passed := time.monotonic() - began) < len(samples) * soak.sample_s and sending.process.poll() is None:
            if next_kill <= passed < last_kill:
                note(f"kill at {passed:.0f} s; back after {_killed(world.broker):.1f} s")
                kills.append(round(passed, 1))
                next_kill = passed + chance.uniform(0.5, 1.5) * soak.kill_every_s
            time.sleep(0.1)
    return samples, kills


def _killed(broker: Broker) -> float:
    """Kill the broker and start it again; returns the seconds that it was away."""
    began = time.monotonic()
    broker.kill()
    broker.start()
    return time.monotonic() - began


def not_flat(samples: Sequence[Sample], kills: Sequence[float], rate: float) -> list[str]:
    """What grows, and when the stream was too far behind."""
    grown = {name: growth(samples, name) for name in MOST_GROWTH}
    found = [f"{name} has grown {grown[name]:.2f} times; legal: {most} times" for name, most in MOST_GROWTH.items() if grown[name] > most]
    for sample in samples:
        is_quiet = all(not 0 <= sample.seconds - at < _QUIET_S for at in (0.0, *kills))
        behind_s = (sample.acked - sample.accepted) / rate
        if is_quiet and behind_s > MOST_BEHIND_S:
            found.append(f"the ledger is {behind_s:.0f} s behind at {sample.seconds:.0f} s; legal: {MOST_BEHIND_S:.0f} s")
    return found


def _steps(engine: Any) -> dict[str, int]:
    return {"ledger": engine.ledger.head} | {name: engine.pending.progress(name).step for name in engine.assets}
