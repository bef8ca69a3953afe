"""Accounts over tuples: the engine selects the rows and recomputes results, and the counting is done here."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from typing import Any

from platform_defs.engine.accounting.account import RowBooks
from platform_defs.engine.accounting.counted_rows import CountBooks
from platform_defs.engine.accounting.day_accounts import Books
from platform_defs.engine.advance.corrections import unread_corrections
from platform_defs.engine.advance.position import position_of
from platform_defs.engine.days import day_of
from platform_defs.engine.inputs.progress import progress
from platform_defs.engine.inputs.reader import Span
from tests.hunt.operators import difference

_SIDE = ((1, 2, 3), (4, 5, 6))
"""The columns of a pair that identify its rows."""


@dataclass(frozen=True)
class _Recounts(Books):
    """The missing and the superfluous results of a table."""

    def _sides_of(self, row: tuple[Any, ...]) -> Iterator[tuple[int, date]]:
        raise NotImplementedError

    def _wrong(self) -> Any:
        closing = self.scope.recount
        if closing is None:
            return []
        reading, asset = self.advance.reading, self.advance.asset
        now = progress(reading.lake, asset)
        wanted: Any = self.advance.closed(closing, now.seq)
        held: Any = self.table(Span(None if closing.after is None else closing.after + 1, closing.upto))
        later = unread_corrections(position_of(reading, asset, now))
        held, wanted = ([row for row in rows if not any(r.after < row[-1] <= r.upto for r in later)] for rows in (held, wanted))
        extra, missing = difference(held, wanted)
        found = Counter(
            (side, day, term) for term, rows in (("extra", extra), ("missing", missing)) for r in rows for side, day in self._sides_of(r)
        )
        return [{"side": side, "day": day, term: n} for (side, day, term), n in found.items()]


@dataclass(frozen=True)
class SimRowBooks(_Recounts, RowBooks):
    """The account of pairs."""

    def _sides_of(self, row: tuple[Any, ...]) -> Iterator[tuple[int, date]]:
        for side, (_, _, time) in enumerate(_SIDE):
            if row[time] is not None:
                yield side, day_of(row[time])

    def terms(self) -> Any:
        operator: Any = self.advance.asset.operator
        flags_by_row: dict[tuple[int, int, int, int], set[str]] = {}
        for side in (0, 1):
            for row, flags in (*self._logged(side, operator), *self._resulting(side)):
                flags_by_row.setdefault((side, *row), set()).update(flags)
        found = Counter[tuple[int, date, str]]()
        for (side, _, _, time), flags in flags_by_row.items():
            rest = "logged" in flags and not flags & {"late", "paired", "padded"}
            terms = {"accepted": "logged" in flags, "late": "late" in flags, "matched": "paired" in flags, "unmatched": "padded" in flags}
            terms["pending"] = rest and "expired" not in flags
            found.update((side, day_of(time), term) for term, holds in terms.items() if holds)
        return [{"side": side, "day": day, term: n} for (side, day, term), n in found.items()]

    def _logged(self, side: int, operator: Any) -> list[tuple[tuple[int, int, int], set[str]]]:
        reading, closed_to = self.advance.reading, self.closed_to
        rows: Any = reading.with_lateness(self.advance.asset, side, reading.ledger.head, self.scope.span)
        expired = [closed_to is not None and row[2] + operator.wait(side) + 1 <= closed_to for row in rows]
        return [(row[:3], {"logged", *(["late"] * row[-1]), *(["expired"] * e)}) for row, e in zip(rows, expired, strict=True)]

    def _resulting(self, side: int) -> list[tuple[tuple[int, int, int], set[str]]]:
        first, _, last = _SIDE[side]
        rows: Any = self.table(self.scope.results)
        named = [(row[first : last + 1], row[1] is not None and row[4] is not None) for row in rows if row[first] is not None]
        return [(row, {"paired" if is_pair else "padded"}) for row, is_pair in named]


@dataclass(frozen=True)
class SimCountBooks(_Recounts, CountBooks):
    """The account of windows."""

    def _sides_of(self, row: tuple[Any, ...]) -> Iterator[tuple[int, date]]:
        for side in range(len(self.advance.asset.inputs)):
            yield side, day_of(row[-1])

    def terms(self) -> Any:
        return [*self._came_by_day(), *self._settled_by_day()]

    def _came_by_day(self) -> list[dict[str, Any]]:
        frames: Any = self._frames()
        found = Counter((day_of(row[frame.at("event_time")]), row[-1]) for frame in frames for row in frame)
        return [{"side": 0, "day": day, "accepted": n, "late": n if late else 0} for (day, late), n in found.items()]

    def _settled_by_day(self) -> list[dict[str, Any]]:
        frames: Any = self._frames()
        operator: Any = self.advance.asset.operator
        closed_to = self.closed_to
        times = [row[frame.at("event_time")] for frame in frames for row in frame if not row[-1]]
        found = Counter((day_of(t), closed_to is not None and operator.last(t) <= closed_to) for t in times)
        return [{"side": 0, "day": day, "matched" if closed else "pending": n} for (day, closed), n in found.items()]
