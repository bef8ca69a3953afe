"""Plans of the next step, for ledgers and progress that are written out here; without a Spark session."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from pyspark import SparkContext
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from assets.contracts import DerivedAsset
from operators.steps import Append, ByKey, ByTimeRange, Emits, NewRows, Reads, Upsert
from operators.timing import ClosedRange
from platform_defs.engine.advance.plan import StepPlan, plan_step
from platform_defs.engine.advance.position import CompleteUpTo, EventTimeRange, Position, Upstream
from platform_defs.engine.inputs.progress import Progress
from platform_defs.engine.inputs.progress_errors import ProgressError
from platform_defs.engine.inputs.span import Span
from platform_defs.engine.ledger.rows import Batch
from tests.engine.source_batches import source_batch
from tests.support.memory_ledger import memory_ledger

ALL = 1_000_000
"""A `max_step` that limits nothing."""


@dataclass(frozen=True)
class ContractOnly:
    """An operator that has only a contract."""

    reads: Reads
    emits: Emits
    inputs: tuple[str, ...] = ("rows",)

    def late(self, event_time: Column, watermark: Column) -> Column:
        raise NotImplementedError

    def __call__(self, *frames: DataFrame) -> DataFrame:
        raise NotImplementedError


def _asset(name: str, reads: Reads, emits: Emits, *inputs: str) -> DerivedAsset:
    return DerivedAsset(name=name, inputs=inputs, operator=ContractOnly(reads, emits, inputs))


CLOSING = _asset("closing", ByTimeRange((10,), watermark_delay=1), Append(), "clicks")
JOINING = _asset("joining", ByTimeRange((10, 20), watermark_delay=1), Append(), "clicks", "views")
LENIENT = _asset("lenient", ByTimeRange((10,), watermark_delay=1, lateness=100), Append(("k",)), "clicks")
SECOND = _asset("second", ByTimeRange((0,)), Append(("k",)), "lenient")
MIXED = _asset("mixed", ByTimeRange((0, 5)), Append(), "clicks", "closing")
MERGING = _asset("merging", NewRows(), Upsert(("k",)), "clicks")
KEYED = _asset("keyed", ByKey(("k",)), Upsert(("k",)), "clicks")
EVENT_TTL = _asset("event_ttl", ByKey(("k",), ttl=5), Upsert(("k",)), "clicks")
CLOCK_TTL = _asset("clock_ttl", ByKey(("k",), ttl=5, ttl_by="processing"), Upsert(("k",)), "clicks")
OF_CLOSING = _asset("of_closing", NewRows(), Upsert(("k",)), "closing")
OF_KEYED = _asset("of_keyed", ByTimeRange((10,), watermark_delay=1), Append(), "keyed")
READER = _asset("reader", NewRows(change="op"), Upsert(("k",)), "keyed")


def _rows(seq: int, rows: int, first: int = 0, last: int | None = None, source: str = "clicks") -> Batch:
    """A batch with rows of one source, with event times from `first` to `last`."""
    return (source_batch(source, seq, accepted=rows, first_event_time=first, last_event_time=first if last is None else last),)


def _without_rows(seq: int, source: str = "clicks") -> Batch:
    """A batch of a source without rows."""
    return (source_batch(source, seq),)


@dataclass(frozen=True)
class Case:
    """The position of an asset, and its next step.

    Args:
        id: the name of the case, which is the test's id.
        asset: the asset.
        ledger: the batches.
        plan: the expected step.
        progress: the asset's progress.
        watermark: the operator's watermark at the ledger's head.
        tables: the upstream tables.
        max_step: how many rows a step may read.
        until: the watermark up to which results may be final.
        on_time: the first and last event time of new rows that are not late; None if there are none. By default the test fails if the
            planner asks for them.
    """

    id: str
    asset: DerivedAsset
    ledger: Sequence[Batch]
    plan: StepPlan | None
    progress: Progress = field(default_factory=Progress)
    watermark: int | None = None
    tables: tuple[Upstream, ...] = ()
    max_step: int = ALL
    until: int | None = None
    on_time: tuple[int, int] | None = field(default=(-1, -1))

    @property
    def position(self) -> Position:
        """The position of the asset, at the ledger's head."""
        ledger = memory_ledger(self.ledger).history
        tables = {table.asset.name: table for table in self.tables}
        return Position(self.asset, self.progress, ledger, ledger.head, self.watermark, tables)

    def row_times(self, index: int, span: Span) -> tuple[int, int] | None:
        """The first and last time of rows that are not late."""
        assert self.on_time != (-1, -1), f"the rows of input {index} were read, in {span}"
        return self.on_time


def _closed(to: int, seq: int = 1, step: int = 1, **more: dict[str, int]) -> Progress:
    return Progress(step=step, seq=seq, closed_to=to, **more)


CLOSES = [
    Case("an empty ledger", CLOSING, [], None),
    Case("rows and no watermark", CLOSING, [_rows(1, 5)], None),
    Case("the first step closes up to the watermark", CLOSING, [_rows(1, 5, 0, 99)], StepPlan(1, 90), watermark=90),
    Case("zero is a watermark", CLOSING, [_rows(1, 5)], StepPlan(1, 0), watermark=0),
    Case("a later step continues from the closed range", CLOSING, [_rows(1, 5), _rows(2, 5, 200)], StepPlan(2, 190), _closed(90), 190),
    Case("no step: the watermark is unchanged", CLOSING, [_rows(1, 5)], None, _closed(90), 90),
    Case("a batch without rows that moves the watermark", CLOSING, [_rows(1, 5), _without_rows(2)], StepPlan(2, 95), _closed(90), 95),
    Case("no step: a new batch does not raise the watermark", CLOSING, [_rows(1, 5), _rows(2, 5, 200)], None, _closed(90), 90),
    Case("`until` limits a step", CLOSING, [_rows(1, 5)], StepPlan(1, 50), watermark=90, until=50),
    Case("`until` beyond the watermark changes nothing", CLOSING, [_rows(1, 5)], StepPlan(1, 90), watermark=90, until=500),
    Case("`until` at the end of the closed range", CLOSING, [_rows(1, 5)], None, _closed(50), 90, until=50),
    Case("max_step limits time: one row per millisecond", CLOSING, [_rows(1, 1_000, 0, 999)], StepPlan(1, 99), watermark=990, max_step=100),
    Case(
        "max_step also counts the rows of the lookback",
        CLOSING,
        [_rows(1, 1_000, 0, 999)],
        StepPlan(1, 189),
        _closed(99),
        watermark=990,
        max_step=100,
    ),
    Case("a step advances by at least a millisecond", CLOSING, [_rows(1, 1_000, 0, 1)], StepPlan(1, 0), watermark=9, max_step=1),
    Case(
        "the rows of all sources count",
        JOINING,
        [_rows(1, 500, 0, 499), _rows(2, 500, 0, 499, "views")],
        StepPlan(2, 49),
        Progress(),
        490,
        max_step=100,
    ),
]

CORRECTS = [
    Case(
        "a correction is a separate step, before new results are final",
        LENIENT,
        [_rows(1, 5, 0, 99), _rows(2, 1, 80, 80), _rows(3, 5, 300)],
        StepPlan(3, 90, corrects=ClosedRange(79, 90)),
        _closed(90),
        watermark=290,
        on_time=(80, 80),
    ),
    Case(
        "a correction ends where its rows have no effect",
        LENIENT,
        [_rows(1, 5, 0, 99), _rows(2, 1, 40, 45)],
        StepPlan(2, 90, corrects=ClosedRange(39, 56)),
        _closed(90),
        watermark=90,
        on_time=(40, 45),
    ),
    Case("new rows that are all too late", LENIENT, [_rows(1, 5, 0, 99), _rows(2, 1, 40)], None, _closed(90), 90, on_time=None),
    Case("rows after the closed range are not read", LENIENT, [_rows(1, 5, 0, 99), _rows(2, 9, 91, 99)], None, _closed(90), 90),
    Case("rows of handled batches are not read", LENIENT, [_rows(1, 5, 0, 99)], None, _closed(90), 90),
    Case("without allowed lateness no row is read", CLOSING, [_rows(1, 5, 0, 99), _rows(2, 1, 40)], None, _closed(90), 90),
    Case("without a closed range nothing is corrected", LENIENT, [_rows(1, 5, 0, 99)], StepPlan(1, 90), watermark=90),
]


def _upstream(asset: DerivedAsset, progress: Progress, read: int = 0) -> Upstream:
    return Upstream.of_results(asset, progress, read)


READS_TABLES = [
    Case(
        "the watermark is at most that of a derived input: its closed_to minus its output watermark delay",
        MIXED,
        [_rows(1, 5, 0, 99)],
        StepPlan(1, 49, {"closing": 3}),
        watermark=90,
        tables=(_upstream(CLOSING, _closed(50, step=3)),),
    ),
    Case(
        "a derived input without a step allows no step",
        MIXED,
        [_rows(1, 5)],
        None,
        watermark=90,
        tables=(_upstream(CLOSING, Progress()),),
    ),
    Case(
        "a derived input that is ahead does not raise the watermark",
        MIXED,
        [_rows(1, 5, 0, 99)],
        StepPlan(1, 40, {"closing": 3}),
        watermark=40,
        tables=(_upstream(CLOSING, _closed(50, step=3)),),
    ),
    Case(
        "a correction of an input is read before new results are final",
        SECOND,
        [_rows(1, 5, 0, 99), _rows(2, 5, 200)],
        StepPlan(2, 60, {"lenient": 3}, ClosedRange(38, 45)),
        _closed(60, read={"lenient": 2}),
        watermark=190,
        tables=(_upstream(LENIENT, Progress(step=3, seq=2, closed_to=120, corrected=((2, 10, 20), (3, 40, 45))), 2),),
    ),
    Case(
        "a correction that was read is not planned again",
        SECOND,
        [_rows(1, 5, 0, 99)],
        None,
        _closed(89, read={"lenient": 3}),
        watermark=89,
        tables=(_upstream(LENIENT, Progress(step=3, seq=1, closed_to=90, corrected=((3, 40, 45),)), 3),),
    ),
    Case(
        "rows of an upserted table are read up to the watermark of the batch that it has handled",
        OF_KEYED,
        [_rows(1, 5, 0, 99), _rows(2, 5, 200)],
        StepPlan(2, 90, {"keyed": 4}),
        watermark=190,
        tables=(Upstream(KEYED, CompleteUpTo(4, 1), 90),),
    ),
    Case(
        "a changed row of an upserted table corrects the results that it may be part of",
        OF_KEYED,
        [_rows(1, 5, 0, 99), _rows(2, 5, 200)],
        StepPlan(2, 90, {"keyed": 5}, ClosedRange(29, 85)),
        _closed(90, read={"keyed": 4}),
        watermark=190,
        tables=(Upstream(KEYED, CompleteUpTo(5, 2), 190, (EventTimeRange(30, 74),)),),
    ),
    Case(
        "changes of an upserted table after the closed range correct nothing",
        OF_KEYED,
        [_rows(1, 5, 0, 99), _rows(2, 5, 200)],
        StepPlan(2, 190, {"keyed": 5}),
        _closed(90, read={"keyed": 4}),
        watermark=190,
        tables=(Upstream(KEYED, CompleteUpTo(5, 2), 190, (EventTimeRange(91, 200),)),),
    ),
]

ONE_BATCH = Progress(step=1, seq=1)
BATCHES = [
    Case("an empty ledger", MERGING, [], None),
    Case("the first step handles every batch", MERGING, [_rows(1, 5), _rows(2, 5)], StepPlan(2)),
    Case("a step that reads by key needs no watermark", KEYED, [_rows(1, 5, 0, 99)], StepPlan(1), watermark=None),
    Case("nothing new", MERGING, [_rows(1, 5), _rows(2, 5)], None, Progress(step=1, seq=2)),
    Case("a batch of another source changes nothing", MERGING, [_rows(1, 5), _rows(2, 5, source="views")], None, ONE_BATCH),
    Case("a batch without rows changes nothing", KEYED, [_rows(1, 5), _without_rows(2)], None, ONE_BATCH),
    Case("max_step ends a step between batches", MERGING, [_rows(1, 60), _rows(2, 60), _rows(3, 60)], StepPlan(1), max_step=100),
    Case("a batch larger than max_step is a step", MERGING, [_rows(1, 500), _rows(2, 1)], StepPlan(1), max_step=100),
    Case("`until` is a watermark, and limits no batches", MERGING, [_rows(1, 5, 0, 99)], StepPlan(1), until=-5),
    Case(
        "an event-time TTL: a batch without rows of its source allows a step",
        EVENT_TTL,
        [_rows(1, 5), _without_rows(2)],
        StepPlan(2),
        Progress(step=1, seq=1),
    ),
    Case(
        "an event-time TTL: a batch of another source allows no step", EVENT_TTL, [_rows(1, 5), _without_rows(2, "views")], None, ONE_BATCH
    ),
    Case(
        "a processing-time TTL: every batch moves the clock",
        CLOCK_TTL,
        [_rows(1, 5), _without_rows(2, "views")],
        StepPlan(2),
        Progress(step=1, seq=1),
    ),
    Case("a processing-time TTL: no batch, no step", CLOCK_TTL, [_rows(1, 5)], None, ONE_BATCH),
]

CHANGELOGS = [
    Case("an empty upstream table", READER, [_rows(1, 5)], None, tables=(Upstream(KEYED),)),
    Case(
        "the first step reads the whole table",
        READER,
        [_rows(1, 5), _rows(2, 5)],
        StepPlan(1, read={"keyed": 4}),
        tables=(Upstream(KEYED, CompleteUpTo(4, 1)),),
    ),
    Case(
        "a changelog is read as far as it is applied to the table",
        READER,
        [_rows(1, 5), _rows(2, 5), _rows(3, 5)],
        StepPlan(2, read={"keyed": 5}),
        Progress(step=1, seq=1, read={"keyed": 4}),
        tables=(Upstream(KEYED, CompleteUpTo(5, 2)),),
    ),
    Case(
        "no new changes, although the ledger has a new batch",
        READER,
        [_rows(1, 5), _rows(2, 5)],
        None,
        Progress(step=1, seq=1, read={"keyed": 4}),
        tables=(Upstream(KEYED, CompleteUpTo(4, 1)),),
    ),
    Case(
        "an asset that reads new rows of an appended table reads up to that table's newest step",
        OF_CLOSING,
        [_rows(1, 5), _rows(2, 5)],
        StepPlan(1, read={"closing": 4}),
        Progress(step=1, seq=1, read={"closing": 3}),
        tables=(_upstream(CLOSING, Progress(step=4, seq=1, closed_to=50), 3),),
    ),
]


@pytest.fixture(autouse=True)
def _no_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide the session that another test of this process may have started."""
    monkeypatch.setattr(SparkContext, "_active_spark_context", None)


def _id(case: Case) -> str:
    return case.id


def _plan(case: Case) -> StepPlan | None:
    return plan_step(case.position, max_step=case.max_step, until=case.until, row_times=case.row_times)


@pytest.mark.parametrize("case", CLOSES, ids=_id)
def test_a_step_that_closes_a_range(case: Case) -> None:
    assert _plan(case) == case.plan


@pytest.mark.parametrize("case", CORRECTS, ids=_id)
def test_a_step_that_corrects_closed_results(case: Case) -> None:
    assert _plan(case) == case.plan


@pytest.mark.parametrize("case", READS_TABLES, ids=_id)
def test_a_step_of_an_asset_that_reads_another_table(case: Case) -> None:
    assert _plan(case) == case.plan


@pytest.mark.parametrize("case", BATCHES, ids=_id)
def test_a_step_that_handles_batches(case: Case) -> None:
    assert _plan(case) == case.plan


@pytest.mark.parametrize("case", CHANGELOGS, ids=_id)
def test_a_step_that_reads_an_upstream_changelog(case: Case) -> None:
    assert _plan(case) == case.plan


def test_rows_within_the_allowed_lateness_are_searched_up_to_the_end_of_the_closed_range() -> None:
    calls: list[tuple[int, Span]] = []
    case = Case("", LENIENT, [_rows(1, 5, 0, 99), _rows(2, 5, 30, 500)], None, _closed(90), 90)
    plan_step(case.position, max_step=ALL, row_times=lambda index, span: calls.append((index, span)))
    assert calls == [(0, Span(30, 90))]


def test_a_reader_ahead_of_its_upstream_table_is_refused() -> None:
    behind = Upstream(KEYED, CompleteUpTo(3, 1))
    case = Case("", READER, [_rows(1, 5)], None, Progress(step=1, seq=1, read={"keyed": 4}), tables=(behind,))
    with pytest.raises(ProgressError, match="keyed"):
        _plan(case)


def test_these_plans_are_made_without_a_session() -> None:
    with pytest.raises((AssertionError, RuntimeError)):
        F.col("seq")


def test_a_new_table_starts_after_the_rows_that_retention_removed() -> None:
    history = memory_ledger([_rows(1, 5, 0, 100)]).history
    positions = [Position(CLOSING, Progress(), history, 1, 90, starts_after=after) for after in (None, 49, 90)]
    plans = [plan_step(position, max_step=ALL, row_times=lambda *_: None) for position in positions]
    assert plans == [StepPlan(1, 90), StepPlan(1, 90), None]
    assert [position.closed_to for position in positions] == [None, 49, 90]
