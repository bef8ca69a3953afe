"""The expected content of every table, computed from scratch from the landed files and the decisions in the ledger."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from platform_defs.engine.inputs.identity import identity_of
from platform_defs.engine.ledger.ledger import SourceBatch
from tests.hunt.operators import SimAsOf
from tests.hunt.store import Event, Row, Store
from tests.hunt.world import CONTRACTS, RECIPES, Finding
from tests.support.small_sources import DAY, HOUR, MINUTE

BOUND, HORIZON, SKEW, TIMEOUT = MINUTE, 2 * HOUR, 24 * HOUR, HOUR
SLACK = 3 * DAY
"""How far the clock may have moved while an ingest was paused."""
POSITION_BITS = 42


_WINDOW_OF_OPERATOR = {identity_of(asset): window for window, recipe in RECIPES.items() for asset in recipe.values()}
"""The key in `RECIPES` of an asset, by its identity."""


@dataclass(slots=True)
class _Source:
    """The state of a source after some batches.

    Args:
        watermark: its watermark.
        newest: its newest event time.
        is_idle: whether it is idle.
        active_at: when it last had rows, a watermark or a drain.
        read: the names of the files that were read.
        accepted: the rows of its log.
        rejects: the batch and the arrival of each quarantined row.
        watermarks: the watermark after each batch; index 0 is before the first.
        idle: whether it was idle after each batch; index 0 is before the first.
    """

    watermark: int | None = None
    newest: int | None = None
    is_idle: bool = False
    active_at: int | None = None
    read: set[str] = field(default_factory=set)
    accepted: list[Row] = field(default_factory=list)
    rejects: list[Row] = field(default_factory=list)
    watermarks: list[int | None] = field(default_factory=lambda: [None])
    idle: list[bool] = field(default_factory=lambda: [False])


@dataclass
class ExpectedLake:
    """The expected content of every table.

    Args:
        store: the store.
        contents: the events of every file that ever landed, by source and name.
    """

    store: Store
    contents: dict[tuple[str, str], tuple[Event, ...]] = field(default_factory=dict)
    _rows: tuple[SourceBatch, ...] = ()
    _batches: list[list[SourceBatch]] = field(default_factory=list)
    _sources: dict[str, _Source] = field(default_factory=dict)
    _checked: dict[str, Any] = field(default_factory=dict)
    _steady: bool = True
    """Whether the clock has never been set back."""

    def read_ledger(self) -> None:
        """Read the ledger, and check each batch against its files."""
        held = self.store.tables.get("ledger")
        version = None if held is None else held.newest
        if version is self._checked.get("ledger"):
            return
        rows: tuple[SourceBatch, ...] = () if version is None else tuple(row.source_batch for row in version.rows)
        if len(rows) < len(self._rows) or (self._rows and rows[len(self._rows) - 1] is not self._rows[-1]):
            self._rows, self._batches, self._sources, self._checked = (), [], {}, {}
        if len(rows) > len(self._rows):
            self._extend(rows[len(self._rows) :])
            self._rows = rows
        self._checked["ledger"] = version

    def _extend(self, new: Iterable[SourceBatch]) -> None:
        by_seq: dict[int, list[SourceBatch]] = {}
        for source_batch in new:
            by_seq.setdefault(source_batch.seq, []).append(source_batch)
        for seq, batch in sorted(by_seq.items()):
            if seq != len(self._batches) + 1:
                raise Finding("ledger order", f"batch {seq} follows batch {len(self._batches)}")
            self._batches.append(batch)
            for source_batch in batch:
                self._apply(source_batch, self._source(source_batch.source))
            for source in CONTRACTS:
                of = self._source(source)
                of.watermarks.append(of.watermark)
                of.idle.append(of.is_idle)

    def _source(self, name: str) -> _Source:
        if name not in self._sources:
            earlier = len(self._batches) - 1 if self._batches else 0
            self._sources[name] = _Source(watermarks=[None] * (earlier + 1), idle=[False] * (earlier + 1))
        return self._sources[name]

    @property
    def head(self) -> int:
        return len(self._batches)

    def _apply(self, batch: SourceBatch, of: _Source) -> None:
        good, counts = self._read(batch, of)
        recorded = Counter(read=batch.rows_read, accepted=batch.accepted, duplicate=batch.duplicate, quarantined=batch.quarantined)
        if recorded != counts:
            raise Finding("ledger counts", f"{batch.source}, batch {batch.seq}: it records {dict(+recorded)}, not {dict(+counts)}")
        bounded = max((e.t for e in good), default=None)
        if bounded is not None:
            of.newest = bounded if of.newest is None else max(of.newest, bounded)
            of.watermark = bounded - BOUND - 1 if of.watermark is None else max(of.watermark, bounded - BOUND - 1)
        if batch.kind in ("watermark", "drain") and batch.watermark is not None:
            of.watermark = batch.watermark if of.watermark is None else max(of.watermark, batch.watermark)
        if (batch.watermark, batch.max_event_time) != (of.watermark, of.newest):
            raise Finding("ledger watermark", f"{batch} should have {of.watermark}, {of.newest}")
        self._steady &= batch.clock is None
        silent = batch.ingested_at - self._active_at(of)
        if self._steady and batch.idle and not of.is_idle and silent <= TIMEOUT:
            raise Finding("falsely idle", f"{batch.source} fell idle at batch {batch.seq}, {silent} ms after its rows")
        if batch.rows_read or batch.kind in ("watermark", "drain"):
            of.active_at = batch.ingested_at
        of.is_idle = batch.idle

    def _active_at(self, of: _Source) -> int:
        return self._batches[0][0].ingested_at if of.active_at is None else of.active_at

    def _read(self, batch: SourceBatch, of: _Source) -> tuple[list[Event], Counter[str]]:
        """The valid events of a batch's files, and its counts; adds accepted and rejected rows to the source."""
        good, counts = list[Event](), Counter[str]()
        ahead = self._ahead(batch)
        files = sorted((int(m), path, rest) for path, m, *rest in (offset.split("|") for offset in batch.offsets))
        for rank, (_, path, rest) in enumerate(files):
            name = path.rsplit("/", 1)[-1]
            if rest[1:]:
                if name not in of.read:
                    raise Finding(
                        "file quarantined", f"{batch.source}/{name} was quarantined at batch {batch.seq}, and its rows were never read"
                    )
                counts.update(read=1, quarantined=1)
                of.rejects.append((batch.seq, rank << POSITION_BITS))
                continue
            if name in of.read:
                raise Finding("file read twice", f"{batch.source}/{name} is read again at batch {batch.seq}")
            of.read.add(name)
            for n, event in enumerate(self.contents[batch.source, name]):
                counts["read"] += 1
                if event.is_bad or id(event) in ahead:
                    counts["quarantined"] += 1
                    of.rejects.append((batch.seq, (rank << POSITION_BITS) + n))
                    continue
                good.append(event)
                if batch.source == "a" and any(row[4] == event.uid and abs(row[2] - event.t) <= HORIZON for row in of.accepted):
                    counts["duplicate"] += 1
                    continue
                counts["accepted"] += 1
                of.accepted.append((batch.seq, (rank << POSITION_BITS) + n, event.t, event.k, event.uid))
        return good, counts

    def _ahead(self, batch: SourceBatch) -> set[int]:
        """The ids of the events that were too far in the future. The ledger has their number, but not always the clock that decided."""
        read = [offset.split("|") for offset in batch.offsets]
        events = [e for path, *rest in read if not rest[2:] for e in self.contents[batch.source, path.rsplit("/", 1)[-1]]]
        bad = sum(e.is_bad for e in events) + sum(len(rest) > 2 for _, *rest in read)
        good = sorted((e for e in events if not e.is_bad), key=lambda e: e.t, reverse=True)
        newest = good[: max(0, batch.quarantined - bad)]
        clock = batch.ingested_at if batch.clock is None else batch.clock
        before = self._batches[-2][0].ingested_at if len(self._batches) > 1 else None
        is_recorded = batch.clock is not None or before is None or clock > before + 1  # a clock behind the first batch's is not recorded
        if is_recorded and newest and newest[-1].t <= clock + SKEW - SLACK:
            raise Finding("quarantined without a reason", f"{newest[-1]} at batch {batch.seq}, {clock} by the clock")
        return {id(e) for e in newest}

    def check_logs(self) -> None:
        """A log contains exactly the accepted rows, and a quarantine exactly the rejected ones."""
        for name, of in self._sources.items():
            self._check_log(f"events/{name}", of.accepted, 5)
            self._check_log(f"quarantine/{name}", of.rejects, 2)

    def _check_log(self, table: str, wanted: list[Row], columns: int) -> None:
        if table in self.store.lost or "ledger" in self.store.lost:
            return
        held = self.store.tables.get(table)
        version = None if held is None else held.newest
        if self._checked.get(table) == (id(version), self.head):
            return
        last = wanted[-1][0] if wanted else 0  # readers ignore rows of batches after the newest one with the source
        seen = () if version is None else [row[:columns] for row in version.rows if row[0] <= last]
        _compare(table, seen, wanted)
        self._checked[table] = id(version), self.head

    # derived tables

    def watermarks(self, sources: Iterable[str]) -> list[int | None]:
        """An operator's watermark after each batch; index 0 is before the first."""
        found: list[int | None] = []
        for n in range(self.head + 1):
            watermarks = [of.watermarks[n] for of in map(self._source, sources) if not of.idle[n]]
            least = None if not watermarks or None in watermarks else min(m for m in watermarks if m is not None)
            before = found[-1] if found else None
            found.append(least if before is None else before if least is None else max(before, least))
        return found

    def results(self, asset: str, window: int, seq: int) -> list[Row]:
        """All results of an asset from the batches up to `seq`, including results that are not final."""
        recipe = RECIPES[window][asset]
        operator: Any = recipe.operator
        if asset == "pairs":
            sides = [self._on_time(recipe.inputs, name, operator, seq) for name in recipe.inputs]
            return _as_of(*sides) if isinstance(operator, SimAsOf) else _joined(operator, *sides)
        [of] = recipe.inputs
        if of in CONTRACTS:
            rows = [(row[3], row[2]) for row in self._on_time(recipe.inputs, of, operator, seq)]
        else:
            rows = [(row[0], row[-2]) for row in self.results(of, window, seq)]
        counts = Counter((k, t // operator.size) for k, t in rows)
        size = operator.size
        return [(k, n * size, (n + 1) * size, count, (n + 1) * size - 1, (n + 1) * size - 1) for (k, n), count in counts.items()]

    def _on_time(self, sources: Iterable[str], name: str, operator: Any, seq: int) -> list[Row]:
        watermarks = self.watermarks(sources)
        return [row for row in self._source(name).accepted if row[0] <= seq and not operator.is_late(row[2], watermarks[row[0] - 1])]

    def check_table(self, asset: str) -> None:
        """After each of its commits, a table contains the results that are final after its handled batches."""
        held = self.store.tables.get(asset)
        if held is None or self._checked.get(asset) is held.newest:
            return
        now = next((v.metadata["progress"] for v in reversed(held.versions) if "progress" in v.metadata), None)
        if now is not None and now["seq"] <= self.head and now["closed_to"] is not None:
            window = _WINDOW_OF_OPERATOR[now["operator"]]
            wanted = [row for row in self.results(asset, window, now["seq"]) if row[-1] <= now["closed_to"]]
            _compare(asset, held.newest.rows, wanted)
        self._checked[asset] = held.newest

    def check_all_read(self) -> None:
        """Every file was read."""
        for (source, name), file in self.store.landing.items():
            if source not in self._sources or name not in self._sources[source].read:
                raise Finding("file never read", f"{source}/{name}, {len(file.events)} rows")

    def check_complete(self, assets: Iterable[str], window: int) -> None:
        """Every file was read, and every table equals a computation from scratch."""
        self.check_all_read()
        for asset in assets:
            held = self.store.tables.get(asset)
            _compare(f"{asset} at the end", () if held is None else held.newest.rows, self.results(asset, window, self.head))


def _joined(operator: Any, left: list[Row], right: list[Row]) -> list[Row]:
    found, paired = list[Row](), set[Row]()
    low, high = operator.interval.lower, operator.interval.upper
    for one in left:
        for other in right:
            if one[3] is not None and one[3] == other[3] and low <= other[2] - one[2] <= high:
                paired |= {("l", *one), ("r", *other)}
                time = max(one[2], other[2])
                found.append((one[3], *one[:3], *other[:3], time, time + 1))
    for one in left:
        if ("l", *one) not in paired:
            time = one[2] + max(0, high)
            found.append((one[3], *one[:3], None, None, None, time, time + 1))
    for other in right:
        if ("r", *other) not in paired:
            time = other[2] + max(0, -low)
            found.append((other[3], None, None, None, *other[:3], time, time + 1))
    return found


def _compare(name: str, held: Iterable[Row], wanted: Iterable[Row]) -> None:
    has, needs = Counter(held), Counter(wanted)
    if has != needs:
        extra, missing = +(has - needs), +(needs - has)
        doubled = [row for row in extra if needs[row]]
        kind = "rows doubled" if doubled else "rows wrong" if extra and missing else "rows too many" if extra else "rows lost"
        raise Finding(f"{kind} in {name}", f"extra {sorted(extra, key=repr)[:3]}, missing {sorted(missing, key=repr)[:3]}")


def _as_of(left: list[Row], right: list[Row]) -> list[Row]:
    found = list[Row]()
    for one in left:
        known = [other for other in right if one[3] is not None and other[3] == one[3] and other[2] <= one[2]]
        last = max(known, key=lambda row: (row[2], row[0], row[1]), default=(None,) * 3)
        found.append((one[3], *one[:3], *last[:3], one[2], one[2] + 1))
    return found
