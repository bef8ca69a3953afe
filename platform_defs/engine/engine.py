"""The engine: the one object through which assets, sensors, the CLI and tests work on a lake."""

import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass, field, replace
from datetime import date
from functools import cached_property
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from assets.contracts import DerivedAsset, SourceContract
from operators.changelog import CHANGE, CHANGED_AT, INSERT, fold
from operators.columns import FINAL_AT
from operators.contract import Closed, Early, plain
from operators.timing import DAY_MS, instant
from operators.triggers import IS_FINAL, ROWS_SEEN
from platform_defs.engine.accounting import account, names_rows, pairs, uncounted_entries
from platform_defs.engine.advance import Advance, Step
from platform_defs.engine.boards import measured
from platform_defs.engine.books import DayAccount
from platform_defs.engine.days import day_of
from platform_defs.engine.following import STEP, upserted
from platform_defs.engine.ingest import Ingest
from platform_defs.engine.ledger import Entry, Ledger
from platform_defs.engine.lost import naming_lost_files
from platform_defs.engine.maintenance import Maintained, Maintenance
from platform_defs.engine.progress import PROGRESS, Progress, restore, stored_progress
from platform_defs.engine.publish import publish
from platform_defs.engine.reading import LATE, Reading, Span
from platform_defs.engine.rebuild import Rebuilt, rebuild
from platform_defs.engine.replay import Replay
from platform_defs.engine.signals import Signals
from platform_defs.engine.step_law import LawError, account_step
from platform_defs.engine.stream import Stream
from platform_defs.resources.lake import Lake


def wall_clock() -> int:
    """The time in epoch ms."""
    return time.time_ns() // 1_000_000


@dataclass(frozen=True)
class Engine:
    """Event logs, a ledger, and the tables made of them, in one lake.

    Args:
        lake: the lake.
        sources: the sources, by name.
        assets: the derived assets, by name.
        connect: makes or finds the Spark session; called when it is first needed.
        clock: the wall clock, in epoch ms.
        max_step: rows that a step may read, about.
        folders: each source's folder of input files.
        max_files: files of a source that one micro-batch takes.
    """

    lake: Lake
    sources: Mapping[str, SourceContract]
    assets: Mapping[str, DerivedAsset]
    connect: Callable[[], SparkSession]
    clock: Callable[[], int] = wall_clock
    max_step: int = 5_000_000
    folders: Mapping[str, str] = field(default_factory=dict)
    max_files: int = 64

    @cached_property
    def spark(self) -> SparkSession:
        """The session."""
        return self.connect()

    @cached_property
    def ledger(self) -> Ledger:
        """The lake's ledger."""
        return Ledger(self.lake, self.clock)

    @cached_property
    def reading(self) -> Reading:
        """Reads assets' inputs."""
        return Reading(self.spark, self.lake, self.ledger, self.sources, self.assets)

    @cached_property
    def ingest(self) -> Ingest:
        """Lets micro-batches of files in."""
        return Ingest(self.spark, self.lake, self.ledger, self.sources)

    @cached_property
    def signals(self) -> Signals:
        """Writes entries without rows."""
        return Signals(self.spark, self.lake, self.ledger, self.sources)

    @cached_property
    def replay(self) -> Replay:
        """Lets a recorded sequence of entries in."""
        return Replay(self.spark, self.lake, self.ledger, self.sources)

    @property
    def stream(self) -> Stream:
        """Ingests what lands in the sources' folders."""
        return Stream(self.spark, self.lake, self.ingest, self.folders, self.max_files)

    def let_in(self) -> list[Entry]:
        """Let in what has landed, and record the sources that have fallen idle."""
        with self._naming_lost_files():
            made = self.stream.run()
            idle = self.signals.idle()
        return [*made, idle] if idle else made

    def drain(self) -> Entry | None:
        """Close the end of the input, far enough for every asset, those made of other assets too."""
        reach = sum(
            max(a.operator.reads.reach) + a.operator.reads.delay for a in self.assets.values() if isinstance(a.operator.reads, Closed)
        )
        return self.signals.drain(reach)

    def steps(self, asset: str, until: int | None = None) -> Generator[Step]:
        """Advance an asset, one committed step after the other."""
        with self._naming_lost_files():
            yield from self._advance(asset)(until)

    def advance(self, asset: str, until: int | None = None) -> list[Step]:
        """Advance an asset as far as it goes, or up to `until` (epoch ms)."""
        return list(self.steps(asset, until))

    def lawful_steps(self, asset: str) -> Iterator[Step]:
        """Advance an asset, each step held to the conservation law before the next.

        An asset whose operator cannot be accounted for, or that is made of other assets, is advanced alone.

        Raises:
            LawError: a step broke it.
        """
        held_to_it = names_rows(self._advance(asset))
        with closing(self.steps(asset)) as steps:
            for step in steps:
                broken = [a for a in self.account_step(asset, step) if not a.holds] if held_to_it else []
                if broken:
                    raise LawError.broken(asset, broken)
                yield step

    def rebuild(self, asset: str, first: date, last: date) -> Rebuilt:
        """Recompute closed days, and put right what differs."""
        with self._naming_lost_files():
            return rebuild(self._advance(asset), first, last)

    def maintain(self, **limits: Any) -> list[Maintained]:
        """Compact what is in many small files, delete what no version needs, and make checkpoints; see `Maintenance`."""
        return Maintenance(self.spark, self.lake, self.ledger, self.sources, self.assets, **limits)()

    def account(self, asset: str, days: tuple[date, date] | None = None) -> list[DayAccount]:
        """Account for every row of the asset's sources, by side and day, with the operator its table was made with."""
        with self._naming_lost_files():
            return account(self._as_stored(asset), days)

    def account_step(self, asset: str, step: Step) -> list[DayAccount]:
        """Account for the rows whose fate one step has settled, at the cost of the step."""
        with self._naming_lost_files():
            return account_step(self._advance(asset), step)

    def pairs(self, asset: str) -> int | None:
        """How many of an asset's results are made of a row of every input; None where results do not name rows of sources."""
        with self._naming_lost_files():
            advance = self._as_stored(asset)
            return pairs(advance) if names_rows(advance) else None

    def uncounted(self, asset: str, days: tuple[date, date] | None = None) -> dict[tuple[str, int], tuple[int, int]]:
        """Where ledger and log disagree about an asset's sources: (source, seq) to accepted and held; by the rows' days."""
        with self._naming_lost_files():
            return uncounted_entries(self._advance(asset), days)

    def late(self, asset: str, source: str) -> DataFrame:
        """The view `late/<asset>`: a source's rows that came too late for the asset."""
        advance = self._as_stored(asset)
        judged = advance.reading.judged(advance.asset, advance.asset.inputs.index(source), self.ledger.head)
        return plain(judged.where(LATE).drop(LATE))

    def table(self, name: str) -> DataFrame:
        """A table of the lake."""
        return self.spark.read.format("delta").load(self.lake.path(name))

    def so_far(self, asset: str) -> DataFrame:
        """An asset's results with `is_final` (boolean): those that are final, and below them what open windows hold so far.

        A result that was shown early and is final by now is there once, final; so it is beside a running advance.
        """
        derived = self.assets[asset]
        commit = self.lake.newest(asset, PROGRESS)
        early = self.lake.read(self.spark, derived.early, self.lake.schema(derived.early)).drop(ROWS_SEEN)
        if commit is None:
            return early
        closed_to = Progress.told(commit.value).closed_to
        told = self.spark.read.format("delta").option("versionAsOf", commit.version).load(self.lake.path(asset))
        final = told.withColumn(IS_FINAL, F.lit(True))
        if not early.columns or not isinstance(derived.operator, Early) or derived.operator.early is None:
            return final
        open_still = early if closed_to is None else early.where(F.col(FINAL_AT) > instant(closed_to, F.col(FINAL_AT)))
        return final.unionByName(open_still)

    def measured(self, asset: str) -> dict[str, int | float]:
        """The metrics of an upserted table: partitions, rows held, changes for each row that came in; see `boards`."""
        return measured(self._as_stored(asset))

    def put_right(self, asset: str) -> int:
        """Recompute an upserted table, and put right what differs; returns how many changes that took."""
        with self._naming_lost_files():
            return sum(self._advance(asset).put_right().values())

    def publish(self, asset: str, folder: str) -> int:
        """Write an upserted table's changes to a folder, as keyed upserts with tombstones; returns the last step it holds then."""
        with self._naming_lost_files():
            return publish(self.reading, self.assets[asset], folder)

    def as_of(self, asset: str, time: int) -> DataFrame:
        """An upserted table as it was at a time (wall clock, epoch ms): its changelog folded as far as it went then."""
        derived = self.assets[asset]
        told = self.table(derived.changelog).where(F.col(CHANGED_AT) <= F.timestamp_millis(F.lit(time)))
        return fold(told, key=upserted(derived).key, order=STEP)

    def as_known_now(self, asset: str, time: int) -> DataFrame:
        """An upserted table as it would have been after the rows of event times up to `time` (epoch ms), of all that came since.

        Every row counts by its own time, however late it came; those of a changelog in the order in which they came.
        """
        derived = self.assets[asset]
        _ = upserted(derived)
        return derived.rows(*[self._known(derived, which, time) for which in range(len(derived.inputs))])

    def _known(self, asset: DerivedAsset, which: int, time: int) -> DataFrame:
        name = asset.inputs[which]
        if name in self.sources:
            return self.reading.input(asset, which, self.ledger.head, Span(None, time))
        reads = asset.operator.reads
        told_in = CHANGE if isinstance(reads, Closed) or reads.change is None else reads.change
        return self.as_known_now(name, time).withColumn(told_in, F.lit(INSERT))

    def progress(self, asset: str) -> Progress:
        """How far an asset has come."""
        return stored_progress(self.lake, self.assets[asset])

    def described(self, asset: str) -> dict[str, Any]:
        """How far an asset has come: `steps`, `closed_to` and `watermark` (epoch ms or None), `lag_ms`, `complete_to` (date or None).

        The lag is how far the asset is behind what its watermark would let it close; 0 when it is up to date, and for an asset that
        waits for no watermark.
        """
        if not isinstance(self.assets[asset].operator.reads, Closed):
            return {"steps": self.progress(asset).step, "closed_to": None, "watermark": None, "lag_ms": 0, "complete_to": None}
        reached, mark = self.progress(asset), self._reach(asset)
        closed_to = reached.closed_to
        start = self._start(asset) if closed_to is None else closed_to
        behind = 0 if mark is None or start is None else mark - start
        complete = None if closed_to is None else day_of(closed_to + 1 - DAY_MS)
        return {"steps": reached.step, "closed_to": closed_to, "watermark": mark, "lag_ms": max(0, behind), "complete_to": complete}

    def open_days(self, asset: str) -> tuple[date, date] | None:
        """The days that an advance would reach: from the first not complete to the one the watermark is in; None where there is nothing."""
        if not isinstance(self.assets[asset].operator.reads, Closed):
            return None
        mark, now = self._reach(asset), self.progress(asset).closed_to
        start = self._start(asset) if now is None else now + 1
        if mark is None or start is None or (now is not None and mark <= now):
            return None
        return day_of(min(start, mark)), day_of(mark)

    def due_days(self) -> tuple[date, date] | None:
        """The days that an advance of all assets would reach."""
        due = [days for name in self.assets if (days := self.open_days(name)) is not None]
        return (min(first for first, _ in due), max(last for _, last in due)) if due else None

    def due_boards(self) -> list[str]:
        """The assets without days that have something to handle, each after those that it follows."""
        found: list[str] = []
        for name, asset in self.assets.items():
            if isinstance(asset.operator.reads, Closed):
                continue
            seq = self.progress(name).seq
            came = any(s.accepted for entry in self.ledger.entries()[seq:] for s in entry if s.source in asset.inputs)
            if came or any(of in found or self.progress(of).seq > seq for of in asset.inputs if of in self.assets):
                found.append(name)
        return found

    def _reach(self, asset: str) -> int | None:
        return Reading(None, self.lake, self.ledger, self.sources, self.assets).watermark(self.assets[asset], self.ledger.head)  # pyright: ignore[reportArgumentType]

    def _start(self, asset: str) -> int | None:
        """The oldest event time among the sources that an asset is made of, by way of others too; None where nothing came."""
        sources = self._sources(asset)
        seen = [s.first_event_time for e in self.ledger.entries() for s in e if s.source in sources and s.first_event_time is not None]
        return min(seen, default=None)

    def _sources(self, name: str) -> set[str]:
        return {name} if name in self.sources else {source for of in self.assets[name].inputs for source in self._sources(of)}

    def _naming_lost_files(self) -> AbstractContextManager[None]:
        sources = [t for s in self.sources.values() for t in (s.log, s.quarantine)]
        return naming_lost_files(
            self.lake, [*sources, *[t for a in self.assets.values() for t in (a.name, a.changelog, a.verdicts, a.early)]]
        )

    def _advance(self, asset: str) -> Advance:
        return Advance(self.reading, self.assets[asset], self.max_step)

    def _as_stored(self, asset: str) -> Advance:
        described = self.progress(asset).operator
        kept = self.assets[asset] if described is None else replace(self.assets[asset], operator=restore(described))
        return Advance(replace(self.reading, assets={**self.assets, asset: kept}, _timelines={}), kept, self.max_step)
