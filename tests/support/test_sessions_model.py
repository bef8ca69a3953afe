"""The sessions model: a table advanced step by step equals a backfill with the same lateness decisions; final sessions do not change."""

import random
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from tests.support.example_counts import example_count
from tests.support.sessions_model import Row, SessionsModel, sessions
from tests.support.windows_model import Span

Batch = tuple[list[Row], int | None]
"""The rows of a batch, and the watermark before it."""

UNCUT = 1_000_000


@dataclass
class Table:
    """A table of one key's sessions, computed as the engine does: from the log and the decisions, by closed ranges and corrections."""

    model: SessionsModel
    log: list[Row] = field(default_factory=list)
    results: dict[Span, list[Row]] = field(default_factory=dict)
    closed_to: int | None = None

    def backfill(self) -> dict[Span, list[Row]]:
        """The sessions of the log without the late rows; rows of a recorded session stay in it."""
        recorded = self.model.recorded
        free = [r for r in self.log if r not in self.model.late and not any(r in part for part in recorded.values())]
        return recorded | sessions(free, self.model.gap, self.model.longest)

    def step(self, rows: list[Row]) -> None:
        """Correct the sessions that rows within the allowed lateness may change."""
        self.log += rows
        times = [t for t, _ in set(rows) - {*self.model.late} if self.closed_to is not None and t <= self.closed_to]
        if self.model.lateness and times:
            lookback = 2 * self.model.longest + self.model.gap
            self._replace(min(times) - 1, min(max(times) + lookback + 1, self.closed_to or 0))

    def close(self, upto: int | None) -> None:
        """Add the sessions that have ended."""
        if upto is not None and (self.closed_to is None or upto > self.closed_to):
            self._replace(self.closed_to, upto)
            self.closed_to = upto

    def finalized(self, watermark: int | None) -> dict[Span, list[Row]]:
        """The sessions that accept no more rows."""
        return {} if watermark is None else {s: part for s, part in self.results.items() if s[1] + self.model.lateness <= watermark}

    def _replace(self, after: int | None, upto: int) -> None:
        def within(end: int) -> bool:
            return (after is None or end > after) and end <= upto

        others = {s: part for s, part in self.results.items() if not within(s[1])}
        self.results = others | {s: sorted(part) for s, part in self.backfill().items() if within(s[1])}


def _stream(rng: random.Random, longest: int) -> Iterator[Batch]:
    """A few batches of rows that are close to each other; many are behind the newest row, some behind the watermark."""
    newest, mark, ids = rng.randrange(-100, 100), None, iter(range(1_000))
    bound = rng.choice([0, 1, 5, 20])
    for _ in range(rng.randrange(2, 9)):
        rows: list[Row] = []
        for _ in range(rng.choice([1, 1, 2, 4, 9])):
            newest += rng.choice([0, 0, 1, 4, 7, 9, 10, 11])
            rows.append((newest - rng.choice([0, 0, 0, 1, 5, 9, 12, 20, rng.randrange(longest + 20)]), next(ids)))
        yield rows, mark
        if rng.random() < 0.8:
            mark = newest - bound - 1


def _run(seed: int) -> Table:
    """Run a stream to its end, and check after each batch that finalized sessions are unchanged."""
    rng = random.Random(seed)
    gap = rng.choice([1, 5, 10])
    longest = gap + rng.choice([0, 1, 7, 20, 53])
    table = Table(SessionsModel(gap, longest, rng.choice([0, 0, 3, 30])))
    for rows, mark in _stream(rng, longest):
        table.close(mark)
        finalized = table.finalized(mark)
        table.model.add_batch(rows, mark)
        table.step(rows)
        assert table.finalized(mark) == finalized, f"seed {seed}: a finalized session has changed at {mark}"
    table.close(10_000)
    return table


@pytest.mark.parametrize("first", range(0, 10_000, 1_000))
def test_sessions_in_steps_equal_a_backfill_and_finalized_ones_do_not_change(first: int) -> None:
    for seed in range(first, first + example_count(1_000)):
        table = _run(seed)
        assert table.results == {s: sorted(part) for s, part in table.backfill().items()}, f"seed {seed}"


def test_without_a_maximum_length_sessions_and_late_rows_equal_flinks() -> None:
    late = 0
    seeds = example_count(2_000)
    for seed in range(seeds):
        rng = random.Random(seed)
        gap, lateness = rng.choice([1, 5, 10]), rng.choice([0, 3, 30])
        model = SessionsModel(gap, UNCUT, lateness)
        open_rows, closed_sessions, late_rows = list[Row](), list[list[Row]](), list[Row]()
        for rows, mark in _stream(rng, 60):
            model.add_batch(rows, mark)
            closed, open_rows = _split_finalized(open_rows, gap, lateness, mark)
            too_late, open_rows = _split_finalized([*open_rows, *rows], gap, lateness, mark)
            closed_sessions += closed
            late_rows += [r for part in too_late for r in part]
        assert sorted(model.late) == sorted(late_rows), f"seed {seed}"
        assert sorted(part for _, part in model.results()) == sorted([*closed_sessions, *sessions(open_rows, gap, UNCUT).values()]), (
            f"seed {seed}"
        )
        late += len(late_rows)
    assert late > seeds / 2


def _split_finalized(rows: list[Row], gap: int, lateness: int, watermark: int | None) -> tuple[list[list[Row]], list[Row]]:
    """The sessions that accept no more rows, and the rows of the others."""
    formed = sessions(rows, gap, UNCUT)
    closed = [] if watermark is None else [part for (_, end), part in formed.items() if end + lateness <= watermark]
    return closed, [r for part in formed.values() if part not in closed for r in part]
