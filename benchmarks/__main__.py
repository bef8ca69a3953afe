"""`python -m benchmarks`: run the benchmarks and write their results into docs/explanation/benchmarks.md."""

import json
import shutil
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated

import typer

from benchmarks import plan
from benchmarks.contenders import HOT_ITEMS, JOIN, TOP_BIDS, Contender
from benchmarks.contenders.flink import is_set_up
from benchmarks.live.commands import latency, report_live, soak
from benchmarks.measure import run_program
from benchmarks.options import FLINK, WORK, Again, Cores, Flink, Runs, Scale, Timeout, Work
from benchmarks.plan import Bench, Cell
from platform_defs.settings import PROJECT

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, help=__doc__)
for _command in (soak, latency, report_live):
    app.command()(_command)

GROWTH = ["rows", "keys", "bounds", "batch", "lake"]
SIZES, SLOW_SIZES, BACKLOGS, PARTITIONS = [1_000_000, 5_000_000], [200_000, 1_000_000], [10_000_000, 40_000_000], [4, 64]
ALL_CONTENDERS: list[str] = []


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
    growth: Annotated[bool, typer.Option(help="Also measure how cost grows with rows, auctions and overlap; not with --only.")] = True,
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
    """Measure how cost grows with rows, keys, bounds, rows per micro-batch and the size of the lake."""
    by_rows = [round(n * scale) for n in (1_000_000, 2_000_000, 5_000_000, 10_000_000, 20_000_000)]
    size, base = round(1_000_000 * scale), round(1_000_000 * scale)
    batches = [round(n * scale) for n in (1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000)]
    cells = {
        "rows": plan.rows(by_rows),
        "keys": plan.keys(size, (1, 10, 100, 1_000)),
        "bounds": plan.bounds(size, (1, 5, 10, 20, 30, 60)),
        "batch": plan.batch_sizes([max(2, n) for n in batches], base),
        "lake": plan.lake_sizes(round(n * scale) for n in (100_000, 2_000_000, 20_000_000)),
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
    batches: Annotated[int, typer.Option(help="Batches in the ledger, each with five sources.", min=64)] = 200_000,
    kept: Annotated[int | None, typer.Option(help="Replace all but this many batches by a summary.", min=1)] = None,
    work: Work = WORK,
) -> None:
    """Measure the cost of opening, querying and appending to a long ledger. Needs no Spark."""
    from benchmarks.ledger_age import run

    for name, cost in run(work, batches, kept).items():
        print(f"{name}: {cost}{'' if name.endswith('MB') else ' s CPU'}")


@app.command()
def cycle(
    rows: Annotated[int, typer.Option(help="Rows that land in each cycle, in all sources together, about.", min=1)] = 4_000,
    cycles: Annotated[int, typer.Option(help="Cycles with rows, of which the last one counts; then one without rows follows.", min=1)] = 6,
    join: Annotated[bool, typer.Option("--join", help="Only the join of orders and payments, in place of the whole shop.")] = False,
    checks: Annotated[bool, typer.Option("--checks", help="Run the suites of Great Expectations too.")] = False,
    tables: Annotated[bool, typer.Option("--tables", help="Process one table at a time, and print the cost of each.")] = False,
    dagster: Annotated[bool, typer.Option("--dagster", help="Run Dagster's jobs in this process, always with the suites.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the costs of the last cycle as JSON, in the last line.")] = False,
    heap: Annotated[str, typer.Option(help="The driver's heap.")] = "3g",
    work: Work = WORK,
    cores: Cores = 2,
) -> None:
    """Measure a cycle of the shop, or of one join: the time, Spark jobs, commits, CPU and memory of ingest, advance, account and checks."""
    from benchmarks.cycle import run

    folder = work / "cycle"
    shutil.rmtree(folder, ignore_errors=True)
    last, empty = run(folder, rows, cycles, join=join, checks=checks, by_table=tables, dagster=dagster, cores=cores, heap=heap, note=print)
    for name, cost in last.tables.items() if tables else ():
        print(f"{name}: {cost}")
    if as_json:
        print(json.dumps(last.summary | {"empty": empty.summary}))


@app.command()
def memory(
    heap: Annotated[str, typer.Option(help="The driver's heap.")] = "640m",
    limit_mib: Annotated[int, typer.Option(help="The command fails if all processes together need more, in MiB.", min=1)] = 2_048,
    work: Work = WORK,
    timeout: Timeout = 900,
) -> None:
    """Measure the peak memory of the demo with a small heap: Dagster, Spark, and all checks."""
    folder = work / "memory"
    shutil.rmtree(folder, ignore_errors=True)
    tidemark = Path(sys.executable).with_name("tidemark")
    command = ["env", f"TIDEMARK_DRIVER_MEMORY={heap}", str(tidemark), "demo", "--lake", str(folder / "lake")]
    cost = run_program(command, folder / "demo.log", timeout_s=timeout)
    print(f"the demo took {cost.wall_s:.0f} s, and at most {cost.peak_mb:,.0f} MiB of resident memory with a heap of {heap}")
    if cost.peak_mb > limit_mib:
        raise SystemExit(f"that is more than {limit_mib:,} MiB")


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
