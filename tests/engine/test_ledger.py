"""The ledger: one total order, kept whole."""

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from platform_defs.engine.ledger import TABLE, Ledger, moved
from platform_defs.resources.lake import Lake
from tests.engine.made import said
from tests.support.clock import Clock

FULL = said(
    "l",
    1,
    ingested_at=1_000,
    watermark=-1,
    max_event_time=0,
    first_event_time=-62_135_596_800_000,
    last_event_time=253_402_300_799_999,
    rows_read=10,
    accepted=1,
    duplicate=2,
    quarantined=3,
    markers=4,
    warned=1,
    idle=True,
    offsets=("file:///a%20b|1|2", "ü|3|4"),
)


def _ledger(tmp_path: Path, clock: Clock | None = None) -> Ledger:
    return Ledger(Lake(str(tmp_path / "lake")), clock or Clock(5))


def test_an_entry_comes_back_as_it_was_said(tmp_path: Path) -> None:
    entries = [(FULL, said("r", 1, ingested_at=1_000)), (said("l", 2, kind="drain", ingested_at=-3, watermark=None),)]
    _ledger(tmp_path).commit(entries)
    assert _ledger(tmp_path).entries() == entries


def test_an_empty_ledger(tmp_path: Path) -> None:
    ledger = _ledger(tmp_path)
    assert (ledger.entries(), ledger.head, ledger.last(), ledger.offsets("l"), ledger.now()) == ([], 0, {}, set(), 5)


def test_the_last_word_and_all_offsets_of_a_source(tmp_path: Path) -> None:
    ledger = _ledger(tmp_path)
    ledger.commit([(FULL, said("r", 1)), (said("l", 2, offsets=("c",)),)])
    assert {name: s.seq for name, s in ledger.last().items()} == {"l": 2, "r": 1}
    assert ledger.offsets("l") == {*FULL.offsets, "c"}
    assert ledger.offsets("r") == set()


@pytest.mark.parametrize(
    "seqs", [[1], [3], [4], [2, 2], [2, 4], [3, 2]], ids=["the head again", "a gap", "a far gap", "twice", "a gap inside", "backwards"]
)
def test_entries_must_follow_the_head(tmp_path: Path, seqs: list[int]) -> None:
    ledger = _ledger(tmp_path)
    ledger.commit([(said("l", 1),)])
    with pytest.raises(ValueError, match=r"do not follow the head 1"):
        ledger.commit([(said("l", n),) for n in seqs])
    assert _ledger(tmp_path).head == 1


def test_a_second_reader_sees_what_the_first_commits(tmp_path: Path) -> None:
    one, other = _ledger(tmp_path), _ledger(tmp_path)
    assert other.head == 0
    one.commit([(said("l", 1),)])
    assert other.head == 1
    with pytest.raises(ValueError, match=r"entries \[1\] do not follow the head 1"):
        other.commit([(said("l", 1),)])


def test_the_clock_rises_from_entry_to_entry_even_when_it_steps_back(tmp_path: Path) -> None:
    clock = Clock(100)
    ledger = _ledger(tmp_path, clock)
    told = []
    for seq, time in enumerate([100, 100, 40, 500], 1):
        clock.now = time
        ledger.commit([(said("l", seq, ingested_at=ledger.now()),)])
        told.append(ledger.last()["l"].ingested_at)
    assert told == [100, 101, 102, 500]
    assert ledger.now(after=900) == 901


def test_a_long_ledger_is_compacted_and_keeps_all(tmp_path: Path) -> None:
    lake, ledger = Lake(str(tmp_path / "lake")), _ledger(tmp_path)
    ledger.commit([(said("l", 1), said("r", 1))])
    first = lake.delta(TABLE).to_pyarrow_table()  # pyright: ignore[reportOptionalMemberAccess]
    for seq in range(2, 98):
        lake.append_small(first.set_column(0, first.schema.field(0), pa.array([seq, seq])), TABLE)
    for seq in range(98, 104):
        ledger.commit([(said("l", seq), said("r", seq))])
    told = _ledger(tmp_path).entries()
    assert [(s.source, s.seq) for e in told for s in e] == [(n, seq) for seq in range(1, 104) for n in ("l", "r")]
    assert told == ledger.entries()
    assert len(lake.delta(TABLE).file_uris()) < 10  # pyright: ignore[reportOptionalMemberAccess]


def test_what_moves_on_carries_marks_and_idleness_and_no_counts() -> None:
    after = moved(FULL, seq=2, kind="watermark", ingested_at=2_000)
    assert after == said("l", 2, kind="watermark", ingested_at=2_000, watermark=-1, max_event_time=0, idle=True)
    assert moved(FULL, seq=2, idle=False, watermark=7) == replace(after, kind="rows", ingested_at=1_000, idle=False, watermark=7)
