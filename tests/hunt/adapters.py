"""The engine's own classes on an in-memory lake. Only Spark's computations on rows are replaced, by functions of tuples."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from datetime import date
from functools import cached_property, partial
from statistics import fmean, pstdev
from typing import Any

import pyarrow as pa

from assets.contracts import DerivedAsset, SourceContract
from assets.days import day_of
from operators.steps import ByTimeRange
from operators.timing import ClosedRange, length_ms
from platform_defs.engine.accounting.accounts import Accounts
from platform_defs.engine.accounting.day_accounts import DayAccount
from platform_defs.engine.advance.advance import Advance
from platform_defs.engine.advance.appended_table import AppendedTable
from platform_defs.engine.advance.closed_ranges import ClosedRanges
from platform_defs.engine.advance.corrections import add_correction
from platform_defs.engine.advance.step_size import SHARES
from platform_defs.engine.engine import Engine
from platform_defs.engine.faults import point
from platform_defs.engine.formats.files import File, FileRecords
from platform_defs.engine.ingest.event_time_spread import is_uneven
from platform_defs.engine.ingest.ingest import Ingest, IngestError, _SourceResult
from platform_defs.engine.ingest.ingestion import Ingestion
from platform_defs.engine.ingest.new_files import FileFinder, StoreFileFinder
from platform_defs.engine.ingest.stream import Stream
from platform_defs.engine.inputs.handled_batches import require_handled_batches
from platform_defs.engine.inputs.progress import Progress
from platform_defs.engine.inputs.span import Span
from platform_defs.engine.lake.errors import LakeError
from platform_defs.engine.ledger.errors import LedgerError
from platform_defs.engine.ledger.ledger import TABLE, Ledger, SourceBatch
from platform_defs.engine.ledger.open_batch import OpenBatch
from platform_defs.engine.ledger.rows import table_of
from platform_defs.engine.ledger.store import Version as LedgerVersion
from platform_defs.engine.ledger.store import make_empty_commit
from platform_defs.engine.operations.failures import Failures
from platform_defs.engine.operations.maintenance import Maintenance, _Table
from tests.hunt.accounts import sim_account
from tests.hunt.frames import LOG, REJECTS, Rows
from tests.hunt.inputs import read_input, read_table
from tests.hunt.lake import SimLake, Snapshot, rows_of
from tests.hunt.ledger import LedgerRow, Part, within
from tests.hunt.operators import difference
from tests.hunt.process import StoreFault
from tests.hunt.store import Conflict, Event, Version

POSITION_BITS = 42
_CHECKED: dict[tuple[int, ...], tuple[tuple[Any, ...], Mapping[str, DerivedAsset]]] = {}
"""Assets as the engine has checked and ordered them, with their definitions, by the `id` of each definition."""


def _unlock(*classes: type) -> None:
    """Remove the lock that a cached property of Python 3.11 shares among all instances: processes share no lock."""
    for attribute in (value for kind in classes for value in vars(kind).values() if isinstance(value, cached_property)):
        if hasattr(attribute, "lock"):
            vars(attribute)["lock"] = nullcontext()


_unlock(Engine, FileRecords)


@dataclass
class SimLedgerStore:
    """Keeps the ledger's rows in memory: a part for each commit, as a table and as objects."""

    lake: SimLake
    _seen: Snapshot | None = None

    @property
    def name(self) -> str:
        return self.lake.path(TABLE)

    @property
    def seen(self) -> Version | None:
        """The version that was read last."""
        return None if self._seen is None else self._seen.seen

    def refresh(self) -> LedgerVersion | None:
        try:
            self._seen = self.lake.delta(TABLE)
        except OSError as error:
            raise LedgerError.unreadable(0, self.name, self.name, str(error)) from error
        return None if self._seen is None else LedgerVersion(self._seen.identity, self._seen.version(), len(self._seen.seen.rows))

    def rows(self, columns: Sequence[str], after: int = 0, upto: int | None = None) -> Iterator[pa.Table]:
        parts = {} if self._seen is None else {id(row.part): row.part for row in self._seen.seen.rows}
        for part in parts.values():
            if part.last > after and (upto is None or part.first <= upto):
                whole = part.first > after and (upto is None or part.last <= upto)
                table = part.ints if whole else part.ints.filter(within(part.ints["seq"], after, part.last if upto is None else upto))
                yield table.select(list(columns))

    def append(self, rows: pa.Table) -> None:
        part = Part.of(rows)
        self.lake.append_small([LedgerRow(source_batch, part) for source_batch in part.rows], TABLE, expected=self._seen)

    def replace(self, rows: pa.Table, upto: int) -> None:
        assert self._seen is not None
        seen, held = self._seen, [row for row in self._seen.seen.rows if row.source_batch.seq > upto]
        part = Part.of(pa.concat_tables([rows, table_of([(row.source_batch,) for row in held])]))
        replaced = tuple(LedgerRow(source_batch, part) for source_batch in part.rows)
        try:
            self.lake.commit(TABLE, lambda _: replaced, {}, written=rows.num_rows, seen=seen.version())
        except Conflict as conflict:
            raise LakeError.overtaken(TABLE, "version") from conflict

    def fence(self) -> None:
        make_empty_commit(self.lake, self._seen, [])

    def files_of(self, seq: int) -> list[str]:
        return []

    def compact(self) -> None:
        point("ledger.before_compact")
        self.lake.optimize(None, TABLE)
        point("ledger.after_compact")


class SimLedger(Ledger):
    """The ledger. All processes share what is derived from a version, since each would derive the same."""

    _store: SimLedgerStore

    def _read_rows(self) -> None:
        seen = self._store.seen
        memo = self._store.lake.store.memo
        known = self._history
        key = "history", id(known) if known.head else 0, id(seen)
        if key not in memo:
            super()._read_rows()
            memo[key] = self._history, dict(self._last), known, seen  # an object in the cache keeps its `id`
            return
        self._history, last, _, _ = memo[key]
        self._last = {**self._last, **last}


@dataclass(frozen=True)
class Validated:
    """Parsed rows with the reasons of quarantined ones: `(arrival, event, reason, file)`."""

    rows: Sequence[tuple[int, Event, str | None, str]]

    def unpersist(self) -> None:
        return None


@dataclass(frozen=True)
class SimIngest(Ingest):
    """Ingestion from files in memory."""

    lake: SimLake

    def _in_parallel(self, work: Callable[[str], _SourceResult], names: Sequence[str]) -> list[_SourceResult]:
        return [work(name) for name in names]

    def _ingest_source(self, batch: OpenBatch, contract: SourceContract, files: Sequence[File], last: SourceBatch | None) -> _SourceResult:
        return _SourceResult(self._ingest_once(batch, contract, files, last), [])

    def _computed_once(self, contract: SourceContract, files: Sequence[File], now: int) -> tuple[Any, dict[str, Any]]:
        validated = self.lake.process.call(lambda _: Validated(_validated_rows(self.lake, contract, files, self.ledger.wall_clock())))
        good = [event.t for _, event, reason, _ in validated.rows if reason is None]
        n = len(validated.rows)
        counts: dict[str, Any] = {"read": n, "good": len(good), "quarantined": n - len(good), "markers": 0, "warned": 0, "watermark": None}
        counts |= {"first": min(good, default=None), "last": max(good, default=None)}
        return validated, counts | {"mean": fmean(good) if good else None, "deviation": pstdev(good) if good else None}

    def _spread(self, validated: Any, counts: Any) -> tuple[int, ...]:
        times = sorted(event.t for _, event, reason, _ in validated.rows if reason is None)
        if not is_uneven(counts.good, counts.first, counts.last, counts.mean, counts.deviation):
            return ()
        return tuple(times[round(share * (len(times) - 1))] for share in SHARES)

    def _find_duplicates(self, validated: Any, contract: SourceContract, counts: Any, newest: int) -> Any:
        if not contract.unique_key or counts.first is None:
            return None
        horizon = length_ms(contract.duplicate_horizon, "duplicate_horizon")
        held = [(row[4], row[2]) for row in rows_of(self.lake, contract.log, LOG) if row[0] <= newest]
        repeated = set[int]()
        for arrival, event, reason, _ in validated.rows:
            if reason is None:
                if any(uid == event.uid and abs(t - event.t) <= horizon for uid, t in held):
                    repeated.add(arrival)
                else:
                    held.append((event.uid, event.t))
        return repeated or None

    def _write(
        self,
        validated: Any,
        repeated: Any,
        contract: SourceContract,
        counts: Any,
        batch: OpenBatch,
        attempt: dict[str, Any],
        has_offsets: bool,
    ) -> int:
        seq, duplicates = batch.seq, repeated or set()
        log = [(seq, arrival, e.t, e.k, e.uid) for arrival, e, reason, _ in validated.rows if reason is None and arrival not in duplicates]
        held = self._append(contract, batch, attempt, Rows(LOG, log), contract.log, counts.good - len(duplicates), [])
        if held != counts.good - len(duplicates):
            raise IngestError.miscounted(contract.name, counts.good - len(duplicates), held)
        point("ingest.after_log")
        rejects = [(seq, arrival, e.uid, reason) for arrival, e, reason, _ in validated.rows if reason is not None]
        kept = self._append(contract, batch, attempt, Rows(REJECTS, rejects), contract.quarantine, counts.quarantined, [])
        if kept != counts.quarantined:
            raise IngestError.miscounted(contract.name, counts.quarantined, kept)
        point("ingest.after_quarantine")
        return held


def _validated_rows(lake: SimLake, contract: SourceContract, files: Sequence[File], now: int) -> list[tuple[int, Event, str | None, str]]:
    found: list[tuple[int, Event, str | None, str]] = []
    ahead = None if contract.future_skew is None else now + length_ms(contract.future_skew, "future_skew")
    for rank, file in enumerate(sorted(files)):
        name = file.path.rsplit("/", 1)[-1]
        if file.fault:
            found.append((rank << POSITION_BITS, Event(-1, None, 0), file.fault, name))
            continue
        landed = lake.store.landing.get((contract.name, name))
        if landed is None:
            raise StoreFault(f"{file.path} has disappeared")
        for n, event in enumerate(landed.events):
            reason = "bad" if event.is_bad else "future" if ahead is not None and event.t > ahead else None
            found.append(((rank << POSITION_BITS) + n, event, reason, name))
    return found


class SimFileFinder(StoreFileFinder):
    """Finds new files of a source in memory; a stale listing lacks the newest."""

    def __init__(self, source: str, folder: str, ledger: Ledger, lake: SimLake) -> None:
        super().__init__(source, folder, ledger)
        self._lake = lake

    def prepare(self, spark: Any) -> None:
        """A folder in memory needs no preparation."""

    def _pages(self, spark: Any) -> Iterator[list[File]]:
        yield self._lake.process.call(self._listed)

    def _listed(self, stale: bool) -> list[File]:
        files = [
            File(f.modified, f"{self._folder}/{f.name}", f.length, self._source, folder=self._folder)
            for (landed_for, _), f in self._lake.store.landing.items()
            if landed_for == self._source
        ]
        return sorted(files)[:-1] if stale else sorted(files)


@dataclass(frozen=True)
class SimClosedRanges(ClosedRanges):
    """Advances over tuples: the closed results and their differences are computed here; the plan is the engine's own."""

    def _results_in(self, closing: ClosedRange, head: int, versions: Any) -> Any:
        reads = self.asset.operator.reads
        assert isinstance(reads, ByTimeRange)
        spans = [Span(*reads.span_of(i, closing.after, closing.upto)) for i in range(len(reads.lookback))]
        frames = [read_input(self.workspace, self.asset, i, head, span) for i, span in enumerate(spans)]
        rows: Any = self.asset.rows(*frames)
        return rows.between("final_at", _first_of(closing), closing.upto)

    def correct(self, now: Progress, after: Progress, closing: ClosedRange, key: tuple[str, ...] = ()) -> tuple[Progress, int]:
        wanted = self.final_results(closing, after.seq)
        held = read_table(self.workspace, self.asset.name, "final_at", Span(_first_of(closing), closing.upto))
        removed, new = difference(held, wanted)
        if not removed and not new:
            return after, AppendedTable(self.workspace, self.asset).append(wanted.limit(0), after)
        times = [row[-1] for row in (*removed, *new)]
        after = replace(after, corrected=add_correction(now.corrected, after.step, min(times), max(times)))
        point("advance.before_commit")
        lake: Any = self.workspace.lake
        lake.replace_rows(self.asset.name, removed, new, after.metadata(now), after.step)
        point("advance.after_commit")
        return after, len(removed) + len(new)


@dataclass(frozen=True)
class SimAdvance(Advance):
    """Advances over tuples."""

    @property
    def strategy(self) -> SimClosedRanges:
        return SimClosedRanges(self.workspace, self.asset)

    def event_times(self, index: int, head: int, span: Span, after: int) -> tuple[int, int] | None:
        times = [row[2] for row in read_input(self.workspace, self.asset, index, head, span, after)]
        return (min(times), max(times)) if times else None

    def differing_days(self, closing: ClosedRange, head: int) -> dict[date, tuple[int, int]]:
        wanted: Any = self.final_results(closing, head)
        extra, missing = difference(read_table(self.workspace, self.asset.name, "final_at", Span(_first_of(closing), closing.upto)), wanted)
        lacks, has = (Counter(day_of(row[-1]) for row in rows) for rows in (missing, extra))
        return {day: (lacks[day], has[day]) for day in lacks.keys() | has.keys()}


def _first_of(closing: ClosedRange) -> int | None:
    return None if closing.after is None else closing.after + 1


@dataclass(frozen=True)
class SimMaintenance(Maintenance):
    """Maintenance in memory: a checkpoint deletes all but the newest version of a table."""

    lake: SimLake

    def _open(self, table: _Table) -> Any:
        return self.lake.delta(table.name)

    def _compact(self, table: _Table) -> None:
        point("maintenance.before_compact")
        self.ledger.compact() if table.name == TABLE else self.lake.optimize(None, table.name)
        point("maintenance.after_compact")

    def _vacuum(self, table: _Table) -> int:
        return 0

    def _checkpoint(self, table: _Table) -> None:
        point("maintenance.before_checkpoint")
        self.lake.store.forget(table.name)
        point("maintenance.after_checkpoint")


@dataclass(frozen=True)
class SimIngestion(Ingestion):
    """Ingests in memory."""

    lake: SimLake

    @cached_property
    def batches(self) -> Ingest:
        return SimIngest(self.connect(), self.lake, self.ledger, self.sources, require=self.require, looks=self.looks)

    @cached_property
    def file_finders(self) -> Mapping[str, FileFinder]:
        return {source: SimFileFinder(source, folder, self.ledger, self.lake) for source, folder in self.folders.items()}

    @property
    def stream(self) -> Stream:
        return Stream(
            self.connect(),
            self.lake,
            self.batches,
            self.folders,
            self.max_files,
            self.file_finders,
            self.control_batches.record_idle_sources,
        )


@dataclass(frozen=True)
class SimAccounts(Accounts):
    """Accounts in memory."""

    def days(self, asset: str, days: tuple[date, date] | None = None) -> list[DayAccount]:
        advance = self.snapshot(asset)
        is_readable = all(i.is_readable(advance.workspace.lake) for i in advance.workspace.inputs_of(advance.asset))
        return sim_account(advance, days) if is_readable else []

    def forget(self, asset: str) -> None:
        """The store in memory has no recorded accounts."""


@dataclass(frozen=True)
class SimFailures(Failures):
    """Records no failures: histories do not look at failures, and the store of a history has no files."""

    def recorded_of(self, asset: str) -> AbstractContextManager[None]:
        return nullcontext()

    def recorded_of_account(self, asset: str) -> AbstractContextManager[None]:
        return nullcontext()

    def recorded_of_ingest(self) -> AbstractContextManager[None]:
        return nullcontext()

    def forget_ingest(self) -> None:
        pass


@dataclass(frozen=True)
class SimEngine(Engine):
    """The engine, made from the classes above. Its configuration is checked once, and not by each process of each history."""

    lake: SimLake

    def __post_init__(self) -> None:
        definitions = *self.sources.values(), *self.assets.values()
        key = tuple(map(id, definitions))
        if key not in _CHECKED:
            super().__post_init__()
            _CHECKED[key] = definitions, self.assets  # a definition in the cache keeps its `id`
        object.__setattr__(self, "assets", _CHECKED[key][1])

    @property
    def failures(self) -> Failures:
        return SimFailures(self._workspace_without_session, self.clock)

    @cached_property
    def ledger(self) -> Ledger:
        return SimLedger(self.lake, self.clock, SimLedgerStore(self.lake))

    @cached_property
    def ingestion(self) -> SimIngestion:
        config = self.sources, self.assets, self.folders, self.max_files
        return SimIngestion(
            lambda: self.spark, self.lake, self.ledger, *config, partial(require_handled_batches, self.lake, self.ledger, self.assets)
        )

    @property
    def accounts(self) -> SimAccounts:
        return SimAccounts(self._snapshot, self._naming_lost_files, self.lake, self.assets, self.clock)

    def _maintenance(self, **limits: Any) -> Maintenance:
        return SimMaintenance(self.spark, self.lake, self.ledger, self.sources, self.assets, **limits)

    def _advance(self, asset: str) -> SimAdvance:
        return SimAdvance(self.workspace, self.assets[asset], self.max_step)

    def _naming_lost_files(self) -> AbstractContextManager[None]:
        return nullcontext()
