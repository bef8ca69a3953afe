"""A model of windows in plain Python, which tries every start of a window."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from operators import Cumulative, Sliding, Tumbling
from operators.timing import duration_ms
from operators.windows import Aligned

Span = tuple[int, int]
WINDOWS: dict[str, Aligned] = {
    "tumbling": Tumbling(size=1_000),
    "tumbling, shifted": Tumbling(size=1_000, offset=250),
    "tumbling, shifted back": Tumbling(size="1 s", offset="-250 ms"),
    "tumbling, shifted by more than its size": Tumbling(size=1_000, offset=12_345),
    "tumbling, 1 ms": Tumbling(size=1),
    "a day at another meridian": Tumbling(size="1 day", offset=timedelta(hours=-8)),
    "sliding": Sliding(size=10_000, slide=2_000),
    "sliding, shifted": Sliding(size=10_000, slide=2_000, offset=-700),
    "sliding, no whole multiple": Sliding(size=1_000, slide=300),
    "sliding, coprime": Sliding(size=7, slide=5, offset=3),
    "sliding, as long as its slide": Sliding(size=1_000, slide=1_000),
    "sliding, gaps": Sliding(size=300, slide=1_000, offset=100),
    "sliding, gaps without a common measure": Sliding(size=7, slide=11),
    "cumulative": Cumulative(size=1_000, step=250),
    "cumulative, shifted": Cumulative(size=900, step=300, offset=-50),
    "cumulative, one step": Cumulative(size=1_000, step=1_000),
}
"""Windows of every kind: shifted, with gaps, overlapping, and of one pane."""


def windows_at(window: Aligned, t: int) -> list[Span]:
    """The windows that contain a time, ordered by start and end."""
    return sorted(span for span in _near(window, t) if span[0] <= t < span[1])


def _near(window: Aligned, t: int) -> Iterator[Span]:
    size, offset = duration_ms(window.size, "size"), duration_ms(window.offset, "offset")
    every = {Tumbling: size, Cumulative: size}.get(type(window)) or duration_ms(window.slide, "slide")  # pyright: ignore[reportAttributeAccessIssue]
    around = (t - offset) // every
    for n in range(around - size // every - 2, around + 2):
        start = offset + n * every
        if isinstance(window, Cumulative):
            step = duration_ms(window.step, "step")
            yield from ((start, start + length) for length in range(step, size + 1, step))
        else:
            yield start, start + size


@dataclass(frozen=True)
class TimedRow:
    """A row: its key, its time, its value, and the watermark before its batch (None: the row is not late)."""

    k: str | None
    t: int
    v: int | None
    watermark: int | None = None


def open_windows(window: Aligned, row: TimedRow, lateness: int = 0) -> list[Span]:
    """The windows of a row that are open when it arrives."""
    return [(start, end) for start, end in windows_at(window, row.t) if row.watermark is None or end - 1 + lateness > row.watermark]


def contents(window: Aligned, rows: Iterable[TimedRow], lateness: int = 0) -> Mapping[tuple[str | None, Span], list[int | None]]:
    """The values of each key and window."""
    found: dict[tuple[str | None, Span], list[int | None]] = {}
    for row in rows:
        for span in open_windows(window, row, lateness):
            found.setdefault((row.k, span), []).append(row.v)
    return found


def aggregated(window: Aligned, rows: Iterable[TimedRow], lateness: int = 0) -> dict[tuple[str | None, Span], tuple[Any, ...]]:
    """The number of rows, and the sum, min, max and distinct count of the values that are not null."""
    results: dict[tuple[str | None, Span], tuple[Any, ...]] = {}
    for where, values in contents(window, rows, lateness).items():
        known = [v for v in values if v is not None]
        results[where] = (len(values), sum(known) if known else None, min(known, default=None), max(known, default=None), len({*known}))
    return results


def two_largest(rows: Sequence[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """The key, the window, the rank and the total of the two largest totals of each window; ties by key, null first.

    Args:
        rows: the key, the start and the end of the window, the number of rows, and the total.
    """
    found = list[tuple[Any, ...]]()
    for span in {r[1:3] for r in rows}:
        inside = sorted((r for r in rows if r[1:3] == span), key=lambda r: (-r[4], r[0] is not None, r[0] or ""))
        found += [(r[0], *span, n, r[4]) for n, r in enumerate(inside[:2], 1)]
    return sorted(found, key=repr)
