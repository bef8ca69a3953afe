"""The plan of runs. Each cell (contender, size, turn) runs once. Correct results and failures are recorded; wrong results are an error."""

import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks import results
from benchmarks.contenders import HOT_ITEMS, JOIN, SLIDE_MS, TOP, TOP_BIDS, WINDOW_MS, WITHIN_MS, Contender, Job
from benchmarks.contenders.flink import is_set_up
from benchmarks.data import JITTER_MS, LONGEST_DELAY_MS, Shape, prepare, true_hot_items, true_pairs, true_top_bids
from benchmarks.measure import Measured, RunFailed, contender_command, run
from platform_defs.settings import PROJECT

CATCH_UP, TEN_BATCHES = JOIN[0], JOIN[1]
BACKLOG = Contender(name="backlog", title="Tidemark, a backlog in bounded steps", module="backlog")
WARM_STEPS = 3


class WrongResults(AssertionError):
    """A contender's results are wrong."""

    @classmethod
    def of(cls, cell: "Cell", found: Mapping[str, Any], true: Mapping[str, int]) -> "WrongResults":
        """Report a contender with its results and the true ones."""
        answer = {key: found[key] for key in true if key in found}
        contender = f"{cell.contender.name} at {cell.shape.rows:,} rows per table"
        return cls(f"{contender} returned {answer}, but {dict(true)} is correct. Its time is not recorded")


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One run of one contender.

    Args:
        kind: the measurement that the run belongs to.
        contender: the contender.
        shape: the data.
        turn: the number of the run, from 0.
        batches: number of micro-batches.
        first: rows of each table in the first micro-batch; 0 for as many as in the others.
        within_ms: the join's interval.
        heap: the JVM's heap.
        options: options in addition to those of the contender.
    """

    kind: str
    contender: Contender
    shape: Shape
    turn: int = 0
    batches: int = 10
    first: int = 0
    within_ms: int = WITHIN_MS
    heap: str = "4g"
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The name of the cell's log file."""
        options = [f"{name}={value}" for name, value in self.options.items()]
        parts = self.kind, self.contender.name, self.shape.name, self.batches, f"{self.within_ms}ms", *options, self.turn
        return "-".join(map(str, parts))

    def true_outcome(self, data: Path) -> dict[str, int]:
        """The true results: `found`, and `checksum` where the workload has one."""
        if self.shape.data == "payments":
            return {"found": true_pairs(data, self.within_ms)}
        options = {**self.contender.options, **self.options}
        if self.contender.workload == "top_bids":
            return true_top_bids(data, TOP, ranked=options["with_rank"])
        return true_hot_items(data, WINDOW_MS, options.get("slide_ms", SLIDE_MS), TOP, options.get("open_ms"))

    @property
    def identity(self) -> dict[str, Any]:
        """The cell as a JSON object, which identifies it in the recorded results."""
        run_fields = {k: getattr(self, k) for k in ("turn", "batches", "first", "within_ms", "heap")}
        return {"kind": self.kind, "contender": self.contender.name, **asdict(self.shape), **run_fields, "options": self.options}


@dataclass(frozen=True, kw_only=True)
class Bench:
    """Runs cells.

    Args:
        work: the folder for data, temporary files and results.
        flink: the folder of the Flink benchmark.
        cores: cores that each contender uses.
        timeout_s: the time limit of one run.
        again: whether to repeat runs that already have a result.
    """

    work: Path
    flink: Path
    cores: int = 2
    timeout_s: float = 3_600
    again: bool = False

    @property
    def results(self) -> Path:
        """The file of recorded results."""
        return self.work / "results.jsonl"

    def run(self, cells: Sequence[Cell]) -> list[str]:
        """Run the cells that have no result yet; returns the failures.

        Raises:
            WrongResults: a contender's results are wrong.
        """
        recorded = [] if self.again else [r["cell"] for r in results.read(self.results) if "failed" not in r]
        pending = [cell for cell in cells if cell.identity not in recorded]
        failures: list[str] = []
        for n, cell in enumerate(pending, 1):
            record = self._record(cell)
            results.append(self.results, record)
            print(f"[{n}/{len(pending)}] {_line(cell, record)}", flush=True)
            failures += [f"{cell.contender.name}: {record['failed']}"] if "failed" in record else []
        return failures

    def _record(self, cell: Cell) -> dict[str, Any]:
        header = {"kind": cell.kind, "cell": cell.identity, "at": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}", "machine": results.machine()}
        data = prepare(cell.shape, self.work / "data", cell.batches, cell.first)
        true = cell.true_outcome(data)
        try:
            measured = asdict(self._measured(cell, data))
        except RunFailed as failure:
            return {**header, "failed": str(failure)}
        compared = _compared_keys(cell, true)
        if any(measured["outcome"].get(key) != true[key] for key in compared):
            raise WrongResults.of(cell, measured["outcome"], true)
        return {**header, **measured}

    def _measured(self, cell: Cell, data: Path) -> Measured:
        scratch, log = self.work / "scratch", self.work / "logs" / f"{cell.name}.log"
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir(parents=True)
        options = {**cell.contender.options, **cell.options}
        job = Job(
            data=data,
            scratch=scratch,
            rows=cell.shape.rows,
            batches=cell.batches,
            first=cell.first,
            within_ms=cell.within_ms,
            heap=cell.heap,
            cores=self.cores,
            flink=self.flink,
            workload=cell.contender.workload or cell.shape.data,
            options=options,
        )
        try:
            return run(contender_command(cell.contender.module, job), log, timeout_s=self.timeout_s, cwd=PROJECT)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)


def _compared_keys(cell: Cell, true: Mapping[str, int]) -> list[str]:
    """The results to compare with the true ones. Flink prints at most a number: of its results, or of top bids the number of changes."""
    if cell.contender.module != "flink":
        return [*true]
    return [] if cell.contender.workload == "top_bids" else ["found"]


def _line(cell: Cell, record: dict[str, Any]) -> str:
    label = f"{cell.kind} {cell.contender.name} {cell.shape.name} x{cell.batches}"
    if "failed" in record:
        return f"{label}: FAILED {record['failed']}"
    cost = f"{record['outcome']['seconds']:.1f} s of {record['wall_s']:.1f} s, {record['cpu_s']:.0f} s CPU, {record['peak_mb']:,} MiB"
    found = f"{record['outcome']['found']:,}" if "found" in record["outcome"] else "uncounted"
    return f"{label}: {cost}, {found} results, load {record['load']}, others' CPU {record['other_cpu_s']} s"


def join(sizes: Sequence[int], slow_sizes: Sequence[int], runs: int, only: Iterable[str], flink: Path) -> Iterator[Cell]:
    """The contenders in turn: A B C, A B C. Slow ones have one turn and their own sizes."""
    selected = [c for c in JOIN if (c.name in only if only else not c.optional)]
    runnable = [c for c in selected if c.module != "flink" or is_set_up(flink)]
    for turn in range(runs):
        for contender in runnable:
            for rows in slow_sizes if contender.slow else sizes:
                if turn == 0 or not contender.slow:
                    yield Cell(kind="join", contender=contender, shape=Shape(rows), turn=turn)


def hot_items(sizes: Sequence[int], runs: int, only: Iterable[str], flink: Path) -> Iterator[Cell]:
    """The contenders of hot items, in turn."""
    return _bid_cells("hot_items", HOT_ITEMS, sizes, runs, only, flink)


def top_bids(sizes: Sequence[int], runs: int, only: Iterable[str], flink: Path) -> Iterator[Cell]:
    """The contenders of top bids, in turn."""
    return _bid_cells("top_bids", TOP_BIDS, sizes, runs, only, flink)


def _bid_cells(
    kind: str, contenders: Sequence[Contender], sizes: Sequence[int], runs: int, only: Iterable[str], flink: Path
) -> Iterator[Cell]:
    """Contenders in turn; slow ones have one turn."""
    runnable = [c for c in contenders if (c.name in only or not only) and (c.module != "flink" or is_set_up(flink))]
    for turn in range(runs):
        for contender in runnable:
            for rows in sizes if turn == 0 or not contender.slow else ():
                yield Cell(kind=kind, contender=contender, shape=Shape(rows, data="bids"), turn=turn)


def hot_items_growth(sizes: Iterable[int], size: int, auctions: Iterable[int], slides_ms: Iterable[int]) -> Iterator[Cell]:
    """Catch-ups with more and more bids, with fewer and fewer auctions, and with more and more overlap of windows."""
    step = HOT_ITEMS[0]
    for rows in sizes:
        yield Cell(kind="bids_rows", contender=step, shape=Shape(rows, data="bids"))
    for keys in auctions:
        yield Cell(kind="bids_keys", contender=step, shape=Shape(size, keys, data="bids"))
    for slide_ms in slides_ms:
        yield Cell(kind="bids_overlap", contender=step, shape=Shape(size, data="bids"), options={"slide_ms": slide_ms})


def rows(sizes: Iterable[int]) -> Iterator[Cell]:
    """Catch-ups with more and more rows."""
    for size in sizes:
        yield Cell(kind="rows", contender=CATCH_UP, shape=Shape(size))


def keys(size: int, per_key: Iterable[int]) -> Iterator[Cell]:
    """Catch-ups with equal numbers of rows and pairs and fewer and fewer keys. A key is reused only long after its last payment."""
    for repeats in per_key:
        count = max(1, size // repeats)
        step = 1 if repeats == 1 else -(-2 * LONGEST_DELAY_MS // count)
        yield Cell(kind="keys", contender=CATCH_UP, shape=Shape(size, count, step), options={"repeated_keys": True})


def bounds(size: int, minutes: Iterable[int]) -> Iterator[Cell]:
    """Ten micro-batches with longer and longer intervals: a step reads again all rows within the lookback."""
    span_ms = 4_000_000
    for minute in minutes:
        yield Cell(kind="bounds", contender=TEN_BATCHES, shape=Shape(size, 0, max(1, span_ms // size)), within_ms=minute * 60_000)


def batch_sizes(sizes: Iterable[int], base: int) -> Iterator[Cell]:
    """Larger and larger micro-batches (`sizes` counts both tables), on a log that already fills the join's lookback."""
    for size in sizes:
        steps = 5 if size >= 300_000 else 10 if size >= 100_000 else 20
        small = WARM_STEPS + steps + tail_steps(size)
        yield Cell(kind="batch", contender=TEN_BATCHES, shape=Shape(base + small * size // 2), batches=1 + small, first=base)


def lake_sizes(sizes: Iterable[int], step_rows: int = 1_000) -> Iterator[Cell]:
    """Small micro-batches on larger and larger lakes (`sizes` counts both tables), each day with equally many rows, and with all checks."""
    batches = 1 + WARM_STEPS + 20
    for size in sizes:
        shape = Shape((size + (batches - 1) * step_rows) // 2, 0, step_ms=3_000)
        yield Cell(kind="lake", contender=TEN_BATCHES, shape=shape, batches=batches, first=size // 2, options={"checks": True})


def tail_steps(size: int) -> int:
    """The number of last micro-batches without newer event times; their steps finalize nothing."""
    return 2 * JITTER_MS // size


def age(steps: int, step_rows: int, base: int) -> Iterator[Cell]:
    """Many small micro-batches, on a log that already fills the join's lookback."""
    shape = Shape(base + steps * step_rows // 2, 0, -(-(WITHIN_MS + LONGEST_DELAY_MS) // base))
    options = {"count_files_every": max(1, steps // 40)}
    yield Cell(kind="age", contender=TEN_BATCHES, shape=shape, batches=1 + steps, first=base, options=options)


def backlog(sizes: Iterable[int], heap: str, max_step: int) -> Iterator[Cell]:
    """Larger and larger backlogs (`sizes` counts both tables) with one small heap."""
    for size in sizes:
        batches = max(1, size // max_step)
        options = {"max_step": max_step}
        yield Cell(kind="backlog", contender=BACKLOG, shape=Shape(size // 2), batches=batches, heap=heap, options=options)
