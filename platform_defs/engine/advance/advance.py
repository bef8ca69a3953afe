"""Advance: bring a derived asset's table from where it stands to where the watermark is, exactly once.

A step handles the ledger batches after the last one handled and closes the results between two watermarks. Where new
entries change results that are closed, a step that closes nothing corrects these first. A step's rows and its progress
are one Delta commit, so a kill anywhere loses and doubles nothing: the next run reads the
progress and goes on. The engine knows an operator by its contract alone.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from assets.contracts import DerivedAsset
from operators.changelog import CHANGE, DELETE, OWN_CHANGE, UPDATE_BEFORE, bag_changes, difference
from operators.columns import FINAL_AT, RESULT_TIME, keys_of, of_keys, same_rows
from operators.contract import ByKey, ByTimeRange, Incremental, NewRows, Upsert
from operators.errors import OperatorError
from operators.timing import ClosedRange
from platform_defs.engine.advance.corrections import affected_results, inputs_read, is_corrected, with_correction
from platform_defs.engine.advance.early_results import show
from platform_defs.engine.advance.session_lateness import judge
from platform_defs.engine.advance.step_size import changes_something, cut_entries, cut_time
from platform_defs.engine.advance.upserts import Upserting
from platform_defs.engine.days import text
from platform_defs.engine.ingest.uncommitted import require_logs
from platform_defs.engine.inputs.changelog_reader import change_column, changes, followed, rows_after, standing
from platform_defs.engine.inputs.identity import identity_of
from platform_defs.engine.inputs.progress import Progress, ProgressError, commit_step, is_emptied, progress
from platform_defs.engine.inputs.reader import EVER, Reading, Span
from platform_defs.engine.lake.table_columns import differing_columns
from platform_defs.engine.ledger.columns import pc
from platform_defs.faults import point


@dataclass(frozen=True)
class Step:
    """One step of an asset.

    Args:
        before: the progress it started from.
        after: the progress it committed.
        rows: how many rows it wrote: results, or changes.
    """

    before: Progress
    after: Progress
    rows: int


@dataclass(frozen=True)
class Advance:
    """Advances one asset.

    Args:
        reading: reads its inputs.
        asset: the asset.
        max_step: rows that one step may read, about.
    """

    reading: Reading
    asset: DerivedAsset
    max_step: int

    def __call__(self, until: int | None = None) -> Iterator[Step]:
        """Step until the asset stands at the ledger's head, its watermark, or `until` (epoch ms).

        The head is pinned when the first step starts. Each step is committed before it is yielded.

        Raises:
            LakeError: the asset has another writer, or a later version of the project made the lake.
            LedgerError: the ledger lacks an entry that the asset has handled.
            ProgressError: its table was made by another operator.
        """
        with self.reading.lake.writer(self.asset.name):
            self.recover()
            head = self.reading.ledger.head
            judge(self.reading, self.asset, head)
            while (step := self.pinned().next(head, until)) is not None:
                yield step
            show(self.reading, self.asset, head)

    def pinned(self) -> "Advance":
        """The asset and its inputs as they are now, whatever is committed later."""
        return replace(self, reading=self.reading.pinned(self.asset.name))

    def recover(self) -> Progress:
        """Apply what a killed step left, once ledger and logs are known to be whole and of a format that this version writes."""
        now = progress(self.reading.lake, self.asset)
        self.reading.ledger.require(now.seq, f"table {self.asset.name}")
        sources = {name: self.reading.sources[name] for name in self.reading.input_named(self.asset.name).sources}
        require_logs(self.reading.lake, self.reading.ledger, sources, quarantines=False)
        self.reading.require_same_inputs(self.asset, now)
        self._upserting.recover()
        return now

    def next(self, head: int, until: int | None) -> Step | None:
        """Make the next step, from what a pinned reading holds. Its commit lands only where it follows that."""
        now = progress(self.reading.lake, self.asset)
        made_of = {**now.inputs} | self.reading.input_identities(self.asset)
        next_step: dict[str, Any] = {
            "step": now.step + 1,
            "operator": identity_of(self.asset),
            "read": inputs_read(self.reading, self.asset),
            "generation": now.generation,
            "inputs": made_of,
        }
        next_step["steps_read"] = self.reading.steps_read(next_step["read"])
        closed = affected_results(self.reading, self.asset, now, head)
        if closed is not None:
            return self.correct(now, replace(now, seq=head, **next_step), closed, self._key)
        after = self._target(now, head, until)
        if after is None:
            return None
        if after.read:  # of a changelog that is followed, as far as it is applied
            next_step |= {"read": after.read, "steps_read": self.reading.steps_read(after.read)}
        after = replace(after, corrected=now.corrected, **next_step)
        upserts = isinstance(self.asset.operator.emits, Upsert)
        rows = self._upserting.commit(self._changes(now, after), after) if upserts else self._append(self.results(now, after), after)
        return Step(now, after, rows)

    def _target(self, now: Progress, head: int, until: int | None) -> Progress | None:
        """Where the next step leads; None where there is nothing to do."""
        if self._followed is not None:
            return standing(self.reading, self._followed, now.read.get(self._followed.name, 0))
        if not isinstance(self.asset.operator.reads, ByTimeRange):
            seq = cut_entries(self.reading, self.asset, now.seq, head, self.max_step)
            return Progress(seq=seq) if changes_something(self.reading, self.asset, now.seq, seq) else None
        mark = self.reading.watermark(self.asset, head)
        mark = mark if until is None or mark is None else min(mark, until)
        if mark is None or (now.closed_to is not None and mark <= now.closed_to):
            return None
        return Progress(seq=head, closed_to=cut_time(self.reading, self.asset, now.closed_to, mark, head, self.max_step))

    def results(self, now: Progress, after: Progress) -> DataFrame:
        """The rows that the step from one progress to another closes, or of the keys that it touches."""
        reads = self.asset.operator.reads
        if isinstance(reads, ByTimeRange):
            return self.closed(ClosedRange(now.closed_to, after.closed_to or 0), after.seq)
        if isinstance(reads, ByKey):
            return self._of_keys(reads, self._affected_keys(reads, now, after), after)
        return self.asset.rows(*self._new(now, after))

    def _affected_keys(self, reads: ByKey, now: Progress, after: Progress) -> DataFrame:
        """The keys that the step's rows touch: their own, and those that a row with the same `through` ever had."""
        new = self._new(now, after)
        if reads.through and self._followed is None:
            new = [of_keys(frame, keys_of(new, reads.through), reads.through) for frame in self._all(after)]
            return keys_of(new, reads.key).localCheckpoint()  # few keys, which several joins ask for
        return keys_of(new, reads.key)

    def _of_keys(self, reads: ByKey, keys: DataFrame, after: Progress) -> DataFrame:
        frames = [of_keys(frame, keys, reads.key) for frame in self._all(after)]
        if not reads.through or self._followed is not None:
            return self.asset.rows(*frames)
        others = keys_of(frames, reads.through)
        return of_keys(self.asset.rows(*[of_keys(frame, others, reads.through) for frame in self._all(after)]), keys, reads.key)

    def _all(self, after: Progress) -> list[DataFrame]:
        """Each input's rows, those that the step handles and those before."""
        if self._followed is not None:
            return [rows_after(self.reading, self._followed, after.read[self._followed.name], change_column(self.asset))]
        return [self._frame(i, after.seq) for i in range(len(self.asset.inputs))]

    def _new(self, now: Progress, after: Progress) -> list[DataFrame]:
        """Each input's rows of the entries that the step handles; or what changed in the table that the asset follows."""
        if (of := self._followed) is not None:
            last = isinstance(self.asset.operator.reads, NewRows)
            return [changes(self.reading, of, now.read.get(of.name, 0), after.read[of.name], change_column(self.asset), last=last)]
        return [self._frame(i, after.seq, after=now.seq) for i in range(len(self.asset.inputs))]

    def closed(self, closing: ClosedRange, head: int) -> DataFrame:
        """The results that a range closes, computed from the log alone."""
        reads = self.asset.operator.reads
        if not isinstance(reads, ByTimeRange):
            raise OperatorError(f"{self.asset.name} does not read closed ranges, so it has no result that is final")
        firsts = [None if closing.after is None else closing.after - reach for reach in reads.reach]
        frames = [self._frame(i, head, Span(first, closing.upto)) for i, first in enumerate(firsts)]
        return self.asset.rows(*frames).where(closing.holds(F.col(FINAL_AT)))

    def _frame(self, which: int, head: int, span: Span = EVER, after: int = 0) -> DataFrame:
        return self.reading.input(self.asset, which, head, span, after)

    def correct(self, now: Progress, after: Progress, closed: ClosedRange, key: tuple[str, ...] = ()) -> Step:
        """Recompute a stretch of closed results, and put right what differs, in one commit with the progress.

        With a key, which no two rows of the table may share, a change is an update; without one rows are deleted and inserted.
        """
        wanted = self.closed(closed, after.seq)
        self._require_same_columns(wanted)
        held = self.reading.table(self.asset.name, FINAL_AT, Span(None if closed.after is None else closed.after + 1, closed.upto))
        changes = (difference(held, wanted, key=key, change=OWN_CHANGE) if key else bag_changes(held, wanted, OWN_CHANGE)).persist()
        try:
            [(count, first, last)] = changes.agg(F.count("*"), *[f(F.unix_millis(FINAL_AT)) for f in (F.min, F.max)]).collect()
            if not count:
                return Step(now, after, self._append(wanted.limit(0), after))
            after = replace(after, corrected=with_correction(now.corrected, after.step, first, last))
            point("advance.before_commit")
            self._repair(changes, after, key, F.col(f"t.{FINAL_AT}").between(*[F.expr(text(end)) for end in (first, last)]))
            point("advance.after_commit")
            return Step(now, after, count)
        finally:
            changes.unpersist()

    def _repair(self, changes: DataFrame, after: Progress, key: tuple[str, ...], within: Column) -> None:
        is_deleted = F.col(f"c.{OWN_CHANGE}") == DELETE
        own = changes.drop(OWN_CHANGE)
        same = same_rows("t", "c", key) if key else same_rows("t", "c", own.columns, own.schema) & is_deleted
        newest = changes.where(F.col(OWN_CHANGE) != UPDATE_BEFORE)
        metadata = after.metadata(progress(self.reading.lake, self.asset))
        self.reading.lake.merge(self.asset.name, newest, same & within, is_deleted=is_deleted, metadata=metadata, number=after.step)

    def frames(self, seq: int, read: Mapping[str, int]) -> list[DataFrame]:
        """Each input's rows as far as an asset that reads no closed ranges has handled them."""
        return self._all(Progress(seq=seq, read=read))

    def whole(self, seq: int, read: Mapping[str, int]) -> DataFrame:
        """The rows of an upserted table, computed anew from all that it was made of."""
        rows = self.asset.rows(*self.frames(seq, read))
        living = self._living(Progress(seq=seq, read=read))
        return rows if living is None else of_keys(rows, living, living.columns)

    def _living(self, after: Progress) -> DataFrame | None:
        """The keys with a row that is not older than they live, at an entry's time; None where keys live for ever."""
        reads = self.asset.operator.reads
        if not isinstance(reads, ByKey) or reads.lives is None:
            return None
        _, arrived = self.reading.ledger.arrived(after.seq)
        by_event = reads.lives_by == "event"
        now = self.reading.operator_timeline(self.asset).after[after.seq] if by_event else arrived[after.seq - 1].as_py()
        if now is None:
            return None
        oldest, every = now - reads.lives, range(len(self.asset.inputs))
        if reads.lives_by == "event":
            return keys_of([self._frame(i, after.seq, Span(oldest)) for i in every], reads.key)
        before = pc.sum(pc.less(arrived, oldest)).as_py() or 0
        return keys_of([self._frame(i, after.seq, after=before) for i in every], reads.key)

    def repair(self) -> dict[str, int]:
        """Recompute an upserted table, and put right what differs, as a step of its own; returns how many changes of each kind."""
        with self.reading.lake.writer(self.asset.name):
            now = self.recover()
            return self.pinned()._repair_table(now) if now.step else {}

    def _repair_table(self, now: Progress) -> dict[str, int]:
        wanted = self.whole(now.seq, now.read)
        changes = difference(self._upserting.current(wanted), wanted, key=self._key).persist()
        try:
            kinds = {row[CHANGE]: row["count"] for row in changes.groupBy(CHANGE).count().collect()}
            if kinds:
                self._upserting.commit(changes, replace(now, step=now.step + 1))
            return kinds
        finally:
            changes.unpersist()

    def _append(self, rows: DataFrame, after: Progress) -> int:
        self._require_same_columns(rows)
        pruned_by = [c for c in (FINAL_AT, RESULT_TIME) if c in rows.columns]
        point("advance.before_commit")
        written = commit_step(self.reading.lake, self.asset, rows, after, pruned_by, followed=is_corrected(self.reading, self.asset))
        point("advance.after_commit")
        return written

    def _require_same_columns(self, rows: DataFrame) -> None:
        """Pass if the table, where there is one, holds the columns of its rows.

        Raises:
            ProgressError: it holds others: a source's contract has gained or lost a column.
        """
        held = self.reading.lake.schema(self.asset.name)
        if held.fields and not is_emptied(progress(self.reading.lake, self.asset)) and (differing := differing_columns(held, rows.schema)):
            raise ProgressError.other_columns(self.asset.name, differing)

    def _changes(self, now: Progress, after: Progress) -> DataFrame:
        """The difference between the current rows of the keys that the step decides and their rows after it."""
        operator, key = self.asset.operator, self._key
        if isinstance(operator.reads, NewRows):
            return self._folded(now, after)
        if isinstance(operator.reads, ByKey):
            keys = self._affected_keys(operator.reads, now, after)
            rows = self._of_keys(operator.reads, keys, after)
            living = self._living(after)
            if living is not None:
                if operator.reads.lives_by == "processing" and self.reading.ledger.set_back(now.seq, after.seq):
                    keys = living  # a clock that had jumped ahead took keys away that live still
                    rows = self._of_keys(operator.reads, keys, after)
                expired = self._upserting.current(rows).select(*operator.reads.key).distinct().exceptAll(living)
                keys, rows = keys.unionByName(expired).distinct(), of_keys(rows, living, living.columns)
        else:
            rows = self.results(now, after)
            keys = keys_of([rows], key)
        return difference(self._upserting.current_of(rows, keys), rows, key=key)

    def _folded(self, now: Progress, after: Progress) -> DataFrame:
        operator = self.asset.operator
        if not isinstance(operator, Incremental):
            raise OperatorError(f"{type(operator).__name__} reads new entries and upserts, so it needs a `fold(current, *frames)`")
        new = self._new(now, after)
        named = operator.reads.touches if isinstance(operator.reads, NewRows) else None
        touches = self._key if named is None else named
        current = self._upserting.current_of(operator(*new), keys_of(new, touches))
        if now.step:  # asked for twice; no more than each of the step's rows has keys, or partitions of a Top-N
            current = current.localCheckpoint()
        return difference(current, operator.fold(current, *new), key=self._key)

    @property
    def _followed(self) -> DerivedAsset | None:
        return followed(self.reading, self.asset)

    @property
    def _upserting(self) -> Upserting:
        return Upserting(self.reading, self.asset)

    @property
    def _key(self) -> tuple[str, ...]:
        return self.asset.operator.emits.key
