"""How costs grow: with rows, keys, bounds, the size of micro-batches and of the lake, the age of a table and the backlog."""

from collections.abc import Callable, Mapping, Sequence
from statistics import median, quantiles
from typing import Any

from benchmarks.contenders import WINDOW_MS
from benchmarks.markdown import NOT_MEASURED, number, rounded, table
from benchmarks.plan import WARM_STEPS
from benchmarks.results import Record, medians, successful
from benchmarks.steps import PARTS, SECONDS, curve, step_seconds


def hot_items_growth(records: Sequence[Record]) -> str:
    """How the cost of hot items grows, as three tables."""
    parts = {
        "Bids": ("bids_rows", "bids", lambda cell: rounded(cell["rows"])),
        "Auctions": ("bids_keys", "auctions (at most)", lambda cell: rounded(cell["keys"])),
        "Overlap": ("bids_overlap", "windows per bid", lambda cell: str(-(-WINDOW_MS // cell["options"]["slide_ms"]))),
    }
    return "\n\n".join(f"### {title}\n\n{_hot_items_table(records, *part)}" for title, part in parts.items())


def _hot_items_table(records: Sequence[Record], kind: str, header: str, label: Callable[[Mapping[str, Any]], str]) -> str:
    runs = successful(records, kind)
    lines = [
        [label(r["cell"]), number(s := r["outcome"]["seconds"]), number(s / (r["cell"]["rows"] / 1e6)), number(r["peak_mb"])] for r in runs
    ]
    return table((header, "step, s", "s/M rows", "peak, MiB"), lines)


def growth(records: Sequence[Record]) -> str:
    """How the cost of the join grows, as four tables."""
    parts = {
        "Rows (catch-up)": _rows_table,
        "Keys (catch-up)": _keys_table,
        "Bounds (ten micro-batches)": _bounds_table,
        "Rows per micro-batch": _batches_table,
    }
    return "\n\n".join(f"### {title}\n\n{part(records)}" for title, part in parts.items())


def _rows_table(records: Sequence[Record]) -> str:
    seconds, peak = medians(records, "rows", "catch_up", *SECONDS), medians(records, "rows", "catch_up", "peak_mb")
    lines = [[rounded(n), number(s), number(s / (2 * n / 1e6)), number(peak[n])] for n, s in seconds.items()]
    return table(("rows per table", "step, s", "s/M rows", "peak, MiB"), lines)


def _keys_table(records: Sequence[Record]) -> str:
    lines = [
        [
            rounded(r["cell"]["keys"]),
            rounded(r["cell"]["rows"] // r["cell"]["keys"]),
            number(r["outcome"]["seconds"]),
            rounded(r["outcome"]["found"]),
        ]
        for r in successful(records, "keys")
    ]
    return table(("keys", "rows per key and table", "step, s", "pairs"), lines)


def _bounds_table(records: Sequence[Record]) -> str:
    def line(record: Record) -> list[str]:
        steps = [sum(lap.values()) for lap in record["outcome"]["steps"][WARM_STEPS:]]
        minutes, outcome = record["cell"]["within_ms"] // 60_000, record["outcome"]
        return [f"{minutes}", number(outcome["seconds"]), number(median(steps)), rounded(outcome["found"])]

    lines = [line(r) for r in sorted(successful(records, "bounds"), key=lambda r: r["cell"]["within_ms"])]
    return table(("upper bound, min", "job, s", "micro-batch, s", "pairs"), lines)


def _batches_table(records: Sequence[Record]) -> str:
    header = ("rows per micro-batch", "step, s", *(f"{title}, s" for title in PARTS.values()), "rows/s")
    lines = [[rounded(p.rows), *map(number, (p.step_s, *p.parts_s)), f"{p.rows / p.step_s:,.0f}"] for p in curve(records)]
    return table(header, lines)


def lake_sizes(records: Sequence[Record]) -> str:
    """The time of a small micro-batch by the number of rows in the lake: its parts, and all of it relative to the smallest lake."""
    runs = sorted(successful(records, "lake"), key=lambda r: r["cell"]["first"])
    if not runs:
        return NOT_MEASURED
    parts = {**PARTS, "checks": "checks"}
    steps = [[{part: lap.get(part, 0.0) for part in parts} for lap in r["outcome"]["steps"][1 + WARM_STEPS :]] for r in runs]
    totals = [median(sum(lap.values()) for lap in laps) for laps in steps]
    lines = [
        [rounded(2 * r["cell"]["first"]), *(number(median(lap[p] for lap in laps)) for p in parts), number(s), f"{s / totals[0]:.2f}"]
        for r, laps, s in zip(runs, steps, totals, strict=True)
    ]
    return table(("rows in the lake", *(f"{title}, s" for title in parts.values()), "micro-batch, s", "relative"), lines)


def age(records: Sequence[Record]) -> str:
    """How step time and file counts change over many small steps."""
    runs = successful(records, "age")
    if not runs:
        return NOT_MEASURED
    outcome, cell = runs[-1]["outcome"], runs[-1]["cell"]
    seconds = step_seconds(runs[-1])
    group_size = max(1, -(-len(seconds) // 10))
    lines = [_age_line(seconds[n : n + group_size], n, outcome["files"]) for n in range(0, len(seconds), group_size)]
    names = [name for name in (outcome["files"][-1] if outcome["files"] else {}) if name != "step"]
    size = rounded(round(2 * (cell["rows"] - cell["first"]) / (cell["batches"] - 1)))
    header = ("steps", "median, s", "90th percentile, s", *(f"files in {name}" for name in names))
    return (
        f"{rounded(len(seconds))} micro-batches of {size} rows, after one of {rounded(2 * cell['first'])} rows.\n\n{table(header, lines)}"
    )


def _age_line(seconds: Sequence[float], begin: int, files: Sequence[Mapping[str, int]]) -> list[str]:
    worst = quantiles(seconds, n=10, method="inclusive")[-1] if len(seconds) > 1 else seconds[0]
    counted = [f for f in files if f["step"] <= begin + len(seconds) + 1]
    counts = [str(count) for name, count in (counted[-1] if counted else {}).items() if name != "step"]
    return [f"{begin + 1} to {begin + len(seconds)}", number(median(seconds)), number(worst), *counts]


def backlog(records: Sequence[Record]) -> str:
    """Peak memory by the size of the backlog, with one heap."""
    lines = [_backlog_line(r) for r in sorted(successful(records, "backlog"), key=lambda r: r["cell"]["rows"])]
    if not lines:
        return NOT_MEASURED
    return table(("rows, both tables", "heap", "`max_step`", "steps", "advance, s", "s/M rows", "ingest, s", "peak, MiB"), lines)


def _backlog_line(record: Record) -> list[str]:
    cell, outcome, rows = record["cell"], record["outcome"], 2 * record["cell"]["rows"]
    cost = [outcome["seconds"], outcome["seconds"] / (rows / 1e6), outcome["ingest_s"], record["peak_mb"]]
    return [rounded(rows), cell["heap"], rounded(cell["options"]["max_step"]), str(outcome["steps"]), *map(number, cost)]
