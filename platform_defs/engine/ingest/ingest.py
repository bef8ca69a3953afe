"""Ingest: from raw rows to the event log and the ledger, each row once.

Attempt `seq` = head + 1; append to the logs and to quarantine, marked with it; commit the ledger batch. A kill
before the last write leaves orphans, rows of a `seq` that no entry names: they are reused when the same input
comes again, and removed first when another does. Readers never see them, for they read `seq <= head`.
"""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DateType, IntegralType, StringType

from assets.contracts import EVENT_TIME_RAW, BoundedOutOfOrderness, SourceContract
from operators.columns import parameter
from operators.contract import ARRIVAL, EVENT_TIME, SEQ
from operators.timing import length_ms, millis, timestamp
from platform_defs.engine.formats.files import File
from platform_defs.engine.formats.read_errors import read_error, would_fail_again
from platform_defs.engine.formats.reader import PATH, RAW, is_columnar, read
from platform_defs.engine.formats.unreadable_files import Patience, Unread, set_aside
from platform_defs.engine.ingest import event_time_spread
from platform_defs.engine.ingest.attempts import attempt_of
from platform_defs.engine.ingest.duplicates import duplicates
from platform_defs.engine.ingest.errors import IngestError, UnreadError
from platform_defs.engine.ingest.schema_evolution import refused, widened
from platform_defs.engine.ingest.uncommitted import (
    ATTEMPT,
    clear_orphans,
    is_left_over,
    newest_named,
    remove_orphans,
    require_logs,
    take_over,
)
from platform_defs.engine.ingest.validate import BROKEN, IS_MARKER, MARK, REASON, classify
from platform_defs.engine.ingest.writer import LedgerWriter
from platform_defs.engine.inputs.schemas import log_schema
from platform_defs.engine.lake.data_skipping import Ends
from platform_defs.engine.lake.errors import LakeError
from platform_defs.engine.lake.tables import PinnedLake
from platform_defs.engine.ledger.ledger import Entry, Ledger, SourceEntry, moved
from platform_defs.engine.ledger.open_batch import Batch
from platform_defs.engine.ledger.snapshot import last_with_rows
from platform_defs.faults import point

_DUPLICATE = "_duplicate"


@dataclass(frozen=True)
class _Counts:
    """What one pass over the judged rows tells."""

    read: int
    good: int
    quarantined: int
    markers: int
    warned: int
    first: int | None
    last: int | None
    mark: int | None
    mean: float | None
    deviation: float | None
    min_key: Any = None
    max_key: Any = None


@dataclass(frozen=True)
class _Done:
    """What became of one source's files: its part of the entry, if any could be read, and those that could not be read now."""

    entry: SourceEntry | None
    unread: Sequence[Unread]


@dataclass(frozen=True)
class Ingest(LedgerWriter):
    """Lets micro-batches in.

    Args:
        patience: how often, and after what time, a read that failed through no fault of the file is tried again.
    """

    patience: Callable[[], Patience] = field(default=Patience, kw_only=True)

    def files(self, found: Sequence[File]) -> Entry | None:
        """Ingest files as one batch; those the ledger names already are passed over.

        Returns:
            The entry, or None when nothing was new.

        Raises:
            IngestError: a rule whose action is to fail was broken.
            UnreadError: files could not be read now; all others were ingested.
        """
        with self.lake.writer("ledger"):
            batch = self._begin()  # before what is new is looked up: a batch that comes between refuses this one
            fresh = self._fresh(found)
            entry, unread = self._enter(fresh, batch) if fresh else (None, [])
        if unread:
            raise UnreadError(unread, [entry] if entry else [])
        return entry

    def _fresh(self, found: Sequence[File]) -> dict[str, list[File]]:
        fresh: dict[str, list[File]] = {}
        for source in sorted({f.source for f in found}):
            mine = [f for f in found if f.source == source]
            known = self.ledger.known(source, mine)
            files = sorted({f.path: known.judged(f) for f in mine if not known.holds(f)}.values())
            fresh |= {source: files} if files else {}
        return fresh

    def _enter(self, fresh: Mapping[str, Sequence[File]], batch: Batch) -> tuple[Entry | None, list[Unread]]:
        last = self.ledger.last()
        attempts = {name: attempt_of(batch.seq, self.contracts[name], files, batch.now) for name, files in fresh.items()}
        require_logs(self.lake, self.ledger, self.contracts)
        clear_orphans(self.spark, self.lake, batch, self.contracts, attempts)
        done = self._side_by_side(lambda name: self._ingested(batch, self.contracts[name], fresh[name], last.get(name)), list(fresh))
        unread = [u for d in done for u in d.unread]
        read = tuple(d.entry for d in done if d.entry is not None)
        if not read:
            return None, unread
        point("ingest.before_ledger")
        entry = read + self._silent(batch, last, set(fresh))
        batch.commit([entry])
        point("ingest.after_ledger")
        return entry, unread

    def _side_by_side(self, work: Callable[[str], _Done], names: Sequence[str]) -> list[_Done]:
        """Do the work of every source: one source's planning and commits take place beside another's rows."""
        with ThreadPoolExecutor(len(names)) as pool:
            return list(pool.map(work, names))

    def _silent(self, batch: Batch, last: Mapping[str, SourceEntry], named: set[str]) -> Entry:
        """Sources that brought nothing for longer than their idle timeout, and were not idle yet."""
        return tuple(
            moved(row, seq=batch.seq, kind="silent", ingested_at=batch.now, idle=True)
            for name, row in idle_sources(self.ledger, self.contracts, batch.now).items()
            if name not in named
        )

    def _ingested(self, batch: Batch, contract: SourceContract, files: Sequence[File], last: SourceEntry | None) -> _Done:
        """Ingest a source's files. Those with damaged content are set aside, those that cannot be read now are passed over."""
        patience, unread = self.patience(), list[Unread]()
        while files:
            try:
                for column in refused(self.spark, contract, files):
                    raise IngestError.refused(contract.name, column)
                return _Done(self._source(batch, widened(self.spark, self.lake, contract, files), files, last), unread)
            except (PySparkException, Py4JJavaError) as error:
                before = patience.used
                sifted = set_aside(self.spark, contract, files, patience)
                found = sifted.unread or [f.fault for f in sifted.files] != [f.fault for f in files]
                if not found and not (_may_pass(error) and (patience.used > before or patience.wait())):
                    raise
            files, unread = sifted.files, unread + sifted.unread
            clear_orphans(self.spark, self.lake, batch, {contract.name: contract})
        return _Done(None, unread)

    def _source(self, batch: Batch, contract: SourceContract, files: Sequence[File], last: SourceEntry | None) -> SourceEntry:
        judged = self._judged(contract, files, batch.now)
        if not is_columnar(files):  # text would be parsed again by every pass; columns are cheaper read again than kept
            judged = judged.persist()
        try:
            counts = self._count(judged, contract)
            repeated = self._repeated(judged, contract, counts)
            accepted = self._write(judged, repeated, contract, counts, batch, attempt_of(batch.seq, contract, files, batch.now))
            blank = SourceEntry(seq=batch.seq, kind="rows", ingested_at=batch.now, source=contract.name)
            return replace(
                moved(last or blank, seq=batch.seq, kind="rows", ingested_at=batch.now, idle=False),
                watermark=_watermark(contract, counts, last),
                max_event_time=max((t for t in (counts.last, last and last.max_event_time) if t is not None), default=None),
                first_event_time=counts.first,
                last_event_time=counts.last,
                rows_read=counts.read,
                accepted=accepted,
                duplicate=counts.good - accepted,
                quarantined=counts.quarantined,
                markers=counts.markers,
                warned=counts.warned,
                offsets=tuple(f.offset for f in files),
                spread=self._spread(judged, counts),
            )
        finally:
            judged.unpersist()

    def _judged(self, contract: SourceContract, files: Sequence[File], now: int) -> DataFrame:
        """The files' rows, typed, each with the reason why it stays out, if there is one."""
        return classify(read(self.spark, contract, files), contract, now, self.ledger.true_now())

    def _count(self, judged: DataFrame, contract: SourceContract) -> _Counts:
        good = F.col(REASON).isNull() & ~F.col(IS_MARKER)
        failing = [r.name for r in contract.rules if r.action == "fail"]
        row = judged.agg(
            F.count("*").alias("read"),
            F.count_if(good).alias("good"),
            F.count_if(F.col(REASON).isNotNull()).alias("quarantined"),
            F.count_if(F.col(REASON).isNull() & F.col(IS_MARKER)).alias("markers"),
            F.count_if(good & (F.size(BROKEN) > 0)).alias("warned"),
            F.min(F.when(good, millis(F.col(EVENT_TIME)))).alias("first"),
            F.max(F.when(good, millis(F.col(EVENT_TIME)))).alias("last"),
            F.max(F.when(F.col(REASON).isNull(), millis(F.col(MARK)))).alias("mark"),
            *event_time_spread.aggregates(good),
            *[of(F.when(good, F.col(k))).alias(f"{of.__name__}_key") for k in _ranged_key(contract) for of in (F.min, F.max)],
            *[F.count_if(good & F.array_contains(BROKEN, name)).alias(f"failed_{name}") for name in failing],
        ).first()
        counts: dict[str, Any] = row.asDict() if row else {}
        broken = {name: counts.pop(f"failed_{name}") for name in failing}
        if any(broken.values()):
            raise IngestError.rule_failed(contract.name, {k: v for k, v in broken.items() if v})
        return _Counts(**counts)

    def _spread(self, judged: DataFrame, counts: _Counts) -> tuple[int, ...]:
        """How the rows' times lie, where they lie unevenly."""
        uneven = event_time_spread.is_uneven(counts.good, counts.first, counts.last, counts.mean, counts.deviation)
        return event_time_spread.quantiles(judged, _is_good()) if uneven else ()

    def _repeated(self, judged: DataFrame, contract: SourceContract, counts: _Counts) -> DataFrame | None:
        if not contract.unique_key or counts.first is None or counts.last is None:
            return None
        horizon = length_ms(contract.duplicate_horizon, "duplicate_horizon")
        times = event_time_spread.ranges(judged, _is_good(), counts.first, counts.last, horizon)
        within: dict[str, Ends | list[Ends]] = {EVENT_TIME: [*times]}
        within |= dict.fromkeys(_ranged_key(contract), (counts.min_key, counts.max_key))
        log = self.lake.read(self.spark, contract.log, log_schema(contract), within)
        newest = last_with_rows(self.ledger, contract.name)
        known = log.where(F.col(SEQ) <= parameter(newest, F.col(SEQ)))
        return duplicates(judged.where(_is_good()), known, contract.unique_key, horizon, counts.good)

    def _write(
        self,
        judged: DataFrame,
        repeated: DataFrame | None,
        contract: SourceContract,
        counts: _Counts,
        batch: Batch,
        attempt: dict[str, Any],
    ) -> int:
        """Append what is due; returns how many rows of the entry the log holds."""
        good = judged.where(_is_good())
        events = good if repeated is None else good.join(repeated, ARRIVAL, "left_anti")
        seq = parameter(batch.seq, F.col(ARRIVAL)).alias(SEQ)
        log = events.select(seq, ARRIVAL, EVENT_TIME, EVENT_TIME_RAW, *contract.struct.fieldNames())
        to_append = counts.good if repeated is None else counts.good - repeated.count()
        held = self._append(contract, batch, attempt, log, contract.log, to_append, [SEQ, EVENT_TIME, *contract.unique_key[:1]])
        if held != to_append:
            raise IngestError.miscounted(contract.name, to_append, held)
        point("ingest.after_log")
        rejects = judged.where(F.col(REASON).isNotNull())
        quarantined = rejects.select(
            seq,
            ARRIVAL,
            F.col(REASON).alias("reason"),
            F.col(RAW).alias("raw"),
            F.col(PATH).alias("path"),
            timestamp(parameter(batch.now, F.col(ARRIVAL))).alias("ingested_at"),
        )
        kept = self._append(contract, batch, attempt, quarantined, contract.quarantine, counts.quarantined, [SEQ])
        if kept != counts.quarantined:
            raise IngestError.miscounted(contract.name, counts.quarantined, kept)
        point("ingest.after_quarantine")
        return held

    def _append(
        self,
        contract: SourceContract,
        batch: Batch,
        attempt: dict[str, Any],
        rows: DataFrame,
        table: str,
        count: int,
        pruned_by: Sequence[str],
    ) -> int:
        """Append the rows unless an attempt at the same input left just them; returns how many the table holds of `seq`."""
        pinned = PinnedLake.of(self.lake)
        left, named = pinned.newest(table, ATTEMPT), newest_named(self.ledger, contract)[table]
        if self.ledger.head >= batch.seq:
            raise LakeError.overtaken("ledger", "batch")
        if left is not None and left.value != attempt and is_left_over(left.value, named):
            raise LakeError.overtaken(table, ATTEMPT)  # another left them after this one had cleared the orphans
        if left is not None and left.value == attempt:
            if left.rows == count:
                take_over(pinned, table, left)
                return count
            remove_orphans(self.spark, pinned, table, batch.seq - 1, batch)
            left = self.lake.newest(table, ATTEMPT)
        if count == 0:
            return 0
        point("ingest.before_append")
        known = None if left is None else left.value
        return self.lake.append(rows, table, {ATTEMPT: attempt}, after=known, pruned_by=pruned_by, widen=True, unnamed=not named)


def idle_sources(ledger: Ledger, contracts: Mapping[str, SourceContract], now: int) -> dict[str, SourceEntry]:
    """The sources that have been silent for longer than their idle timeout and are not recorded as idle yet, by the wall clock.

    A source is heard of by its rows, and by a watermark that is given to it. One never seen has been silent since the ledger's
    first entry. One that an earlier version recorded as idle is recorded again, so that the present rule holds from then on.
    """
    now, began = min(now, ledger.true_now()), ledger.began()
    last, found = ledger.last(), dict[str, SourceEntry]()
    for name, contract in contracts.items():
        row = last.get(name) or SourceEntry(seq=0, kind="silent", ingested_at=began, source=name)
        heard = ledger.heard(name)
        silent = now - (began if heard is None else heard)
        recorded = row.idle and not ledger.source(name).is_idle_by_old_rule
        if contract.idle_timeout is not None and not recorded and silent > length_ms(contract.idle_timeout, "idle_timeout"):
            found[name] = row
    return found


def _ranged_key(contract: SourceContract) -> list[str]:
    """The key's first column, where files can be chosen by its range: of a type that Python tells back exactly."""
    return [k for k in contract.unique_key[:1] if isinstance(contract.struct[k].dataType, (IntegralType, StringType, DateType))]


def _may_pass(error: Exception) -> bool:
    """Whether what failed, though every file can be read, may succeed when it is tried again."""
    return read_error(error).kind == "transient" and not would_fail_again(error)


def _is_good() -> Column:
    return F.col(REASON).isNull() & ~F.col(IS_MARKER)


def _watermark(contract: SourceContract, counts: _Counts, last: SourceEntry | None) -> int | None:
    how = contract.watermark
    bounded = None if counts.last is None or not isinstance(how, BoundedOutOfOrderness) else counts.last - how.bound_ms - 1
    found = bounded if isinstance(how, BoundedOutOfOrderness) else counts.mark
    return max((w for w in (found, last and last.watermark) if w is not None), default=None)
