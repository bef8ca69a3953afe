"""A model of session windows in plain Python, row by row and batch by batch."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from tests.support.windows_model import Span

Row = tuple[int, int]
"""The time of a row in ms, and its identifier."""


def sessions(rows: Iterable[Row], gap: int, longest: int) -> dict[Span, list[Row]]:
    """The sessions of rows of one key, by start and end in ms. A session that would be longer than `longest` is cut."""
    parts: list[tuple[int, list[Row]]] = []
    first = upto = before = 0
    for row in sorted(rows):
        t = row[0]
        if not parts or t - before > gap:
            first, upto = t, t + longest
            parts.append((upto, []))
        elif t >= upto:
            next_cut = -(-(first + longest) // longest) * longest
            upto = next_cut if t < next_cut else (t // longest + 1) * longest
            parts.append((upto, []))
        parts[-1][1].append(row)
        before = t
    return {(part[0][0], min(part[-1][0] + gap, upto)): part for upto, part in parts}


@dataclass
class SessionsModel:
    """The rows of one key, added batch by batch.

    Args:
        gap: the gap in ms.
        longest: the longest session in ms.
        lateness: the allowed lateness in ms.
    """

    gap: int
    longest: int
    lateness: int
    accepted_rows: list[Row] = field(default_factory=list)
    late: list[Row] = field(default_factory=list)
    recorded: dict[Span, list[Row]] = field(default_factory=dict)

    def add_batch(self, rows: Sequence[Row], watermark: int | None) -> None:
        """Add a batch, given the watermark before it.

        Decide which of its rows are late, and record finalized sessions that other rows would change.
        """
        if watermark is None or all(t > watermark for t, _ in rows):
            self.accepted_rows += rows
            return
        before_batch = self._sessions(self.accepted_rows)
        finalized = {span: part for span, part in before_batch.items() if span[1] + self.lateness <= watermark}
        accepted = self._open(rows, [r for span, part in before_batch.items() if span not in finalized for r in part], watermark)
        accepted = self._open(accepted, self.accepted_rows, watermark)
        self.late += sorted({*rows} - {*accepted})
        now = {r: span for span, part in self._sessions(self.accepted_rows + accepted).items() for r in part}
        for span, part in finalized.items():
            if any(now[r] != span for r in part):
                self.recorded[span] = part
                self.accepted_rows = [r for r in self.accepted_rows if r not in part]
        self.accepted_rows += accepted

    def _open(self, rows: Sequence[Row], others: Sequence[Row], watermark: int) -> list[Row]:
        """Those of `rows` that belong to an open session of `rows` and `others` together."""
        formed = self._sessions([*others, *rows])
        return [r for span, part in formed.items() if span[1] + self.lateness > watermark for r in part if r in rows]

    def results(self) -> list[tuple[Span, list[Row]]]:
        """Every session with its rows."""
        return sorted([*self.recorded.items(), *self._sessions(self.accepted_rows).items()])

    def _sessions(self, rows: Iterable[Row]) -> dict[Span, list[Row]]:
        return sessions(rows, self.gap, self.longest)
