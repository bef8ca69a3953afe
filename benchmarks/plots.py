"""Plots of the results as SVG files; equal results give equal files."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import matplotlib as mpl

mpl.use("svg")

from matplotlib import pyplot as plt
from matplotlib.axes import Axes

from benchmarks.contenders import HOT_ITEMS, JOIN
from benchmarks.results import Record, medians, slope, successful
from benchmarks.steps import SECONDS, curve, step_seconds

OURS, OTHERS = "#0b6e99", "#b0b7bf"
STYLE: dict[Any, Any] = {
    "svg.hashsalt": "tidemark",
    "svg.fonttype": "none",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
}


def draw(records: Sequence[Record], folder: Path) -> dict[str, Path]:
    """Draw the plots that have results; returns their files by title."""
    folder.mkdir(parents=True, exist_ok=True)
    drawable = {title: (name, plot) for title, (name, kinds, plot) in PLOTS.items() if any(successful(records, k) for k in kinds)}
    return {title: plot(records, folder / f"bench-{name}.svg") for title, (name, plot) in drawable.items()}


@contextmanager
def figure(path: Path, width: float, height: float, columns: int, rows: int = 1) -> Iterator[list[Axes]]:
    """A figure with axes side by side, or below each other, which is saved when the block ends."""
    with mpl.rc_context(STYLE):
        drawn, grid = plt.subplots(rows, columns, figsize=(width, height), squeeze=False)
        yield [*grid.flat]
        drawn.tight_layout()
        drawn.savefig(path, metadata={"Date": None, "Creator": None})
        plt.close(drawn)


def _join(records: Sequence[Record], path: Path) -> Path:
    """Slopes of the payment-order join."""
    return _slopes([(c.title, slope(medians(records, "join", c.name, *SECONDS))) for c in JOIN], path)


def _hot_items(records: Sequence[Record], path: Path) -> Path:
    """Slopes of hot items."""
    return _slopes([(c.title, slope(medians(records, "hot_items", c.name, *SECONDS), tables=1)) for c in HOT_ITEMS], path)


def _slopes(slopes: Sequence[tuple[str, float | None]], path: Path) -> Path:
    """Slopes with the best on top. The scale is logarithmic, because slopes span two orders of magnitude."""
    bars = sorted(((title, s) for title, s in slopes if s is not None and s > 0), key=lambda bar: -bar[1])
    with figure(path, 8, 0.6 + 0.36 * len(bars), 1) as (axes,):
        colors = [OURS if title.startswith("Tidemark") else OTHERS for title, _ in bars]
        drawn = axes.barh([title for title, _ in bars], [s for _, s in bars], color=colors)
        axes.bar_label(drawn, fmt="%.2f", padding=3)
        axes.set_xscale("log")
        axes.margins(x=0.15)
        axes.set_xlabel("seconds per additional million rows read (logarithmic)")
    return path


def _growth(records: Sequence[Record], path: Path) -> Path:
    with figure(path, 9, 2.8, 3) as (by_rows, by_keys, by_bounds):
        seconds = medians(records, "rows", "catch_up", *SECONDS)
        _draw_line(by_rows, [n / 1e6 for n in seconds], list(seconds.values()), "million rows per table", "catch-up, s")
        keys = [(r["cell"]["rows"] / r["cell"]["keys"], r["outcome"]["seconds"]) for r in successful(records, "keys")]
        _draw_line(by_keys, *_sorted_columns(keys), "rows per key and table", "catch-up, s")
        by_keys.set_xscale("log")
        bounds = [(r["cell"]["within_ms"] / 60_000, r["outcome"]["seconds"]) for r in successful(records, "bounds")]
        _draw_line(by_bounds, *_sorted_columns(bounds), "upper bound, min", "ten micro-batches, s")
    return path


def _batch(records: Sequence[Record], path: Path) -> Path:
    """Latency against throughput; each point is one size of micro-batches."""
    points = curve(records)
    with figure(path, 8, 3, 2) as (by_size, by_rate):
        _draw_line(by_size, [p.rows for p in points], [p.step_s for p in points], "rows per micro-batch", "step, s")
        by_size.set_xscale("log")
        _draw_line(by_rate, [p.rows / p.step_s for p in points], [p.step_s for p in points], "rows/s", "step, s")
        by_rate.set_xscale("log")
        for point in points:
            by_rate.annotate(f"{point.rows:,}", (point.rows / point.step_s, point.step_s), (4, -9), textcoords="offset points", fontsize=7)
    return path


def _age(records: Sequence[Record], path: Path) -> Path:
    """Step times, each point the median of one hundredth of the steps, and numbers of files."""
    record = successful(records, "age")[-1]
    seconds, files = step_seconds(record), record["outcome"]["files"]
    bounds = range(0, len(seconds) + 1, max(1, len(seconds) // 100))
    with figure(path, 8, 3, 2) as (times, counts):
        _draw_line(times, [b for _, b in pairwise(bounds)], [median(seconds[a:b]) for a, b in pairwise(bounds)], "step", "step, s")
        for names, numbers in _equal_lines(files).items():
            counts.plot([f["step"] for f in files], numbers, label=names)
        counts.set(xlabel="step", ylabel="files", ylim=(0, None))
        counts.legend(frameon=False, loc="lower left", bbox_to_anchor=(0, 1))  # above the axes: the lines fill them
    return path


def _equal_lines(files: Sequence[Record]) -> dict[str, list[int]]:
    """The numbers of files of each table, by its name. Tables with equal numbers share a line: else the last one drawn hides the others."""
    names: dict[tuple[int, ...], list[str]] = {}
    for name in [n for n in files[-1] if n != "step"] if files else []:
        names.setdefault(tuple(f.get(name, 0) for f in files), []).append(name)
    return {", ".join(equal): list(numbers) for numbers, equal in names.items()}


def _sorted_columns(points: Sequence[tuple[float, float]]) -> tuple[list[float], list[float]]:
    ordered = sorted(points)
    return [x for x, _ in ordered], [y for _, y in ordered]


def _draw_line(axes: Axes, x: Sequence[float], y: Sequence[float], x_label: str, y_label: str) -> None:
    axes.plot(x, y, marker="o", markersize=3, color=OURS)
    # matplotlib's own margin is a share of the range of y, so a line that is nearly level would lose half of its markers
    axes.set(xlabel=x_label, ylabel=y_label, ylim=(0, 1.1 * max(y, default=1)))


PLOTS = {
    "Slopes": ("join", ("join",), _join),
    "Hot items": ("hot-items", ("hot_items",), _hot_items),
    "Growth": ("growth", ("rows", "keys", "bounds"), _growth),
    "Latency and throughput": ("batch", ("batch",), _batch),
    "Age": ("age", ("age",), _age),
}
