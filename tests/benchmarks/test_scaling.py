"""The simulation of more cores, on tasks of known lengths."""

import json
from pathlib import Path

import pytest

from benchmarks.scaling import Task, makespan, read_tasks, scaled


@pytest.mark.parametrize(("lengths", "cores", "expected"), [([4, 3, 3], 1, 10), ([4, 3, 3], 2, 6), ([4, 3, 3], 3, 4), ([], 2, 0)])
def test_a_task_takes_the_next_free_core(lengths: list[int], cores: int, expected: int):
    assert makespan(lengths, cores) == expected


def test_the_time_without_tasks_stays_and_that_of_tasks_is_divided():
    stage = [Task((1, 0), 1_000 + 100 * (n // 2), 1_100 + 100 * (n // 2)) for n in range(8)]  # on two cores
    last = [Task((2, 0), 1_900, 2_000)]
    found = scaled([*stage, *last], 500, 2_500, cores=(1, 2, 4, 64))
    assert (found.measured_s, found.driver_s, found.tasks) == (2.0, 1.5, 9)
    assert found.simulated_s == {1: 2.4, 2: 2.0, 4: 1.8, 64: 1.7}


def test_tasks_outside_the_time_do_not_count():
    assert scaled([Task((1, 0), 0, 10), Task((1, 0), 30, 40)], 10, 30, cores=(1,)).tasks == 0


def test_tasks_are_read_from_sparks_event_log(tmp_path: Path):
    event = {"Event": "SparkListenerTaskEnd", "Stage ID": 3, "Stage Attempt ID": 1, "Task Info": {"Launch Time": 20, "Finish Time": 50}}
    first = event | {"Task Info": {"Launch Time": 10, "Finish Time": 15}}
    lines = [json.dumps(line, separators=(",", ":")) for line in (event, {"Event": "SparkListenerStageCompleted"}, first)]
    (tmp_path / "local-1").write_text("\n".join(lines))
    assert read_tasks(tmp_path) == [Task((3, 1), 10, 15), Task((3, 1), 20, 50)]
