"""Accounts over tuples: the engine selects rows and recomputes results, and this module counts them."""

from collections import Counter
from collections.abc import Callable, Iterator
from datetime import date
from typing import Any

from assets.days import day_of
from platform_defs.engine.accounting.account import names_rows
from platform_defs.engine.accounting.day_accounts import DayAccount, Scope, accounts_of, scope_of
from platform_defs.engine.advance.advance import Advance
from platform_defs.engine.advance.corrections import unread_corrections
from platform_defs.engine.advance.position import position_of
from platform_defs.engine.inputs.progress import progress
from platform_defs.engine.inputs.span import Span
from tests.hunt.inputs import counted_inputs, input_with_lateness, read_table
from tests.hunt.operators import difference

_SIDE = ((1, 2, 3), (4, 5, 6))
"""The columns of a pair that identify its rows."""
SidesOf = Callable[[Advance, tuple[Any, ...]], Iterator[tuple[int, date]]]


def sim_account(advance: Advance, days: tuple[date, date] | None) -> list[DayAccount]:
    """The account of an asset over tuples."""
    scope = scope_of(advance, days)
    if names_rows(advance.asset, advance.workspace.assets):
        rows = [*_pair_terms(advance, scope), *_differing_results(advance, scope, _sides_of_pair)]
    else:
        rows = [*_accepted_and_late(advance, scope), *_finality(advance, scope), *_differing_results(advance, scope, _every_side)]
    return accounts_of(advance.asset.inputs, rows)


def _differing_results(advance: Advance, scope: Scope, sides_of: SidesOf) -> Any:
    """The missing and the superfluous results of a table."""
    closing = scope.recount
    if closing is None:
        return []
    workspace, asset = advance.workspace, advance.asset
    now = progress(workspace.lake, asset)
    wanted: Any = advance.final_results(closing, now.seq)
    span = Span(None if closing.after is None else closing.after + 1, closing.upto)
    held: Any = read_table(workspace, asset.name, "final_at", span)
    later = unread_corrections(position_of(workspace, asset, now))
    held, wanted = ([row for row in rows if not any(r.after < row[-1] <= r.upto for r in later)] for rows in (held, wanted))
    extra, missing = difference(held, wanted)
    found = Counter(
        (side, day, term) for term, rows in (("extra", extra), ("missing", missing)) for r in rows for side, day in sides_of(advance, r)
    )
    return [{"side": side, "day": day, term: n} for (side, day, term), n in found.items()]


def _sides_of_pair(advance: Advance, row: tuple[Any, ...]) -> Iterator[tuple[int, date]]:
    for side, (_, _, time) in enumerate(_SIDE):
        if row[time] is not None:
            yield side, day_of(row[time])


def _every_side(advance: Advance, row: tuple[Any, ...]) -> Iterator[tuple[int, date]]:
    for side in range(len(advance.asset.inputs)):
        yield side, day_of(row[-1])


def _pair_terms(advance: Advance, scope: Scope) -> Any:
    flags_by_row: dict[tuple[int, int, int, int], set[str]] = {}
    for side in (0, 1):
        versions = advance.asset.operator.reads.is_versioned(side)
        for row, flags in (*_logged(advance, scope, side), *([] if versions else _resulting(advance, scope, side))):
            if versions and "expired" in flags and "late" not in flags:
                flags.add("paired")
            flags_by_row.setdefault((side, *row), set()).update(flags)
    found = Counter[tuple[int, date, str]]()
    for (side, _, _, time), flags in flags_by_row.items():
        is_open = "logged" in flags and not flags & {"late", "paired", "padded"}
        terms = {"accepted": "logged" in flags, "late": "late" in flags, "matched": "paired" in flags, "unmatched": "padded" in flags}
        terms["pending"] = is_open and "expired" not in flags
        found.update((side, day_of(time), term) for term, holds in terms.items() if holds)
    return [{"side": side, "day": day, term: n} for (side, day, term), n in found.items()]


def _logged(advance: Advance, scope: Scope, side: int) -> list[tuple[tuple[int, int, int], set[str]]]:
    workspace, closed_to = advance.workspace, scope.closed_to
    operator: Any = advance.asset.operator
    rows: Any = input_with_lateness(workspace, advance.asset, side, workspace.ledger.head, scope.span)
    handled = progress(workspace.lake, advance.asset).seq
    expired = [closed_to is not None and row[0] <= handled and row[2] + operator.wait(side) + 1 <= closed_to for row in rows]
    return [(row[:3], {"logged", *(["late"] * row[-1]), *(["expired"] * e)}) for row, e in zip(rows, expired, strict=True)]


def _resulting(advance: Advance, scope: Scope, side: int) -> list[tuple[tuple[int, int, int], set[str]]]:
    first, _, last = _SIDE[side]
    rows = read_table(advance.workspace, advance.asset.name, "final_at", scope.results)
    named = [(row[first : last + 1], row[1] is not None and row[4] is not None) for row in rows if row[first] is not None]
    return [(row, {"paired" if is_pair else "padded"}) for row, is_pair in named]


def _accepted_and_late(advance: Advance, scope: Scope) -> list[dict[str, Any]]:
    frames = counted_inputs(advance, scope)
    found = Counter((day_of(row[frame.at("event_time")]), row[-1]) for frame in frames for row in frame)
    return [{"side": 0, "day": day, "accepted": n, "late": n if late else 0} for (day, late), n in found.items()]


def _finality(advance: Advance, scope: Scope) -> list[dict[str, Any]]:
    frames = counted_inputs(advance, scope)
    operator: Any = advance.asset.operator
    closed_to = scope.closed_to
    times = [row[frame.at("event_time")] for frame in frames for row in frame if not row[-1]]
    found = Counter((day_of(t), closed_to is not None and operator.last(t) <= closed_to) for t in times)
    return [{"side": 0, "day": day, "matched" if closed else "pending": n} for (day, closed), n in found.items()]
