"""Sessions in plain Python, row by row and batch by batch: the second oracle of session windows."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from tests.support.windows_model import Span

Row = tuple[int, int]
"""A time, and the identifier of a row."""


def sessions(rows: Iterable[Row], gap: int, longest: int) -> dict[Span, list[Row]]:
    """The sessions that rows of one key form, cut where they are too long."""
    parts: list[tuple[int, list[Row]]] = []
    first = upto = before = 0
    for row in sorted(rows):
        t = row[0]
        if not parts or t - before > gap:
            first, upto = t, t + longest
            parts.append((upto, []))
        elif t >= upto:
            settled = -(-(first + longest) // longest) * longest
            upto = settled if t < settled else (t // longest + 1) * longest
            parts.append((upto, []))
        parts[-1][1].append(row)
        before = t
    return {(part[0][0], min(part[-1][0] + gap, upto)): part for upto, part in parts}


@dataclass
class SessionsModel:
    """One key's rows, in the batches of their arrival.

    Args:
        gap: the gap in ms.
        longest: the longest session in ms.
        lateness: the allowed lateness in ms.
    """

    gap: int
    longest: int
    lateness: int
    taken: list[Row] = field(default_factory=list)
    late: list[Row] = field(default_factory=list)
    apart: dict[Span, list[Row]] = field(default_factory=dict)

    def entry(self, rows: Sequence[Row], watermark: int | None) -> None:
        """Decide which rows of a batch are late: form sessions with the open rows, cut them, and keep the finalized ones."""
        if watermark is None or all(t > watermark for t, _ in rows):
            self.taken += rows
            return
        was = self._sessions(self.taken)
        dead = {span: part for span, part in was.items() if span[1] + self.lateness <= watermark}
        accepted = self._open(rows, [r for span, part in was.items() if span not in dead for r in part], watermark)
        accepted = self._open(accepted, self.taken, watermark)
        self.late += sorted({*rows} - {*accepted})
        now = {r: span for span, part in self._sessions(self.taken + accepted).items() for r in part}
        for span, part in dead.items():
            if any(now[r] != span for r in part):
                self.apart[span] = part
                self.taken = [r for r in self.taken if r not in part]
        self.taken += accepted

    def _open(self, rows: Sequence[Row], beside: Sequence[Row], watermark: int) -> list[Row]:
        """The rows that belong to open sessions, as they form them with others."""
        formed = self._sessions([*beside, *rows])
        return [r for span, part in formed.items() if span[1] + self.lateness > watermark for r in part if r in rows]

    def results(self) -> list[tuple[Span, list[Row]]]:
        """Every session with its rows."""
        return sorted([*self.apart.items(), *self._sessions(self.taken).items()])

    def _sessions(self, rows: Iterable[Row]) -> dict[Span, list[Row]]:
        return sessions(rows, self.gap, self.longest)
