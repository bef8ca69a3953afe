"""`python -m benchmarks`: run the benchmarks, and write the results into docs/benchmarks.md."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated

import typer

from benchmarks import plan
from benchmarks.contenders import HOT_ITEMS, JOIN, TOP_BIDS, Contender
from benchmarks.contenders.flink import is_set_up
from benchmarks.plan import Bench, Cell
from platform_defs.settings import HOME, PROJECT

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, help=__doc__)

Work = Annotated[Path, typer.Option(help="Folder for the data, the lakes and the results.")]
Flink = Annotated[Path, typer.Option(help="The Flink peer's folder; it is left out where it is not set up.")]
Cores = Annotated[int, typer.Option(help="Cores that each contender uses.", min=1)]
Timeout = Annotated[float, typer.Option(help="Seconds one run may take.", min=1)]
Again = Annotated[bool, typer.Option("--again", help="Run what has a result already, too; the newest counts.")]
Runs = Annotated[int, typer.Option(help="Runs of each contender and size; the median counts.", min=1)]
Scale = Annotated[float, typer.Option(help="Scales every number of rows.", min=0.0001)]
WORK, FLINK = HOME / "bench", PROJECT.parent / "shared" / "peers" / "flink"
GROWTH = ["rows", "keys", "bounds", "batch"]
SIZES, SLOW_SIZES, BACKLOGS = [1_000_000, 5_000_000], [200_000, 1_000_000], [10_000_000, 40_000_000]
ALL: list[str] = []


@app.command()
def join(
    sizes: Annotated[list[int], typer.Option(help="Rows a table; the slope is between the smallest and the largest.")] = SIZES,
    slow_sizes: Annotated[list[int], typer.Option(help="The same for Spark's stream-stream join, which runs once.")] = SLOW_SIZES,
    variant_rows: Annotated[int, typer.Option(help="Rows a table when parts are left out or put in; 0 to leave that out.")] = 1_000_000,
    variant_runs: Runs = 1,
    runs: Runs = 3,
    only: Annotated[list[str], typer.Option(help=f"Contenders: {', '.join(c.name for c in JOIN)}.")] = ALL,
    flink_rocksdb: Annotated[bool, typer.Option(help="Run Flink with RocksDB, checkpoints and files too.")] = False,
    work: Work = WORK,
    flink: Flink = FLINK,
    cores: Cores = 2,
    timeout: Timeout = 3_600,
    again: Again = False,
) -> None:
    """The payment-order join, all contenders in turn; a run with a result is not repeated."""
    _check(only, JOIN, flink)
    wanted = [*only, *(["flink_rocksdb"] if flink_rocksdb else [])]
    if flink_rocksdb and not only:
        wanted = [c.name for c in JOIN]
    cells = [*plan.join(sizes, slow_sizes, runs, wanted, flink)]
    cells += plan.variants(variant_rows, variant_runs) if variant_rows and not only else []
    _run(Bench(work=work, flink=flink, cores=cores, timeout_s=timeout, again=again), cells)


@app.command()
def hot_items(
    sizes: Annotated[list[int], typer.Option(help="Bids; the slope is between the smallest and the largest.")] = SIZES,
    runs: Runs = 3,
    only: Annotated[list[str], typer.Option(help=f"Contenders: {', '.join(c.name for c in HOT_ITEMS)}.")] = ALL,
    growth: Annotated[bool, typer.Option(help="How cost grows too: with rows, auctions and overlap.")] = True,
    work: Work = WORK,
    flink: Flink = FLINK,
    cores: Cores = 2,
    timeout: Timeout = 3_600,
    again: Again = False,
) -> None:
    """The ten auctions of each sliding window with the most bids, all contenders in turn."""
    _check(only, HOT_ITEMS, flink)
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
    only: Annotated[list[str], typer.Option(help=f"Contenders: {', '.join(c.name for c in TOP_BIDS)}.")] = ALL,
    work: Work = WORK,
    flink: Flink = FLINK,
    cores: Cores = 2,
    timeout: Timeout = 3_600,
    again: Again = False,
) -> None:
    """The ten highest bids of each auction, with ranks and without, all contenders in turn."""
    _check(only, TOP_BIDS, flink)
    _run(Bench(work=work, flink=flink, cores=cores, timeout_s=timeout, again=again), plan.top_bids(sizes, runs, only, flink))


@app.command()
def growth(
    only: Annotated[list[str], typer.Option(help=f"Of {', '.join(GROWTH)}.")] = GROWTH,
    scale: Scale = 1.0,
    work: Work = WORK,
    cores: Cores = 2,
    timeout: Timeout = 3_600,
    again: Again = False,
) -> None:
    """How cost grows: with rows, keys, bounds, and rows a micro-batch."""
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
    steps: Annotated[int, typer.Option(help="Small micro-batches.", min=1)] = 1_000,
    step_rows: Annotated[int, typer.Option(help="Rows of each, both tables.", min=2)] = 1_000,
    base: Annotated[int, typer.Option(help="Rows a table that are there before.", min=1)] = 100_000,
    work: Work = WORK,
    cores: Cores = 2,
    timeout: Timeout = 4 * 3_600,
    again: Again = False,
) -> None:
    """How a lake ages: many small steps, their times and the numbers of files."""
    _run(Bench(work=work, flink=FLINK, cores=cores, timeout_s=timeout, again=again), plan.age(steps, step_rows, base))


@app.command()
def backlog(
    sizes: Annotated[list[int], typer.Option(help="Rows, both tables.")] = BACKLOGS,
    heap: Annotated[str, typer.Option(help="The driver's heap.")] = "1g",
    max_step: Annotated[int, typer.Option(help="Rows a step may read, about.", min=2)] = 2_000_000,
    work: Work = WORK,
    cores: Cores = 2,
    timeout: Timeout = 4 * 3_600,
    again: Again = False,
) -> None:
    """Whether memory stays bounded on a backlog far larger than the heap."""
    _run(Bench(work=work, flink=FLINK, cores=cores, timeout_s=timeout, again=again), plan.backlog(sizes, heap, max_step))


@app.command()
def ledger_age(
    batches: Annotated[int, typer.Option(help="Batches of the ledger, of five sources each.", min=64)] = 200_000, work: Work = WORK
) -> None:
    """The cost of opening, querying and appending to a long ledger. Needs no Spark."""
    from benchmarks.ledger_age import run

    for name, cost in run(work, batches).items():
        print(f"{name}: {cost}{'' if name.endswith('MB') else ' s CPU'}")


@app.command()
def report(
    work: Work = WORK, docs: Annotated[Path, typer.Option(help="The folder of benchmarks.md and of images/.")] = PROJECT / "docs"
) -> None:
    """Write the results into benchmarks.md and its plots."""
    from benchmarks.report import write

    for path in write(work / "results.jsonl", docs):
        print(path)


def _check(only: Iterable[str], contenders: Sequence[Contender], flink: Path) -> None:
    """Refuse an unknown contender, and report when Flink is left out."""
    names = [c.name for c in contenders]
    unknown = sorted(set(only) - set(names))
    if unknown:
        raise typer.BadParameter(f"{', '.join(unknown)} is no contender; they are {', '.join(names)}")
    if not is_set_up(flink):
        print(f"Flink is left out: there is no {flink}/java/bclasses. Run setup.sh in a copy of the peer's folder, and name it by --flink")


def _run(bench: Bench, cells: Iterable[Cell]) -> None:
    failed = bench.run([*cells])
    print(f"results: {bench.results}")
    if failed:
        raise SystemExit("\n".join(["failed:", *failed]))


if __name__ == "__main__":
    app()
