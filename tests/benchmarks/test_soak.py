"""The plan of a soak's kills, the time of recoveries, and what must stay level, with hand-written numbers. No test starts a process."""

import json
from itertools import pairwise
from pathlib import Path

import pytest

from benchmarks.live.flat import growth, growth_between_processes, longest_process, not_flat
from benchmarks.live.kills import KINDS, Kill, plan, with_recovery
from benchmarks.live.observed import steps
from benchmarks.live.samples import Sample, files_by_kind
from benchmarks.live.soak import Soak, SoakError

START_MS = 1_800_000_000_000


def _sample(seconds: float, **changes: float | None) -> Sample:
    memory = {"jvm_mb": 900, "outside_mb": 400, "python_mb": 300, "live_mb": 150, "executors_mb": 800}
    normal = {"acked": seconds * 10, "accepted": seconds * 10, "start": 0, "age_s": seconds, "files": 40, "on_disk": 99}
    return Sample(seconds=seconds, **{**memory, **normal, **changes})  # pyright: ignore[reportArgumentType]


MOST_MB = {"jvm_mb": 2_000, "executors_mb": 3_000}
LEVEL = [_sample(n * 10) for n in range(60)]


def test_the_soak_finds_what_grows_and_a_stream_that_is_behind() -> None:
    assert not_flat(LEVEL, 10.0, MOST_MB) == []
    leak = [_sample(n * 10, live_mb=150 + 4 * n) for n in range(60)]
    assert (growth(leak, "live_mb") or 0) > 1.2
    assert [problem.split(" has")[0] for problem in not_flat(leak, 10.0, MOST_MB)] == ["live_mb"]
    assert not_flat(leak[:29], 10.0, MOST_MB) == [], "too short to tell a leak from a start"
    many_files = [_sample(n * 10, files=40 + n * n) for n in range(17)]
    assert not_flat(many_files, 10.0, MOST_MB) == []
    assert not_flat([*many_files, _sample(170, files=321)], 10.0, MOST_MB) == ["files was 321; legal: 320"]
    large = [*LEVEL[:30], _sample(300, jvm_mb=2_100), *LEVEL[31:]]
    assert not_flat(large, 10.0, MOST_MB) == ["jvm_mb was 2,100; legal: 2,000"]
    after_a_kill = [*LEVEL[:30], *[_sample(10 * n, accepted=2_500) for n in range(30, 36)], *LEVEL[36:]]
    assert not_flat(after_a_kill, 10.0, MOST_MB) == []
    too_slow = [_sample(10 * n, accepted=90 * n) for n in range(60)]
    assert not_flat(too_slow, 10.0, MOST_MB) == ["the ledger was 50 s behind in the last third, and 10 s in the first"]
    assert not_flat(too_slow[:24], 10.0, MOST_MB) == [], "20 s behind are tolerated"


def test_memory_that_was_not_measured_is_a_problem() -> None:
    unknown = [_sample(n * 10, live_mb=None, executors_mb=None) for n in range(60)]
    assert growth(unknown, "live_mb") is None
    assert not_flat(unknown, 10.0, MOST_MB) == ["live_mb was not measured", "executors_mb was not measured"]
    assert not_flat(unknown[:29], 10.0, {}) == [], "too short for a measure of each minute"


def _processes(live_mb: float) -> list[Sample]:
    """Four processes of 150 s; at any age, each uses `live_mb` more memory than the process before it."""
    return [
        _sample(150 * start + age, start=start, age_s=age, live_mb=150 + live_mb * start + age / 2)
        for start in range(4)
        for age in range(0, 150, 10)
    ]


def test_memory_that_grows_with_each_start_is_found_at_the_same_age() -> None:
    assert growth_between_processes(_processes(0), "live_mb") == 1.0
    assert growth_between_processes(_processes(30), "live_mb") == pytest.approx((150 + 75 + 52) / (150 + 15 + 52), rel=0.05)
    assert growth_between_processes(LEVEL, "live_mb") is None, "there is one process only"
    assert {sample.start for sample in longest_process([*_processes(0), _sample(700, start=2, age_s=400)])} == {2}


def test_a_seed_gives_the_same_kills_with_each_kind_once_in_a_round() -> None:
    planned = plan(KINDS, 100, 1_800, 7)
    assert planned == plan(KINDS, 100, 1_800, 7) != plan(KINDS, 100, 1_800, 8)
    assert {kill.kind for kill in planned[:3]} == {kill.kind for kill in planned[3:6]} == {*KINDS}
    between = [late.seconds - early.seconds for early, late in pairwise(planned)]
    assert all(49.9 <= seconds <= 150.1 for seconds in between)
    assert planned[-1].seconds < 1_800
    assert {kill.kind for kill in plan(["broker"], 100, 1_800, 7)} == {"broker"}
    assert plan([], 100, 1_800, 7) == []


BEGUN = [(START_MS + 1_000 * second, second + 1) for second in range(0, 60, 2)]
"""A batch every two seconds; its number is one more than its second."""


@pytest.mark.parametrize(
    ("kill", "expected"),
    [
        (Kill("job", 10, START_MS + 10_500), 4.5),  # the batch of second 12, committed in 14 and 15
        (Kill("broker", 10, START_MS + 10_500, back_s=4.0), 8.5),  # the batch of second 16
        (Kill("worker", 10, START_MS + 10_500, back_s=4.0), 4.5),  # the other workers go on
        (Kill("job", 59, START_MS + 59_000), None),
    ],
    ids=["job", "broker", "worker", "no batch after it"],
)
def test_a_recovery_ends_when_every_table_has_a_batch_that_was_begun_after_the_kill(kill: Kill, expected: float | None) -> None:
    tables = {"windows": [(at + 2_000, batch) for at, batch in BEGUN], "totals": [(at + 3_000, batch) for at, batch in BEGUN]}
    assert [one.step_s for one in with_recovery([kill], BEGUN, tables)] == [expected]
    assert with_recovery([kill], BEGUN, {**tables, "late": []})[0].step_s is None


def test_steps_are_read_from_the_commits_of_a_table(tmp_path: Path) -> None:
    log = tmp_path / "_delta_log"
    log.mkdir()
    metadata = [{"progress": {"step": 1, "seq": 4}}, {}, {"progress": {"step": 2, "seq": 9}}]
    for version, of_commit in enumerate(metadata):
        (log / f"{version:020}.json").write_text(json.dumps({"commitInfo": {"userMetadata": json.dumps(of_commit)}}) + '\n{"add": {}}\n')
    assert [batch for _, batch in steps(tmp_path)] == [4, 9]


def test_files_are_counted_by_table_and_kind(tmp_path: Path) -> None:
    names = [
        "_locks/a.lock",
        "events/clicks/_delta_log/00000000000000000000.json",
        "events/clicks/_delta_log/.00000000000000000000.json.crc",
        "events/clicks/_delta_log/00000000000000000020.checkpoint.parquet",
        "events/clicks/commit-7/part-0.parquet",
        "events/clicks/commit-7/.part-0.parquet.crc",
        "totals/part-1.parquet",
        "totals/_change_data/cdc-1.parquet",
        "totals/deletion_vector_1.bin",
    ]
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert files_by_kind(tmp_path) == {
        "_locks": {"data": 1},
        "events/clicks": {"commits": 1, "checksums": 2, "checkpoints": 1, "data": 1},
        "totals": {"data": 1, "change data": 1, "deletion vectors": 1},
    }


def test_the_legal_memory_follows_from_the_heaps(tmp_path: Path) -> None:
    assert Soak(work=tmp_path, heap="1536m", executor_memory="1g").most_mb == {"jvm_mb": 2_560, "executors_mb": 3_072}
    assert Soak(work=tmp_path, heap="2Gb", workers=0, kill=("job",)).most_mb == {"jvm_mb": 3_072}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"workers": 1}, r"`workers` is 1, and `kill` names worker; legal: 2 or more workers"),
        ({"kill": ("job", "disk")}, r"`kill` names 'disk'; legal: job, broker, worker"),
        ({"heap": "2x"}, r"`heap` is '2x'; legal: a number and its unit"),
        ({"executor_memory": "100m"}, r"`executor_memory` is '100m'; legal: .*from 512m"),
    ],
)
def test_a_soak_that_cannot_be_run_is_refused(tmp_path: Path, changes: dict[str, object], message: str) -> None:
    with pytest.raises(SoakError, match=message):
        Soak(work=tmp_path, **changes)  # pyright: ignore[reportArgumentType]
