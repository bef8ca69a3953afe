"""The engine: the one object through which assets, sensors, the CLI and tests work on a lake."""

import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass, field, replace
from datetime import date
from functools import cached_property
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from assets.contracts import DerivedAsset, SourceContract
from operators.columns import FINAL_AT
from operators.contract import ByTimeRange, Early, plain
from operators.timing import instant
from operators.triggers import IS_FINAL, ROWS_SEEN
from platform_defs.engine.accounting.account import account, names_rows, pairs, uncounted_entries
from platform_defs.engine.accounting.day_accounts import DayAccount
from platform_defs.engine.accounting.one_step import LawError, account_step
from platform_defs.engine.advance.advance import Advance, Step
from platform_defs.engine.advance.pending_work import PendingWork
from platform_defs.engine.advance.step_error import naming_step_errors
from platform_defs.engine.formats.delta_change_feed import Landed, land_changes
from platform_defs.engine.formats.files import File
from platform_defs.engine.ingest.change_feed import check_feed
from platform_defs.engine.ingest.control_batches import Signals
from platform_defs.engine.ingest.errors import UnreadError
from platform_defs.engine.ingest.ingest import Ingest
from platform_defs.engine.ingest.new_files import Landing, landings
from platform_defs.engine.ingest.quarantine import Quarantine
from platform_defs.engine.ingest.replay import Replay
from platform_defs.engine.ingest.stream import OnEntry, OnQuiet, Stream, writer_name
from platform_defs.engine.inputs.handled_batches import handled
from platform_defs.engine.inputs.pipeline_checks import checked_assets
from platform_defs.engine.inputs.progress import PROGRESS, Progress, ProgressError, progress, readers_of, results_table, stored_progress
from platform_defs.engine.inputs.reader import LATE, Reading
from platform_defs.engine.lake.missing_files import naming_lost_files
from platform_defs.engine.lake.tables import Lake, PinnedLake
from platform_defs.engine.ledger.ledger import Entry, Ledger
from platform_defs.engine.ledger.snapshot import LedgerView
from platform_defs.engine.operations.maintenance import Maintained, Maintenance
from platform_defs.engine.operations.metrics import measured
from platform_defs.engine.operations.publish import publish
from platform_defs.engine.operations.rebuild import Rebuilt, empty, rebuild
from platform_defs.engine.operations.time_travel import as_far_as, as_known_now, as_of


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

    def __post_init__(self) -> None:
        object.__setattr__(self, "assets", checked_assets(self.lake.root, self.sources, self.assets, self.folders))

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
    def ingester(self) -> Ingest:
        """Lets micro-batches of files in."""
        return Ingest(self.spark, self.lake, self.ledger, self.sources, require=self._require_what_was_handled)

    @cached_property
    def signals(self) -> Signals:
        """Writes entries without rows."""
        return Signals(self.spark, self.lake, self.ledger, self.sources, require=self._require_what_was_handled)

    @cached_property
    def replay(self) -> Replay:
        """Lets a recorded sequence of entries in."""
        return Replay(self.spark, self.lake, self.ledger, self.sources, require=self._require_what_was_handled)

    @cached_property
    def quarantine(self) -> Quarantine:
        """What was kept out, and the ways back in."""
        return Quarantine(self.spark, self.lake, self.ledger, self.sources, self.folders, require=self._require_what_was_handled)

    @property
    def stream(self) -> Stream:
        """Ingests what lands in the sources' folders."""
        return Stream(self.spark, self.lake, self.ingester, self.folders, self.max_files, self.landings, self.signals.idle)

    @cached_property
    def landings(self) -> Mapping[str, Landing]:
        """What finds new files in the folders of this machine, by source."""
        return landings(self.folders, self.ledger)

    def remembering(self, other: "Engine") -> "Engine":
        """This engine with what another on the same lake and folders has read of the ledger and the folders, so as not to read it again."""
        self.__dict__.update(ledger=other.ledger, landings=other.landings)
        return self

    def ingest(self, every: str | None = None, on_entry: OnEntry = lambda _: None, on_quiet: OnQuiet = lambda: None) -> list[Entry]:
        """Ingest what has landed, and record the sources that have fallen idle.

        Args:
            every: stay, and look for files at this interval, such as `'30 seconds'`; None to end when all is ingested.
            on_entry: called after each entry of files is committed, and where the stream stays, after one of idle sources.
            on_quiet: called at each interval that brought no entry, where the stream stays.

        Raises:
            LedgerError: the ledger lacks an entry that an asset has handled.
            UnreadError: files could not be read now, and `every` is None; all others were ingested.
        """
        with self._naming_lost_files():
            try:
                made = self.stream.run(every, on_entry, on_quiet)
            except UnreadError:  # what cannot be read keeps no other source's silence from being recorded
                self.signals.idle()
                raise
            idle = self.signals.idle()
        return [*made, idle] if idle else made

    def new_files(self, source: str) -> list[File]:
        """The files in a source's folder of this machine that the ledger does not record as they are now. Needs no session."""
        return self.landings[source].new() if source in self.landings else []

    def ingesting(self) -> str | None:
        """Who lets in what lands in the folders just now; None for nobody."""
        return self.lake.busy(writer_name(self.folders))

    def advancing(self) -> str | None:
        """Who writes one of the assets just now; None for nobody."""
        return next((busy for name in self.assets if (busy := self.lake.busy(name))), None)

    def drain(self) -> Entry | None:
        """Close the end of the input, far enough for every asset, those made of other assets too.

        Raises:
            LedgerError: the ledger lacks an entry that an asset has handled.
        """
        reach = sum(
            max(a.operator.reads.reach) + a.operator.reads.delay for a in self.assets.values() if isinstance(a.operator.reads, ByTimeRange)
        )
        return self.signals.drain(reach)

    def steps(self, asset: str, until: int | None = None) -> Generator[Step]:
        """Advance an asset, one committed step after the other."""
        with naming_step_errors(asset), self._naming_lost_files():
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
        with naming_step_errors(asset), self._naming_lost_files():
            return rebuild(self._advance(asset), first, last)

    def remake(self, names: Sequence[str], *, downstream: bool = False) -> Iterator[tuple[str, Step]]:
        """Make tables again from the log under their present settings, each after those that it reads; yields their steps.

        Args:
            names: the assets.
            downstream: also every asset that is made of them; without it there must be none that has a table.

        Raises:
            ProgressError: a table that is not to be made again is made of one that is.
        """
        readers = readers_of(self.assets, names)
        made = [name for name in readers if stored_progress(self.lake, self.assets[name]).step]
        if made and not downstream:
            raise ProgressError.read_by(names, made)
        again = [name for name in self.assets if name in names or name in readers]
        with self._naming_lost_files():
            for name in again:
                empty(self._advance(name))
        for name in again:
            for step in self.steps(name):
                yield name, step

    def snapshot(self) -> "Engine":
        """This engine on the lake as it is now, whatever is committed later: to look at several tables that fit each other."""
        lake = PinnedLake.of(self.lake)
        for asset in reversed([*self.assets.values()]):  # a table before those that it is made of, and all before the ledger
            lake.delta(results_table(asset))
            lake.delta(asset.name)
        pinned = replace(self, lake=lake)
        pinned.__dict__["ledger"] = LedgerView.of(self.ledger)
        return pinned

    def maintain(self, **limits: Any) -> list[Maintained]:
        """Compact what is in many small files, delete what no version needs, and make checkpoints; see `Maintenance`."""
        self._require_what_was_handled()
        return self._maintenance(**limits)()

    def _maintenance(self, **limits: Any) -> Maintenance:
        return Maintenance(self.spark, self.lake, self.ledger, self.sources, self.assets, **limits)

    def account(self, asset: str, days: tuple[date, date] | None = None) -> list[DayAccount]:
        """Account for every row of the asset's sources, by side and day, all as they are at one time.

        Raises:
            ProgressError: its table was made with other settings.
        """
        with self._naming_lost_files():
            return account(self._pinned(asset), days)

    def account_step(self, asset: str, step: Step) -> list[DayAccount]:
        """Account for the rows whose fate one step has settled, at the cost of the step."""
        with self._naming_lost_files():
            return account_step(self._pinned(asset), step)

    def pairs(self, asset: str) -> int | None:
        """How many of an asset's results are made of a row of every input; None where results do not name rows of sources."""
        with self._naming_lost_files():
            advance = self._pinned(asset)
            return pairs(advance) if names_rows(advance) else None

    def uncounted(self, asset: str, days: tuple[date, date] | None = None) -> dict[tuple[str, int], tuple[int, int]]:
        """Where ledger and log disagree about an asset's sources: (source, seq) to accepted and held; by the rows' days."""
        with self._naming_lost_files():
            return uncounted_entries(self._pinned(asset), days)

    def late(self, asset: str, source: str) -> DataFrame:
        """The view `late/<asset>`: a source's rows that came too late for the asset."""
        advance = self._pinned(asset)
        judged = advance.reading.judged(advance.asset, advance.asset.inputs.index(source), advance.reading.ledger.head)
        return plain(judged.where(LATE).drop(LATE))

    def table(self, name: str) -> DataFrame:
        """A table of the lake."""
        return self.lake.frame(self.spark, name)

    def so_far(self, asset: str) -> DataFrame:
        """An asset's results with `is_final` (boolean): those that are final, and below them what open windows hold so far.

        A result that was shown early and is final by now is there once, final; so it is beside a running advance.
        """
        derived = self.assets[asset]
        commit = self.lake.newest(asset, PROGRESS)
        early = self.lake.read(self.spark, derived.early, self.lake.schema(derived.early)).drop(ROWS_SEEN)
        if commit is None:
            return early
        closed_to = Progress.recorded(asset, commit.value).closed_to
        results = self.spark.read.format("delta").option("versionAsOf", commit.version).load(self.lake.path(asset))
        final = results.withColumn(IS_FINAL, F.lit(True))
        if not early.columns or not isinstance(derived.operator, Early) or derived.operator.early is None:
            return final
        open_still = early if closed_to is None else early.where(F.col(FINAL_AT) > instant(closed_to, F.col(FINAL_AT)))
        return final.unionByName(open_still)

    def measured(self, asset: str) -> dict[str, int | float]:
        """The metrics of an upserted table: partitions, rows held, changes for each row that came in; see `boards`."""
        return measured(self._pinned(asset))

    def repair(self, asset: str) -> int:
        """Recompute an upserted table, and put right what differs; returns how many changes that took."""
        with self._naming_lost_files():
            return sum(self._advance(asset).repair().values())

    def follow(self, table: str, source: str, *, first: int = 0) -> list[Landed]:
        """Land what changed in a Delta table since the last time as input of a source, which `ingest` takes; see `land_changes`.

        Raises:
            ChangeFeedError: the table cannot be followed, or the source would not take its changes as what they are.
        """
        check_feed(self.sources[source], self.assets.values(), self.folders[source])
        return land_changes(table, Path(self.folders[source]), first=first)

    def publish(self, asset: str, folder: str) -> int:
        """Write an upserted table's changes to a folder, as keyed upserts with tombstones; returns the last step it holds then."""
        with self._naming_lost_files():
            return publish(self.reading, self.assets[asset], folder)

    def pinned(self, asset: str) -> tuple[DataFrame, DataFrame] | None:
        """An upserted table and its changelog, both as far as its newest step; None where there is none yet. Beside a writer too."""
        step = self.progress(asset).step
        return as_far_as(self.reading, self.assets[asset], step) if step else None

    def as_of(self, asset: str, time: int) -> DataFrame:
        """An upserted table as it was at a time (epoch ms, by the ledger's clock)."""
        return as_of(self.reading, self.assets[asset], time)

    def as_known_now(self, asset: str, time: int) -> DataFrame:
        """An upserted table of the rows with event times up to `time` (epoch ms) alone, however late they came."""
        return as_known_now(self.reading, self.assets[asset], time)

    def progress(self, asset: str) -> Progress:
        """How far an asset has come."""
        return stored_progress(self.lake, self.assets[asset])

    def event_times(self, asset: str) -> tuple[int, int] | None:
        """The oldest and the newest event time of an asset's sources; see `PendingWork.event_times`."""
        return self.pending.event_times(asset)

    def described(self, asset: str) -> dict[str, Any]:
        """How far an asset has come; see `PendingWork.described`."""
        return self.pending.described(asset)

    @property
    def pending(self) -> PendingWork:
        """How far assets have come, and what an advance would reach; asked without a session."""
        return PendingWork(Reading(None, self.lake, self.ledger, self.sources, self.assets))  # pyright: ignore[reportArgumentType]

    def _require_what_was_handled(self) -> None:
        """Pass if the ledger has every batch that a table has handled; the next would take a lost one's number, and its rows' place."""
        for table, seq in handled(self.lake, self.assets):
            self.ledger.require(seq, f"table {table}")

    def _naming_lost_files(self) -> AbstractContextManager[None]:
        sources = [t for s in self.sources.values() for t in (s.log, s.quarantine)]
        return naming_lost_files(
            self.lake, [*sources, *[t for a in self.assets.values() for t in (a.name, a.changelog, a.verdicts, a.early)]]
        )

    def _advance(self, asset: str) -> Advance:
        return Advance(self.reading, self.assets[asset], self.max_step)

    def _pinned(self, asset: str) -> Advance:
        """An asset as it is now, whatever is committed later.

        Raises:
            LedgerError: the ledger lacks a batch that the asset has handled.
            ProgressError: its table was made with other settings, or of tables that were made again since.
        """
        advance = self._advance(asset).pinned()
        now = progress(advance.reading.lake, advance.asset)
        self.ledger.require(now.seq, f"table {asset}")
        advance.reading.require_same_inputs(advance.asset, now)
        return advance
