"""The plots: every point is inside its axes, and no legend is over a line."""

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("matplotlib", reason="the plots need the dependency group `bench`")

from matplotlib import pyplot as plt

from benchmarks import plots
from tests.benchmarks.test_report import STEPS, record

FILES = [{"step": n, "ledger": n, "orders": n, "results": 64 - n} for n in range(0, 65, 8)]
SIZES = [(1_000, 3.41), (10_000, 3.67), (100_000, 3.64)]


def _batch(rows: int, seconds: float) -> Any:
    steps = [{"ingest": seconds} for _ in STEPS]
    return record("batch", "ten", 1_000_000 + rows * (len(STEPS) - 1) // 2, 30.0, {"steps": steps}, batches=len(STEPS), first=1_000_000)


@pytest.fixture
def axes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Draws records; returns the axes of the figure, as they were saved."""
    closed: list[Any] = []
    monkeypatch.setattr(plots.plt, "close", closed.append)
    yield lambda records: [plots.draw(records, tmp_path), closed[-1].axes][-1]
    monkeypatch.undo()
    for figure in closed:
        plt.close(figure)


def test_a_marker_of_a_line_that_is_nearly_level_is_inside_the_axes(axes) -> None:
    for drawn in axes([_batch(*size) for size in SIZES]):
        low, high = drawn.get_window_extent().intervaly
        for line in drawn.lines:
            radius = line.get_markersize() / 2 * drawn.figure.dpi / 72
            ends = [drawn.transData.transform((x, y))[1] for x, y in line.get_xydata()]
            assert low + radius <= min(ends)
            assert max(ends) <= high - radius


def test_the_legend_of_the_files_is_outside_the_axes_and_names_equal_lines_together(axes) -> None:
    counts = axes([record("age", "ten", 1_011_500, 30.0, {"steps": STEPS, "files": FILES}, batches=24, first=1_000_000)])[1]
    legend = counts.get_legend()
    assert [text.get_text() for text in legend.get_texts()] == ["ledger, orders", "results"]
    assert not legend.get_window_extent().overlaps(counts.get_window_extent())
    assert counts.figure.bbox.containsx(legend.get_window_extent().x1)
    assert counts.figure.bbox.containsy(legend.get_window_extent().y1)
