"""`python -m benchmarks`: run the benchmarks and write their results into docs/explanation/benchmarks.md."""

import json
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks import plan
from benchmarks.contenders import HOT_ITEMS, JOIN, TOP_BIDS, Contender
from benchmarks.contenders.flink import is_set_up
from benchmarks.plan import Bench, Cell
from platform_defs.engine.lake.interrupts import ends_in_order
from platform_defs.settings import HOME, PROJECT

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, help=__doc__)

Work = Annotated[Path, typer.Option(help="Folder for the data, the lakes and the results.")]
Flink = Annotated[Path, typer.Option(help="Folder of the Flink benchmark; Flink is skipped if it is not set up.")]
Cores = Annotated[int, typer.Option(help="Cores that each contender uses.", min=1)]
Timeout = Annotated[float, typer.Option(help="Maximum seconds of one run.", min=1)]
Again = Annotated[bool, typer.Option("--again", help="Repeat runs that already have a result; the newest result counts.")]
Runs = Annotated[int, typer.Option(help="Runs of each contender and size; the report shows medians.", min=1)]
Scale = Annotated[float, typer.Option(help="Factor for every number of rows.", min=0.0001)]
WORK, FLINK = HOME / "bench", PROJECT.parent / "shared" / "peers" / "flink"
GROWTH = ["rows", "keys", "bounds", "batch"]
SIZES, SLOW_SIZES, BACKLOGS, PARTITIONS = [1_000_000, 5_000_000], [200_000, 1_000_000], [10_000_000, 40_000_000], [4, 64]
ALL_CONTENDERS: list[str] = []
RATES = [100.0, 1_000.0, 5_000.0]
ENGINES = ["tidemark", "spark"]
KILL = "job,broker,worker"


@app.command()
def join(
    sizes: Annotated[list[int], typer.Option(help="Rows per table; the slope is between the smallest and the largest.")] = SIZES,
    slow_sizes: Annotated[list[int], typer.Option(help="The same for slow contenders, which run once.")] = SLOW_SIZES,
    runs: Runs = 3,
    only: Annotated[list[str], typer.Option(help=f"Contenders: {', '.join(c.name for c in JOIN)}.")] = ALL_CONTENDERS,
    flink_rocksdb: Annotated[bool, typer.Option(help="Also run Flink with RocksDB, checkpoints and files.")] = False,
    work: Work = WORK,
    flink: Flink = FLINK,
    cores: Cores = 2,
    timeout: Timeout = 3_600,
    again: Again = False,
) -> None:
    """Run the payment-order join with all contenders in turn; a run that has a result is skipped."""
    _check_contenders(only, JOIN, flink)
    selected = [*only, *(["flink_rocksdb"] if flink_rocksdb else [])]
    if flink_rocksdb and not only:
        selected = [c.name for c in JOIN]
    cells = [*plan.join(sizes, slow_sizes, runs, selected, flink)]
    _run(Bench(work=work, flink=flink, cores=cores, timeout_s=timeout, again=again), cells)


@app.command()
def hot_items(
    sizes: Annotated[list[int], typer.Option(help="Bids; the slope is between the smallest and the largest.")] = SIZES,
    runs: Runs = 3,
    only: Annotated[list[str], typer.Option(help=f"Contenders: {', '.join(c.name for c in HOT_ITEMS)}.")] = ALL_CONTENDERS,
    growth: Annotated[bool, typer.Option(help="Also measure how cost grows with rows, auctions and overlap.")] = True,
    work: Work = WORK,
    flink: Flink = FLINK,
    cores: Cores = 2,
    timeout: Timeout = 3_600,
    again: Again = False,
) -> None:
    """Find the ten auctions with the most bids in each sliding window, with all contenders in turn."""
    _check_contenders(only, HOT_ITEMS, flink)
    cells = [*plan.hot_items(sizes, runs, only, flink)]
    if growth and not only:
        size = max(sizes)
        cells += plan.hot_items_growth(
            [size // 5, size, 2 * size, 4 * size], size, (size // 50, size // 500, 100), (10_000, 5_000, 1_000, 500)
        )
    _run(Bench(work=work, flink=flink, cores=cores, timeout_s=timeout, again=again), cells)


@app.command()
def top_bids(
    sizes: Annotated[list[int], typer.Option(help="Bids; the slope is between the smallest and the largest.")] = SIZES,
    runs: Runs = 3,
    only: Annotated[list[str], typer.Option(help=f"Contenders: {', '.join(c.name for c in TOP_BIDS)}.")] = ALL_CONTENDERS,
    work: Work = WORK,
    flink: Flink = FLINK,
    cores: Cores = 2,
    timeout: Timeout = 3_600,
    again: Again = False,
) -> None:
    """Keep the ten highest bids of each auction, with and without ranks, with all contenders in turn."""
    _check_contenders(only, TOP_BIDS, flink)
    _run(Bench(work=work, flink=flink, cores=cores, timeout_s=timeout, again=again), plan.top_bids(sizes, runs, only, flink))


@app.command()
def growth(
    only: Annotated[list[str], typer.Option(help=f"Measurements: {', '.join(GROWTH)}.")] = GROWTH,
    scale: Scale = 1.0,
    work: Work = WORK,
    cores: Cores = 2,
    timeout: Timeout = 3_600,
    again: Again = False,
) -> None:
    """Measure how cost grows with rows, keys, bounds and rows per micro-batch."""
    by_rows = [round(n * scale) for n in (1_000_000, 2_000_000, 5_000_000, 10_000_000, 20_000_000)]
    size, base = round(1_000_000 * scale), round(1_000_000 * scale)
    batches = [round(n * scale) for n in (1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000)]
    cells = {
        "rows": plan.rows(by_rows),
        "keys": plan.keys(size, (1, 10, 100, 1_000)),
        "bounds": plan.bounds(size, (1, 5, 10, 20, 30, 60)),
        "batch": plan.batch_sizes([max(2, n) for n in batches], base),
    }
    _run(Bench(work=work, flink=FLINK, cores=cores, timeout_s=timeout, again=again), [cell for name in only for cell in cells[name]])


@app.command()
def age(
    steps: Annotated[int, typer.Option(help="Number of small micro-batches.", min=1)] = 1_000,
    step_rows: Annotated[int, typer.Option(help="Rows per micro-batch, both tables together.", min=2)] = 1_000,
    base: Annotated[int, typer.Option(help="Rows per table that are ingested before them.", min=1)] = 100_000,
    work: Work = WORK,
    cores: Cores = 2,
    timeout: Timeout = 4 * 3_600,
    again: Again = False,
) -> None:
    """Run many small steps on one lake, and measure step times and numbers of files."""
    _run(Bench(work=work, flink=FLINK, cores=cores, timeout_s=timeout, again=again), plan.age(steps, step_rows, base))


@app.command()
def backlog(
    sizes: Annotated[list[int], typer.Option(help="Rows of a backlog, both tables together.")] = BACKLOGS,
    heap: Annotated[str, typer.Option(help="Heap of the driver.")] = "1g",
    max_step: Annotated[int, typer.Option(help="Approximate number of rows that a step reads.", min=2)] = 2_000_000,
    work: Work = WORK,
    cores: Cores = 2,
    timeout: Timeout = 4 * 3_600,
    again: Again = False,
) -> None:
    """Measure the peak memory of a backlog that is larger than the heap."""
    _run(Bench(work=work, flink=FLINK, cores=cores, timeout_s=timeout, again=again), plan.backlog(sizes, heap, max_step))


@app.command()
def ledger_age(
    batches: Annotated[int, typer.Option(help="Batches in the ledger, each with five sources.", min=64)] = 200_000, work: Work = WORK
) -> None:
    """Measure the cost of opening, querying and appending to a long ledger. Needs no Spark."""
    from benchmarks.ledger_age import run

    for name, cost in run(work, batches).items():
        print(f"{name}: {cost}{'' if name.endswith('MB') else ' s CPU'}")


@app.command()
def cycle(
    rows: Annotated[int, typer.Option(help="Rows that land in each cycle, in all sources together, about.", min=1)] = 4_000,
    cycles: Annotated[int, typer.Option(help="Cycles; the last one counts.", min=1)] = 6,
    checks: Annotated[bool, typer.Option("--checks", help="Run the suites of Great Expectations too.")] = False,
    tables: Annotated[bool, typer.Option("--tables", help="Process one table at a time, and print the cost of each.")] = False,
    dagster: Annotated[bool, typer.Option("--dagster", help="Run Dagster's jobs in this process, always with the suites.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the costs of the last cycle as JSON, in the last line.")] = False,
    heap: Annotated[str, typer.Option(help="The driver's heap.")] = "3g",
    work: Work = WORK,
    cores: Cores = 2,
) -> None:
    """The cost of one cycle of the whole shop: ingest, advance, account, and the checks: time, Spark jobs, commits, CPU, memory."""
    from benchmarks.cycle import run

    folder = work / "cycle"
    shutil.rmtree(folder, ignore_errors=True)
    last, empty = run(folder, rows, cycles, checks=checks, by_table=tables, dagster=dagster, cores=cores, heap=heap, note=print)
    for name, cost in last.tables.items() if tables else ():
        print(f"{name}: {cost}")
    if as_json:
        print(json.dumps(last.summary | {"empty": empty.summary}))


@app.command()
def scaling(
    rows: Annotated[int, typer.Option(help="Rows of each table.", min=1)] = 5_000_000,
    partitions: Annotated[list[int], typer.Option(help="Shuffle partitions; one run for each.")] = PARTITIONS,
    heap: Annotated[str, typer.Option(help="The driver's heap.")] = "4g",
    work: Work = WORK,
    cores: Cores = 2,
) -> None:
    """Measure the tasks of a catch-up of the join, and simulate it on more cores."""
    from benchmarks.scaling import run

    for number in partitions:
        for old in work.glob(f"scaling*-{number}"):
            shutil.rmtree(old)
        for part, found in run(work, rows, number, cores, heap).items():
            times = ", ".join(f"{n}: {seconds:.1f}" for n, seconds in found.simulated_s.items())
            print(f"{number} partitions, {part}: {found.measured_s:.1f} s, of which the driver alone {found.driver_s:.1f}; ", end="")
            print(f"{found.tasks} tasks; seconds by cores: {times}")


@app.command()
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
    """Run a stream from Kafka to Kafka at a steady rate on a Spark cluster of this machine, kill job, broker and workers at random moments.

    It checks lake, topics, memory and files. The figures are in soak.json, the samples in soak.csv; `report-live` writes the docs.
    """
    from benchmarks.live.soak import Soak, SoakError, run

    kinds: Any = tuple(kind.strip() for kind in kill.split(",") if kind.strip())
    sizes = {"heap": heap, "executor_memory": executor_memory, "cores": cores, "workers": workers}
    try:
        wanted = Soak(work=work / "soak", minutes=minutes, rate=rate, kill=kinds, kill_every_s=kill_every, seed=seed, **sizes)
    except SoakError as error:
        raise typer.BadParameter(str(error)) from None
    with ends_in_order():  # the stream is in a process group of its own
        found = run(wanted, print)
    print(json.dumps({name: value for name, value in found.items() if name != "samples"}, indent=1))
    if found["problems"]:
        raise SystemExit("\n".join(["problems:", *found["problems"]]))


@app.command()
def latency(
    rates: Annotated[list[float], typer.Option(help="Events in a second, one rate after the other.")] = RATES,
    seconds: Annotated[float, typer.Option(help="For how long each rate is sent; the first 10 s do not count.", min=20)] = 60.0,
    only: Annotated[list[str], typer.Option(help="Engines: tidemark, spark.")] = ENGINES,
    heap: Annotated[str, typer.Option(help="Heap of the stream.")] = "2g",
    work: Work = WORK,
    cores: Cores = 2,
) -> None:
    """Measure the time from an event's record in Kafka to its row in a table, and to its record on the topic of a sink.

    The figures are in latency.json; `report-live` writes them into the docs.
    """
    from benchmarks.live.latency import Latency, run

    found = run(Latency(work=work / "latency", rates=rates, seconds=seconds, heap=heap, cores=cores), only, print)
    print(json.dumps(found["found"], indent=1))


@app.command()
def report_live(
    work: Work = WORK, docs: Annotated[Path, typer.Option(help="Folder with explanation/benchmarks.md and images/.")] = PROJECT / "docs"
) -> None:
    """Write the results of `soak` and `latency` into benchmarks.md, with the plot of the soak."""
    from benchmarks.live import report

    for name, write in (("latency", report.write_latency), ("soak", report.write_soak)):
        file = work / name / f"{name}.json"
        if file.exists():
            write(json.loads(file.read_text()), docs)


@app.command()
def report(
    work: Work = WORK, docs: Annotated[Path, typer.Option(help="Folder with explanation/benchmarks.md and images/.")] = PROJECT / "docs"
) -> None:
    """Write the recorded results into benchmarks.md and its plots."""
    from benchmarks.report import write

    for path in write(work / "results.jsonl", docs):
        print(path)


def _check_contenders(only: Iterable[str], contenders: Sequence[Contender], flink: Path) -> None:
    """Refuse an unknown contender, and print a message if Flink is skipped."""
    names = [c.name for c in contenders]
    unknown = sorted(set(only) - set(names))
    if unknown:
        raise typer.BadParameter(f"{', '.join(unknown)} is not a contender; the contenders are {', '.join(names)}")
    if not is_set_up(flink):
        print(
            f"Flink is skipped: {flink}/java/bclasses is missing. Run setup.sh in a copy of the Flink benchmark; pass that copy as --flink"
        )


def _run(bench: Bench, cells: Iterable[Cell]) -> None:
    failed = bench.run([*cells])
    print(f"results: {bench.results}")
    if failed:
        raise SystemExit("\n".join(["failed:", *failed]))


if __name__ == "__main__":
    app()
