"""Watermarks as functions of the ledger, so that every verdict of lateness can be replayed."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from platform_defs.engine.ledger import Entry, SourceEntry


@dataclass(frozen=True)
class Timeline:
    """An input's or an operator's watermark over the ledger.

    Args:
        after: the watermark in force after entry n, at index n; index 0 stands before any entry. None is minus
            infinity. It never falls.
        idle: whether the input does not hold the watermark back after entry n, at index n.
    """

    after: tuple[int | None, ...]
    idle: tuple[bool, ...]


def of_source(entries: Sequence[Entry], source: str) -> Timeline:
    """A source's own watermark."""
    marks: list[int | None] = [None]
    idle = [False]
    for entry in entries:
        said = next((s for s in entry if s.source == source), None)
        marks.append(marks[-1] if said is None else _later(marks[-1], said.watermark))
        idle.append(idle[-1] if said is None else said.idle)
    return Timeline(tuple(marks), tuple(idle))


def passed_on(entries: Sequence[Entry], sources: Collection[str]) -> tuple[bool, ...]:
    """Whether what is made of sources does not hold its readers' watermarks after entry n, at index n.

    A derived table holds its readers while it is idle: what it has not finalized would otherwise come behind what they have closed.
    Earlier versions let its readers go on. So that every row keeps the decision it got then, the old rule still holds from an entry by
    which such a version recorded the last of the sources as idle (not of kind `silent`) up to the next entry that names one of them.
    """
    old = dict.fromkeys(sources, False)
    found = [False]
    for entry in entries:
        old |= {s.source: s.idle and s.kind != "silent" for s in entry if s.source in old}
        found.append(bool(old) and all(old.values()))
    return tuple(found)


def of_operator(inputs: Sequence[Timeline]) -> Timeline:
    """An operator's watermark: the running maximum of the minimum over its inputs that are not idle.

    An input never seen holds it at minus infinity unless it is idle; where all are idle it stays.
    """
    marks: list[int | None] = []
    for n in range(len(inputs[0].after)):
        known = marks[-1] if marks else None
        marks.append(_later(known, _least(i.after[n] for i in inputs if not i.idle[n])))
    return Timeline(tuple(marks), tuple(all(i.idle[n] for i in inputs) for n in range(len(marks))))


def delayed(timeline: Timeline, delay: int) -> Timeline:
    """The watermark that readers of an operator's results see."""
    return Timeline(tuple(None if w is None else w - delay for w in timeline.after), timeline.idle)


def possibly_late(entries: Sequence[Entry], source: str, operator: Timeline) -> dict[int, int]:
    """The entries that may hold late rows of a source: `seq` to the operator's watermark before it."""
    found: dict[int, int] = {}
    for entry in entries:
        before = operator.after[entry[0].seq - 1]
        if before is not None and any(s.source == source and _reaches_back(s, before) for s in entry):
            found[entry[0].seq] = before
    return found


def _reaches_back(said: SourceEntry, watermark: int) -> bool:
    return said.accepted > 0 and said.first_event_time is not None and said.first_event_time <= watermark


def _later(one: int | None, other: int | None) -> int | None:
    return max((w for w in (one, other) if w is not None), default=None)


def _least(marks: Iterable[int | None]) -> int | None:
    """The least watermark; minus infinity (None) when one is, or when there is none to ask."""
    listed = list(marks)
    return None if not listed or any(w is None for w in listed) else min(w for w in listed if w is not None)
