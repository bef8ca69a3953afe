"""A ledger that begins with a summary answers every question about later batches as the whole ledger does."""

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from hypothesis import given, settings
from hypothesis import strategies as st

from platform_defs.engine import faults
from platform_defs.engine.formats.files import File
from platform_defs.engine.lake.errors import LakeError
from platform_defs.engine.lake.tables import Lake
from platform_defs.engine.ledger import store as ledger_store
from platform_defs.engine.ledger import watermarks
from platform_defs.engine.ledger.columns import Column
from platform_defs.engine.ledger.errors import LedgerError
from platform_defs.engine.ledger.ledger import Batch, Kind, Ledger, SourceBatch
from platform_defs.engine.ledger.open_batch import OpenBatch
from platform_defs.engine.ledger.rows import table_of
from platform_defs.engine.ledger.snapshot import LedgerSnapshot, last_with_rows
from platform_defs.engine.ledger.summarize import summary_of
from platform_defs.engine.ledger.summary import SourceSummary, Summary
from platform_defs.engine.ledger.watermarks import LateResults, Timeline
from tests.engine.source_batches import source_batch
from tests.support.clock import Clock
from tests.support.kills import run_and_die
from tests.support.memory_ledger import Memory, MemoryLedgerStore, memory_ledger

SOURCES = "lrx"
STEP = 100_000
KINDS: list[Kind] = ["rows", "rows", "inactive", "retry", "watermark", "silent"]
ROWS = st.fixed_dictionaries(
    {
        "kind": st.sampled_from(KINDS),
        "rise": st.none() | st.integers(0, 9),
        "accepted": st.integers(0, 3),
        "quarantined": st.integers(0, 1),
        "first": st.integers(-9, 99),
    }
)
BATCHES = st.lists(st.tuples(st.dictionaries(st.sampled_from(SOURCES), ROWS, min_size=1), st.booleans()), min_size=2, max_size=10)
Drawn = Sequence[tuple[dict[str, dict[str, Any]], bool]]
"""The batches of a ledger: the rows by source, and whether the clock was set back."""


def random_batches(rng: random.Random) -> Drawn:
    """Random batches, of the values in `ROWS`."""

    def row() -> dict[str, Any]:
        return {
            "kind": rng.choice(KINDS),
            "rise": rng.choice([None, rng.randrange(10)]),
            "accepted": rng.randrange(4),
            "quarantined": rng.randrange(2),
            "first": rng.randint(-9, 99),
        }

    names = [rng.sample(SOURCES, rng.randint(1, len(SOURCES))) for _ in range(rng.randint(3, 10))]
    return [({name: row() for name in of_batch}, rng.random() < 0.3) for of_batch in names]


def batches_of(batches: Drawn) -> list[Batch]:
    found, last = list[Batch](), dict[str, SourceBatch]()
    for seq, (rows, is_set_back) in enumerate(batches, 1):
        batch = list[SourceBatch]()
        for name, row in sorted(rows.items()):
            known = last.get(name) or source_batch(name, seq)
            watermark = known.watermark if row["rise"] is None else (known.watermark or 0) + row["rise"]
            counted = row["kind"] == "rows"
            accepted = row["accepted"] if counted else 0
            last[name] = source_batch(
                name,
                seq,
                kind=row["kind"],
                ingested_at=seq * STEP,
                clock=seq * STEP - 70_000 if is_set_back else None,
                watermark=watermark,
                max_event_time=watermark,
                idle=known.idle if row["kind"] == "retry" else row["kind"] in ("inactive", "silent"),
                accepted=accepted,
                rows_read=accepted + row["quarantined"] if counted else 0,
                quarantined=row["quarantined"] if counted else 0,
                first_event_time=row["first"] if accepted else None,
                last_event_time=row["first"] + 1 if accepted else None,
                offsets=(f"./{name}{seq}|{seq}|9", f"kafka:{name}/0@id|{10 * seq}|10") if counted else (),
            )
            batch.append(last[name])
        found.append(tuple(batch))
    return found


def timelines(ledger: Ledger) -> dict[str, Timeline]:
    """The watermarks of the sources, and of an operator on two of them, as `Workspace` computes them."""
    history, head = ledger.history, ledger.head
    start = watermarks.after_summary(history.summarized)
    found = {name: watermarks.of_source(history.source(name), head, start) for name in SOURCES}
    known = start
    if history.summary is not None and "l r" in history.summary.watermarks:
        known = watermarks.after_summary(history.summarized, history.summary.watermarks["l r"], is_known=True)
    return found | {"both": watermarks.of_operator([found["l"], found["r"]], known)}


def late_results_of(ledger: Ledger, found: dict[str, Timeline], upto: int | None = None) -> list[LateResults]:
    """The results that are late for a reader. It reads a table, which is computed from source `l`, and source `r`.

    Args:
        ledger: the ledger.
        found: the watermarks, from `timelines`.
        upto: see `watermarks.late_results`.
    """
    history = ledger.history
    idle = watermarks.table_idleness([history.source("l")], ledger.head, history.summarized)
    since = watermarks.idle_since([history.source("l")])
    if since is None:
        return []
    known = () if history.summary is None else history.summary.late.get("late", ())
    upstream = found["l"].with_idle(idle)
    return watermarks.late_results(upstream, found["both"], 0, max(since, history.summarized), [LateResults(*of) for of in known], upto)


def closable_watermarks(ledger: Ledger, found: dict[str, Timeline], upto: int) -> list[int | None]:
    """The watermarks up to which the reader of `late_results_of` may close, by how far its table has closed its results.

    Args:
        ledger: the ledger.
        found: the watermarks, from `timelines`.
        upto: a batch; the table has closed its results up to its watermark after this batch, or up to one of the next 11 ms.
    """
    since = watermarks.idle_since([ledger.history.source("l")])
    if since is None:
        return []
    watermark = found["l"].after[upto]
    closed = [None] if watermark is None else range(watermark, watermark + 12)
    return [watermarks.watermark_without_waiting(found["l"], found["both"], closed_to, ledger.head, since) for closed_to in closed]


def summarize(ledger: Ledger, upto: int) -> bool:
    """Replace the batches up to `upto` by a summary, as maintenance does, if it has fewer rows than they have; returns whether it has."""
    found = timelines(ledger)
    ranges = tuple((of.after, of.upto, of.watermark) for of in late_results_of(ledger, found, upto))
    batch = summary_of(ledger, upto, {"l r": found["both"].after[upto]}, {"late": ranges})
    is_shorter = len(batch) < ledger.history.rows_upto(upto)
    if is_shorter:
        ledger.summarize(ledger.version, batch)
    return is_shorter


def reopened(ledger: Ledger, clock: Clock) -> Ledger:
    store = ledger._store
    assert isinstance(store, MemoryLedgerStore)
    return Ledger(Any, clock, MemoryLedgerStore(store.memory))  # pyright: ignore[reportArgumentType]


def answers_of(ledger: Ledger, upto: int) -> dict[str, Any]:
    """What later work reads of a ledger; the batches up to `upto` may be summarized."""
    history, found, head = ledger.history, timelines(ledger), ledger.head
    files = [File(seq, f"/f/{name}{seq}", 9, name, folder="/f") for name in SOURCES for seq in range(1, head + 1)]
    of_newest = ("source", "watermark", "max_event_time", "idle", "partitions")  # a summary replaces `seq` and `kind` of a row
    return {
        "new": {name: ledger.files_to_read(name, [f for f in files if f.source == name]) for name in SOURCES},
        "ends": {name: ledger.topic_ends(name) for name in SOURCES},
        "head": head,
        "now": ledger.now(),
        "newest": {name: [getattr(row, field) for field in of_newest] for name, row in ledger.newest_rows().items()},
        "times": history.times[upto - 1 :],
        "clocks": history.clocks[upto - 1 :],
        "first_batch_at": ledger.first_batch_at(),
        "active": {name: (history.source(name).active_in, ledger.last_active_at(name)) for name in SOURCES},
        "rejected": {name: history.source(name).rejected_in for name in SOURCES},
        "oldest": {name: history.source(name).oldest for name in SOURCES},
        "rules": {name: history.source(name).idle_rule for name in SOURCES},
        "idle_since": {name: watermarks.idle_since([history.source(name)]) for name in SOURCES},
        "with_rows": {name: last_with_rows(ledger, name) for name in SOURCES},
        "batches": {name: history.source(name).batches_with_rows(upto).to_pylist() for name in SOURCES},
        "totals": {name: ledger.totals(name) for name in SOURCES},
        "offsets": {name: {o for o in ledger.offsets(name) if not o.startswith("kafka:")} for name in SOURCES},
        "watermarks": {name: list(of.after)[upto:] for name, of in found.items()},
        "idle": {name: list(of.idle)[upto:] for name, of in found.items() if name != "both"},
        "passed_on": list(watermarks.table_idleness([history.source(n) for n in "lr"], head, history.summarized))[upto:],
        "processing": ledger.processing_times(head, upto)[1].to_pylist(),
        "set_back": ledger.was_clock_set_back(upto, head),
        "late": late_results_of(ledger, found),
        "past": closable_watermarks(ledger, found, upto),
        "may be late": watermarks.possibly_late_batches(history.source("l"), found["both"], upto, head),
    }


def test_a_summary_changes_no_answer_about_later_batches() -> None:
    """A ledger is summarized twice: the second summary replaces the first one, and equals a summary of all batches."""
    rng, seen = random.Random(7), Counter[str]()
    for _ in range(12):
        drawn = random_batches(rng)
        seen.update(check_summaries(drawn, *rng.sample(range(1, len(drawn) + 1), 2)))
    assert {*seen} == {"summarized twice", "batches after the summary", "late results"}
    assert min(seen.values()) >= 2, seen


@pytest.mark.soak
@settings(max_examples=300)
@given(BATCHES, st.integers(1, 10), st.integers(1, 10))
def test_in_many_examples_a_summary_changes_no_answer(drawn: Drawn, first: int, second: int) -> None:
    check_summaries(drawn, first, second)


def check_summaries(drawn: Drawn, first: int, second: int) -> set[str]:
    """Check a ledger that is summarized up to two batches; returns the cases that it has."""
    clock, batches, seen = Clock(20 * STEP), batches_of(drawn), set[str]()
    first, second = sorted((min(first, len(batches)), min(second, len(batches))))
    cut = min(second + 1, len(batches))  # the last batches are committed after the summaries
    whole, kept, once, twice = (memory_ledger(some, clock) for some in (batches, batches[:cut], batches, batches))
    summarize(kept, first)
    is_summarized = summarize(twice, first)
    if summarize(reopened(twice, clock), second):
        summarize(once, second)
        summarized_twice, summarized_once = reopened(twice, clock), reopened(once, clock)
        assert summarized_twice.newest_rows() == summarized_once.newest_rows()
        for name in SOURCES:
            assert summarized_twice.offsets_in_order(name) == summarized_once.offsets_in_order(name)
        seen |= {"summarized twice"} if is_summarized and first < second else set()
    if summarize(kept, second) and batches[cut:]:
        seen.add("batches after the summary")
    if batches[cut:]:
        kept.commit(batches[cut:])
    expected = answers_of(whole, second)
    assert answers_of(kept, second) == expected
    assert answers_of(reopened(kept, clock), second) == expected
    assert answers_of(LedgerSnapshot.of(kept), second) == expected
    return seen | ({"late results"} if expected["late"] else set())


BOTH = [(source_batch("l", n, watermark=n, accepted=1, rows_read=1), source_batch("r", n, watermark=n)) for n in range(1, 7)]


def test_batches_before_the_end_of_a_summary_cannot_be_read() -> None:
    ledger = memory_ledger(BOTH)
    summarize(ledger, 4)
    assert [batch[0].seq for batch in ledger.batches()[4:]] == [5, 6]
    assert (ledger.history.times[2], ledger.history.times[3], len(ledger.batches())) == (None, 4, 6)
    with pytest.raises(LedgerError, match=r"the ledger has no batch 3 any more: .* replaced the batches up to 4 by a summary"):
        ledger.batches()[2]


def test_a_process_that_has_fallen_behind_a_summary_reads_everything_again() -> None:
    memory, clock = Memory(), Clock(5)
    one, other = (Ledger(Any, clock, MemoryLedgerStore(memory)) for _ in range(2))  # pyright: ignore[reportArgumentType]
    one.commit(BOTH[:2])
    assert other.head == 2
    one.commit(BOTH[2:])
    summarize(one, 5)
    assert (other.head, other.history.summarized, other.totals("l")["accepted"]) == (6, 5, 6)
    assert other.newest_rows() == one.newest_rows()


def test_a_batch_that_began_before_a_summary_is_refused_and_the_next_one_is_not() -> None:
    ledger = memory_ledger(BOTH)
    batch = OpenBatch.begin(ledger)
    summarize(ledger, 4)
    with pytest.raises(LakeError, match="newer batch than this process started from"):
        batch.commit([(source_batch("l", 7, ingested_at=batch.now),)])
    again = OpenBatch.begin(ledger)
    again.commit([(source_batch("l", 7, ingested_at=again.now, watermark=7),)])
    assert ledger.head == 7


def test_a_summary_that_is_no_smaller_is_refused() -> None:
    ledger = memory_ledger(BOTH)
    with pytest.raises(ValueError, match="a summary must have fewer rows than it replaces: it has 2, and the batches up to 1 have 2"):
        ledger.summarize(ledger.version, summary_of(ledger, 1, {}))


def test_a_summary_of_an_earlier_version_is_refused() -> None:
    ledger = memory_ledger(BOTH[:5])
    seen, batch = ledger.version, summary_of(ledger, 4, {})
    ledger.commit(BOTH[5:])
    with pytest.raises(LakeError, match="newer batch than this process started from"):
        ledger.summarize(seen, batch)
    assert memory_ledger(ledger.batches()).head == 6


@dataclass(frozen=True)
class Damage:
    id: str
    batches: list[Batch]
    message: str


SUMMARY = Summary(3, 1, {}).as_json
SUMMARIZED = source_batch("l", 3, kind="summary", summary=SUMMARY)
DAMAGED = [
    Damage("a missing batch after a summary", [(SUMMARIZED,), (source_batch("l", 5),)], "batch 5: it follows batch 3"),
    Damage("a summary after a batch", [(source_batch("l", 1),), (SUMMARIZED,)], "batch 3: it follows batch 1"),
    Damage("a damaged document", [(replace(SUMMARIZED, summary="{"),)], "batch 3: its summary of the batches before it is damaged"),
    Damage("two documents", [(SUMMARIZED, replace(SUMMARIZED, source="r", summary=Summary(3, 2, {}).as_json))], "batch 3: its summary"),
    Damage("a missing row", [(replace(SUMMARIZED, summary=Summary(3, 1, {"r": SourceSummary()}).as_json),)], "batch 3: its summary"),
    Damage("a watermark that decreases", [(replace(SUMMARIZED, watermark=9),), (source_batch("l", 4, watermark=8),)], "from 9 to 8"),
]


@pytest.mark.parametrize("damage", DAMAGED, ids=lambda damage: damage.id)
def test_a_damaged_ledger_with_a_summary_is_refused(damage: Damage) -> None:
    with pytest.raises(LedgerError, match=damage.message):
        _ = memory_ledger(damage.batches).head


def test_a_column_with_values_that_are_not_stored() -> None:
    column = Column(pa.int64(), [pa.array([7, 8], pa.int64())], before=3, filler=5)
    values = [5, 5, 5, 7, 8, 9]
    column = column.with_values(pa.array([9], pa.int64()))
    assert (list(column), len(column), column) == (values, 6, values)
    every = range(7)
    assert [column[first:end] for first in every for end in every] == [values[first:end] for first in every for end in every]
    assert [column[n] for n in range(-6, 6)] == [values[n] for n in range(-6, 6)]
    assert Column(pa.int64(), before=2)[:] == [None, None]
    with pytest.raises(IndexError, match="out of range"):
        _ = column[6]


def lake_ledger(root: Path, clock: Clock) -> Ledger:
    return Ledger(Lake(str(root)), clock)


@pytest.mark.parametrize("at", ["retention.before_format", "retention.before_summary", "retention.after_summary"])
def test_a_kill_at_each_point_leaves_the_batches_or_their_summary(tmp_path: Path, at: str) -> None:
    clock = Clock(50)
    ledger = lake_ledger(tmp_path, clock)
    ledger.commit(BOTH)
    expected = answers_of(ledger, 4)

    run_and_die(lambda: summarize(ledger, 4), at)
    again = lake_ledger(tmp_path, clock)
    assert answers_of(again, 4) == expected
    assert again.history.summarized == (4 if at == "retention.after_summary" else 0)
    summarize(again, 4)
    summarize(lake_ledger(tmp_path, clock), 5)
    last = lake_ledger(tmp_path, clock)
    last.commit([(source_batch("l", 7, ingested_at=60, watermark=9),)])
    last.compact()
    assert (last.head, last.history.summarized, last.history.rows) == (7, 5, 2 + 2 + 1)
    assert lake_ledger(tmp_path, clock).totals("l")["accepted"] == 6


@pytest.mark.parametrize("at", ["retention.before_format", "retention.before_summary"])
def test_a_summary_fails_if_another_writer_commits_meanwhile_and_can_be_repeated(tmp_path: Path, at: str) -> None:
    ledger, other = (lake_ledger(tmp_path, Clock(50)) for _ in range(2))
    ledger.commit(BOTH[:5])

    def commit(name: str) -> None:
        if name == at:
            faults.install(None)
            other.commit(BOTH[5:])

    faults.install(commit)
    with pytest.raises(LakeError, match=r"ledger has a newer (version|batch)"):
        summarize(ledger, 4)
    assert (lake_ledger(tmp_path, Clock(50)).history.summarized, ledger.head) == (0, 6)
    summarize(ledger, 4)
    assert (lake_ledger(tmp_path, Clock(50)).history.summarized, other.head, other.history.summarized) == (4, 6, 4)


def test_only_a_ledger_with_a_summary_has_the_format_that_older_versions_refuse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = lake_ledger(tmp_path, Clock(50))
    ledger.commit(BOTH)
    table = DeltaTable(f"{tmp_path}/ledger")
    assert table.metadata().description == "Tidemark lake, format 3"
    assert "summary" not in [field.name for field in table.schema().fields]
    summarize(ledger, 4)
    assert DeltaTable(f"{tmp_path}/ledger").metadata().description == "Tidemark lake, format 4"
    monkeypatch.setattr(ledger_store, "SUMMARY_FORMAT", 3)
    with pytest.raises(LakeError, match="format 4"):
        _ = lake_ledger(tmp_path, Clock(50)).head


def test_a_ledger_that_begins_with_a_summary_is_opened_by_its_rows_and_not_by_its_batches(tmp_path: Path) -> None:
    store = MemoryLedgerStore()
    summary = Summary(10_000_000, 1, {})
    batch = source_batch("l", 10_000_000, kind="summary", watermark=5, summary=summary.as_json)
    store.append(table_of([(batch,), (source_batch("l", 10_000_001, watermark=6),)]))
    before = pa.total_allocated_bytes()
    ledger = Ledger(Any, Clock(20_000_000), store)  # pyright: ignore[reportArgumentType]
    timeline = watermarks.of_source(ledger.source("l"), ledger.head, watermarks.after_summary(ledger.history.summarized))
    both = watermarks.of_operator([timeline, timeline], watermarks.after_summary(ledger.history.summarized))
    assert (ledger.head, timeline.after[-2:], both.after[-1], both.after[5]) == (10_000_001, [5, 6], 6, None)
    assert len(watermarks.table_idleness([ledger.source("l")], ledger.head, ledger.history.summarized)) == 10_000_002
    assert pa.total_allocated_bytes() - before < 1_000_000
