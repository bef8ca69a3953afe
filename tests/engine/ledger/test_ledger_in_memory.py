"""The ledger's logic on an in-memory store: one order of batches, checks of their consistency, and refused second writers."""

import random
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from platform_defs.engine.lake.errors import LakeError
from platform_defs.engine.ledger import known_batches
from platform_defs.engine.ledger.batches import Batches
from platform_defs.engine.ledger.columns import Column
from platform_defs.engine.ledger.errors import LedgerError
from platform_defs.engine.ledger.history import History
from platform_defs.engine.ledger.ledger import Batch, Ledger
from tests.engine.source_batches import source_batch
from tests.support.clock import Clock
from tests.support.example_counts import example_count
from tests.support.memory_ledger import Memory, MemoryLedgerStore, memory_ledger


def _two_ledgers() -> tuple[Ledger, Ledger]:
    memory, clock = Memory(), Clock(5)
    one, other = (Ledger(None, clock, MemoryLedgerStore(memory)) for _ in range(2))  # pyright: ignore[reportArgumentType]
    return one, other


def test_two_processes_see_one_order_and_one_commits_each_batch_number() -> None:
    one, other = _two_ledgers()
    one.commit([(source_batch("l", 1, watermark=3, offsets=("a|1|2",)), source_batch("r", 1))])
    assert (other.head, other.newest_rows()["l"].watermark, other.offsets("l")) == (1, 3, {"a|1|2"})
    assert other.batches() == one.batches()
    for ledger in (one, other):
        assert ledger.head == 1
    one.commit([(source_batch("l", 2, watermark=3),)])
    assert other._history.head == 1
    with pytest.raises(LakeError, match="ledger has a newer version than this process started from"):
        other._store.append(one._store.memory.commits[-1])  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(LakeError, match="ledger has a newer batch than this process started from"):
        other.commit([(source_batch("l", 2),)])


def test_any_slice_of_the_batches_after_a_summary_can_be_read() -> None:
    head, summarized = 7, 3
    ledger = memory_ledger([(source_batch("l", seq),) for seq in range(1, head + 1)])
    assert ledger.head == head
    batches, numbers, ends = Batches(ledger._store, head, summarized), range(1, head + 1), [None, *range(-9, 10)]
    for first, end, step in product(ends, ends, (None, 1, 2, 3, -1, -2, -3)):
        expected = [*numbers[first:end:step]]
        if min(expected, default=head) > summarized:
            assert [batch[0].seq for batch in batches[first:end:step]] == expected, (first, end, step)
        else:
            with pytest.raises(LedgerError, match="summar"):
                _ = batches[first:end:step]


@pytest.mark.parametrize(
    ("batches", "message"),
    [
        ([(source_batch("l", 1),), (source_batch("l", 3),)], "at batch 3: it follows batch 1, so batches between them are missing"),
        ([(source_batch("l", 1), source_batch("l", 1))], "at batch 1: it records a source twice"),
        (
            [(source_batch("l", 1),), (source_batch("l", 2, ingested_at=1),)],
            "at batch 2: its ingested_at 1 is not later than that of the batch before, 1",
        ),
        (
            [(source_batch("l", 1),), (source_batch("l", 2, ingested_at=0),)],
            "at batch 2: its ingested_at 0 is not later than that of the batch before, 1",
        ),
        (
            [(source_batch("l", 1, ingested_at=1), source_batch("r", 1, ingested_at=2))],
            "at batch 1: its rows have different ingested_at: 1, 2",
        ),
        (
            [(source_batch("l", 1, watermark=5),), (source_batch("l", 2, watermark=4),)],
            "at batch 2: the watermark of 'l' decreases from 5 to 4",
        ),
        (
            [(source_batch("l", 1, watermark=5),), (source_batch("r", 2),), (source_batch("l", 3),)],
            "at batch 3: the watermark of 'l' decreases from 5 to None",
        ),
    ],
)
def test_the_error_of_an_invalid_batch_names_it(batches: list[Batch], message: str) -> None:
    with pytest.raises(LedgerError, match=f"the ledger is corrupted {message}"):
        _ = memory_ledger(batches).head


BATCHES = st.lists(
    st.dictionaries(st.sampled_from("lrx"), st.tuples(st.integers(0, 9), st.booleans(), st.integers(0, 5)), min_size=1), max_size=12
)


def test_a_ledger_read_incrementally_equals_one_read_at_once() -> None:
    """The ledger is read before its first commit, after some batches, and after all of them."""
    rng, cuts = random.Random(2), set[str]()
    for _ in range(example_count(30)):
        batches = [
            {name: (rng.randrange(10), rng.random() < 0.5, rng.randrange(6)) for name in rng.sample("lrx", rng.randint(1, 3))}
            for _ in range(rng.randrange(9))
        ]
        cut = rng.randrange(10)
        check_incremental_read(batches, cut)
        cuts.add("all at once" if cut == 0 or cut >= len(batches) else "in two parts")
    assert cuts == {"all at once", "in two parts"}


@pytest.mark.soak
@settings(max_examples=1_000)
@given(BATCHES, st.integers(0, 12))
def test_in_many_examples_a_ledger_read_incrementally_equals_one_read_at_once(
    batches: list[dict[str, tuple[int, bool, int]]], cut: int
) -> None:
    check_incremental_read(batches, cut)


def check_incremental_read(batches: list[dict[str, tuple[int, bool, int]]], cut: int) -> None:
    newest: dict[str, int] = {}
    written: list[Batch] = []
    for seq, batch in enumerate(batches, 1):
        newest |= {name: max(newest.get(name, 0), mark) for name, (mark, _, _) in batch.items()}
        written.append(
            tuple(
                source_batch(name, seq, watermark=newest[name], idle=idle, accepted=n, rows_read=n, first_event_time=n - 3 if n else None)
                for name, (_, idle, n) in sorted(batch.items())
            )
        )
    memory = Memory()
    ledger = Ledger(None, Clock(5), MemoryLedgerStore(memory))  # pyright: ignore[reportArgumentType]
    for part in (written[:cut], written[cut:]):
        if part:
            assert ledger.head == len(written) - len(part) or part is not written[cut:]
            ledger.commit(part)
    history = ledger.history
    assert history == History.of(written) or (not written and history == History())
    rows = [row for batch in written for row in batch]
    assert ledger.newest_rows() == {
        name: max((r for r in rows if r.source == name), key=lambda r: r.seq) for name in {r.source for r in rows}
    }
    for name, known in history.sources.items():
        own = [r for r in rows if r.source == name]
        assert list(known.columns["seq"]) == [r.seq for r in own]
        assert known.oldest == min((r.first_event_time for r in own if r.first_event_time is not None), default=None)
        assert known.active_in == max((r.seq for r in own if r.rows_read), default=None)
        assert ledger.totals(name)["accepted"] == sum(r.accepted for r in own)


@given(st.lists(st.lists(st.integers(0, 9), max_size=5)), st.integers(0, 10), st.integers(0, 10))
def test_a_column_behaves_like_the_list_of_its_values(parts: list[list[int]], first: int, end: int) -> None:
    import pyarrow as pa

    column, values = Column(pa.int64()), list[int]()
    for part in parts:
        column, values = column.with_values(pa.array(part, pa.int64())), values + part
    assert (list(column), len(column), column) == (values, len(values), values)
    assert column[first:end] == values[first:end]
    ordered = Column(pa.int64(), [pa.array(sorted(values), pa.int64())])
    assert ordered.count_upto(first) == sum(v <= first for v in values)


def test_opening_a_ledger_makes_no_object_per_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    counts: list[int] = []
    batches_of = known_batches.batches_of
    monkeypatch.setattr(known_batches, "batches_of", lambda rows: counts.append(rows.num_rows) or batches_of(rows))
    ledger = memory_ledger((source_batch("l", n, watermark=n, accepted=1, rows_read=1), source_batch("r", n)) for n in range(1, 2_001))
    assert (ledger.head, ledger.now(), ledger.source("l").active_in, ledger.last_active_at("l")) == (2_000, 1_772_366_400_000, 2_000, 2_000)
    assert ledger.newest_rows()["l"].watermark == 2_000
    for seq in range(2_001, 2_006):
        ledger.commit([(source_batch("l", seq, ingested_at=ledger.now(), watermark=seq),)])
        assert ledger.head == seq
    assert sum(counts) <= 2 + 5
