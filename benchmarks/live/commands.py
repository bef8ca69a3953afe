"""The commands that measure a stream through Kafka."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks.options import WORK, Cores, Work
from platform_defs.engine.lake.interrupts import ending_on_sigterm
from platform_defs.settings import PROJECT

RATES = [100.0, 1_000.0, 5_000.0]
ENGINES = ["tidemark", "spark"]
KILL = "job,broker,worker"


def soak(
    minutes: Annotated[float, typer.Option(help="For how long events are sent.", min=0.5)] = 30.0,
    rate: Annotated[float, typer.Option(help="Events in a second.", min=1)] = 5_000.0,
    kill: Annotated[str, typer.Option(help="What is killed: some of job, broker, worker, separated by commas; '' for nothing.")] = KILL,
    kill_every: Annotated[float, typer.Option(help="Average seconds between two kills.", min=5)] = 120.0,
    seed: Annotated[int, typer.Option(help="Seed of the kills: the same seed gives the same kinds at the same seconds.")] = 7,
    workers: Annotated[int, typer.Option(help="Spark workers of one core each; 0 for a stream in one process.", min=0)] = 2,
    heap: Annotated[str, typer.Option(help="Heap of the stream's driver.")] = "1536m",
    executor_memory: Annotated[str, typer.Option(help="Heap of each worker's executor.")] = "1g",
    work: Work = WORK,
    cores: Annotated[int, typer.Option(help="Cores of a stream without workers.", min=1)] = 2,
) -> None:
    """Run a stream from Kafka to Kafka at a steady rate on a local Spark cluster, and kill job, broker and workers at random moments.

    It checks lake, topics, memory and files. The figures are in soak.json, the samples in soak.csv; `report-live` writes the docs.
    """
    from benchmarks.live.soak import Soak, SoakError, run

    kinds: Any = tuple(kind.strip() for kind in kill.split(",") if kind.strip())
    sizes = {"heap": heap, "executor_memory": executor_memory, "cores": cores, "workers": workers}
    try:
        wanted = Soak(work=work / "soak", minutes=minutes, rate=rate, kill=kinds, kill_every_s=kill_every, seed=seed, **sizes)
    except SoakError as error:
        raise typer.BadParameter(str(error)) from None
    with ending_on_sigterm():  # the stream is in a process group of its own
        found = run(wanted, print)
    print(json.dumps({name: value for name, value in found.items() if name != "samples"}, indent=1))
    if found["problems"]:
        raise SystemExit("\n".join(["problems:", *found["problems"]]))


def latency(
    rates: Annotated[list[float], typer.Option(help="Events in a second, one rate after the other.")] = RATES,
    seconds: Annotated[float, typer.Option(help="For how long each rate is sent; the first 10 s do not count.", min=20)] = 60.0,
    only: Annotated[list[str], typer.Option(help="Engines: tidemark, spark.")] = ENGINES,
    heap: Annotated[str, typer.Option(help="Heap of the stream.")] = "2g",
    work: Work = WORK,
    cores: Cores = 2,
) -> None:
    """Measure the time from an event's record in Kafka to its row in a table, and to its record on the topic of a sink.

    The figures are in latency.json, which keeps those of other engines; `report-live` writes them into the docs.
    """
    if unknown := sorted({*only} - {*ENGINES}):
        raise typer.BadParameter(f"{', '.join(unknown)} is no engine; the engines are {', '.join(ENGINES)}")
    from benchmarks.live.latency import Latency, run

    wanted = Latency(work=work / "latency", rates=rates, seconds=seconds, heap=heap, cores=cores)
    with ending_on_sigterm():  # the stream is in a process group of its own
        found = run(wanted, only, print)
    print(json.dumps({engine: of_engine["found"] for engine, of_engine in found.items()}, indent=1))


def report_live(
    work: Work = WORK, docs: Annotated[Path, typer.Option(help="Folder with explanation/benchmarks.md and images/.")] = PROJECT / "docs"
) -> None:
    """Write the results of `soak` and `latency` into benchmarks.md, with the plot of the soak."""
    from benchmarks.live import report

    results = {work / "latency" / "latency.json": report.write_latency, work / "soak" / "soak.json": report.write_soak}
    found = [file for file in results if file.exists()]
    for file in found:
        results[file](json.loads(file.read_text()), docs)
    if not found:
        raise SystemExit(f"there are no results: neither {' nor '.join(map(str, results))} exists; run `latency` or `soak` first")
