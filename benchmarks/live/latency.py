"""Latency: from an event's record in Kafka to its row in a table, and to its record in the topic of a sink, at several rates."""

import json
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import quantiles
from typing import Any

from benchmarks.live.observed import Input, commits, epoch_ms, records, upsert_latencies, window_latencies
from benchmarks.live.pipeline import BOUND_MS, EVENTS, TOTALS, WINDOWS
from benchmarks.live.spark_query import spark_streaming
from benchmarks.live.world import World, streaming
from benchmarks.results import machine
from platform_defs.setup.broker import running_broker

_EXCLUDED_S = 10.0
"""The first seconds of each rate, which do not count."""


@dataclass(frozen=True, kw_only=True)
class Latency:
    """What to run.

    Args:
        work: the folder for all files; the folder of each measured engine in it is deleted first.
        rates: the rates, in events per second, one after the other.
        seconds: for how long each rate is sent.
        warm_up_s: for how long the middle rate is sent before the first rate, so that the JVM has compiled its code.
        keys: the number of keys.
        every: the trigger.
        heap: the heap of the stream.
        cores: the cores of the stream.
    """

    work: Path
    rates: Sequence[float] = (100.0, 1_000.0, 5_000.0)
    seconds: float = 60.0
    warm_up_s: float = 45.0
    keys: int = 100
    every: str = "1 second"
    heap: str = "2g"
    cores: int = 2


def run(latency: Latency, engines: Sequence[str], note: Callable[[str], None]) -> dict[str, Any]:
    """Measure; returns for each engine what was run, the machine, and the percentiles in ms by rate and output.

    `latency.json` keeps the results of the other engines.

    Args:
        latency: what to run.
        engines: `tidemark`, `spark`, or both.
        note: receives a line when a rate begins.
    """
    file, found = latency.work / "latency.json", dict[str, Any]()
    recorded = json.loads(file.read_text()).get("engines", {}) if file.exists() else {}
    for engine in engines:
        run_at = {"machine": machine(), "at": datetime.now(UTC).isoformat(timespec="seconds")}
        found[engine] = {"latency": {**asdict(latency), "work": str(latency.work)}, **run_at, "found": _measured(latency, engine, note)}
        file.write_text(json.dumps({"engines": recorded | found}, indent=1))
    return found


def _measured(latency: Latency, engine: str, note: Callable[[str], None]) -> dict[str, Any]:
    root = latency.work / engine
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir(parents=True)
    with running_broker(root / "broker") as broker:
        world = World(root, broker)
        world.create_topics()
        with _stream(latency, world, engine):
            phases = _send(latency, world, note)
        return _percentiles(latency, world, engine, phases)


def _stream(latency: Latency, world: World, engine: str) -> AbstractContextManager[Any]:
    run_it = streaming if engine == "tidemark" else spark_streaming
    return run_it(world, latency.every, latency.heap, latency.cores)


def _send(latency: Latency, world: World, note: Callable[[str], None]) -> list[tuple[int, int]]:
    """Send all events; returns for each rate the first id that counts, and the id after the last."""
    middle, first, phases = sorted(latency.rates)[len(latency.rates) // 2], 0, list[tuple[int, int]]()
    for rate, seconds in ((middle, latency.warm_up_s), *((rate, latency.seconds) for rate in latency.rates)):
        note(f"{rate:,.0f} events per second for {seconds:.0f} s")
        sending = world.produce(rate, seconds, latency.keys, first)
        try:
            last = first + sending.wait()["acked"]
        finally:
            sending.end()
        phases.append((first + round(rate * _EXCLUDED_S), last))
        first = last
    time.sleep(2 * _EXCLUDED_S)  # until the last results are written
    return phases[1:]


def _percentiles(latency: Latency, world: World, engine: str, phases: Sequence[tuple[int, int]]) -> dict[str, Any]:
    inputs = Input(records(world.broker.address, EVENTS))

    def phase_of(number: int) -> int | None:
        return next((n for n, (first, last) in enumerate(phases) if first <= number < last), None)

    lake = world.root / "lake"
    outputs: dict[str, Mapping[int, list[int]]] = {
        "window to table": window_latencies(inputs, _ends_in_table(lake / WINDOWS), BOUND_MS, phase_of),
        "window to topic": window_latencies(inputs, _ends_in_topic(world), BOUND_MS, phase_of),
    }
    if engine == "tidemark":
        in_table = ((row["k"], row["last_id"], at) for at, rows in commits(lake / TOTALS, ("k", "last_id")) for row in rows)
        seen = sorted(records(world.broker.address, TOTALS), key=lambda record: record.at)
        in_topic = ((record.value["k"], record.value["last_id"], record.at) for record in seen if record.value)
        outputs |= {
            "upsert to table": upsert_latencies(inputs, in_table, phase_of),
            "upsert to topic": upsert_latencies(inputs, in_topic, phase_of),
        }
    return {
        f"{rate:g}": {name: _summary(by_phase.get(n, [])) for name, by_phase in outputs.items()} for n, rate in enumerate(latency.rates)
    }


def _ends_in_table(table: Path) -> Iterator[tuple[int, int]]:
    for at, rows in commits(table, ("window_end",)):
        for row in rows:
            yield epoch_ms(row["window_end"]), at


def _ends_in_topic(world: World) -> Iterator[tuple[int, int]]:
    for record in records(world.broker.address, WINDOWS):
        yield epoch_ms(record.value["window_end"]), record.at


def _summary(latencies: Sequence[int]) -> dict[str, float]:
    if len(latencies) < 2:
        return {"n": len(latencies)}
    cuts = quantiles(latencies, n=100, method="inclusive")
    return {"n": len(latencies), "p50_ms": round(cuts[49]), "p99_ms": round(cuts[98]), "max_ms": max(latencies)}
