"""Which early results a trigger shows: 1,000 generated keys, advanced in steps, equal a model; also for sessions that grow and merge."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from operators import EveryInterval, EveryRows, EveryStep, Moment, TriggerContext
from operators.columns import FINAL_AT, WINDOW_END, WINDOW_START
from operators.triggers import ROWS_SEEN
from platform_defs.engine.advance.shown_results import ShownWindows, Times
from tests.support.sessions_model import sessions

Result = tuple[int, int, int, int, int]
"""A key, the start and the end of a window, the number of its rows, and a value that tells its results apart."""
SCHEMA = pa.schema({name: pa.int64() for name in ("k", WINDOW_START, WINDOW_END, ROWS_SEEN, "v")})
KEY = ("k", WINDOW_START, WINDOW_END)
NEVER: Times = (None, None)


def _frame(spark: SparkSession, rows: Sequence[Result]) -> DataFrame:
    columns = [pa.array([row[n] for row in rows], field.type) for n, field in enumerate(SCHEMA)]
    frame = spark.createDataFrame(pa.table(columns, schema=SCHEMA))
    bounds = {name: F.timestamp_millis(name) for name in (WINDOW_START, WINDOW_END)}
    return frame.withColumns(bounds).withColumn(FINAL_AT, F.col(WINDOW_END))


def _rows(frame: DataFrame) -> list[Result]:
    return sorted(
        tuple(row) for row in frame.select("k", *[F.unix_millis(b) for b in (WINDOW_START, WINDOW_END)], ROWS_SEEN, "v").collect()
    )


Span = tuple[int, int, int]
"""A key, and the start and the end of a window."""


def _grown(rng: random.Random, counts: dict[Span, int], step: int) -> dict[Span, list[Result]]:
    """The results of windows that get up to three rows each. A window has one or two results, or now and then none."""
    fresh: dict[Span, list[Result]] = {}
    for window in counts:
        counts[window] += rng.randrange(4)
        results = rng.choice([0, 1, 1, 2, 2]) if counts[window] else 0
        if results:
            fresh[window] = [(*window, counts[window], 10 * step + n) for n in range(results)]
    return fresh


def test_windows_of_1000_keys_are_shown_at_each_multiple_of_their_rows(spark: SparkSession) -> None:
    """A window without results loses its early results at once; one without results in the table loses them when it fires.

    Both then count as not shown.
    """
    rng, counts = random.Random(1), {(case, *bounds): 0 for case in range(1_000) for bounds in ((0, 10), (5, 15))}
    wanted, fired, kept, removed = dict[Span, list[Result]](), 0, 0, 0
    for step in range(4):
        fresh, before = _grown(rng, counts, step), wanted
        frames = [_frame(spark, [*chain.from_iterable(results.values())]) for results in (fresh, before)]
        frames = [frames[0], frames[0].where(f"{ROWS_SEEN} % 4 > 0"), frames[1]]
        last = {window: results[0][3] for window, results in before.items()}
        reached = {window for window, results in fresh.items() if results[0][3] // 3 > last.get(window, 0) // 3}
        matching = {window: [result for result in results if result[3] % 4] for window, results in fresh.items()}
        wanted = {w: matching[w] if w in reached else before[w] for w in fresh if w in reached or w in before}
        removed += len([w for w in before if w in reached and not matching[w]])
        wanted = {window: results for window, results in wanted.items() if results}
        found = ShownWindows(KEY).results(EveryRows(3), *frames, now=NEVER, before=NEVER)
        assert _rows(found) == sorted(chain.from_iterable(wanted.values())), step
        fired, kept = fired + len(reached), kept + len([window for window in wanted if window not in reached])
    assert min(fired, kept) > 1_000
    assert removed > 100


def test_sessions_of_1000_keys_continue_those_that_were_shown(spark: SparkSession) -> None:
    """A row of a session counts as shown if it was shown in one of the sessions from which this session has grown."""
    rng, times = random.Random(2), {case: list[tuple[int, int]]() for case in range(1_000)}
    shown, merged, windows = list[Result](), 0, ShownWindows(KEY, are_sessions=True)
    for step in range(4):
        fresh: list[Result] = []
        for case, rows in times.items():
            rows += [(rng.randrange(40), 100 * step + n) for n in range(rng.randrange(4))]
            fresh += [(case, *span, len(part), step) for span, part in sessions(rows, 5, 10_000).items()]
        found = _rows(windows.results(EveryRows(2), *2 * [_frame(spark, fresh)], _frame(spark, shown), NEVER, NEVER))
        wanted: list[Result] = []
        for result in fresh:
            within = [s for s in shown if s[0] == result[0] and result[1] <= s[1] and s[2] <= result[2]]
            is_fired = result[3] // 2 > sum(s[3] for s in within) // 2
            wanted += [result] if is_fired else within
            merged += len(within) > 1
        shown = sorted(wanted)
        assert found == shown, step
    assert merged > 10, "sessions that were shown must merge"


@dataclass(frozen=True)
class _Undecided:
    """A condition that is null for every window."""

    def fires(self, now: TriggerContext, before: TriggerContext) -> Column:
        return now.rows > F.lit(None).cast("bigint")


def test_a_trigger_for_all_windows_shows_all_or_leaves_those_that_are_open(spark: SparkSession) -> None:
    fresh, shown = _frame(spark, [(1, 0, 10, 5, 2), (2, 5, 15, 1, 2)]), _frame(spark, [(1, 0, 10, 3, 1), (3, -9, 1, 3, 1)])
    windows, hourly = ShownWindows(KEY), EveryInterval(10)
    assert _rows(windows.results(EveryStep(), fresh, fresh, shown, (1, 0), (0, 0))) == _rows(fresh)
    assert _rows(windows.results(hourly, fresh, fresh, shown, (10, 0), (9, 0))) == _rows(fresh)
    assert _rows(windows.results(hourly, fresh, fresh, shown, (1, 0), (0, 0))) == [(1, 0, 10, 3, 1)], "the window to 1 is final"
    by_clock = EveryInterval(10, by="processing")
    assert _rows(windows.results(by_clock, fresh, fresh, shown, (1, 20), (0, 19))) == _rows(fresh)
    assert _rows(windows.results(by_clock, fresh, fresh, shown, (1, 19), (0, 10))) == [(1, 0, 10, 3, 1)]
    assert not EveryInterval(10).fires(TriggerContext(F.lit(1), None, 5), TriggerContext(F.lit(0), None, None)), "there is no watermark yet"
    assert _rows(windows.results(_Undecided(), fresh, fresh, shown, (1, 0), (0, 0))) == [(1, 0, 10, 3, 1)], "null is no firing"


def test_a_shown_session_stays_while_the_session_that_it_has_become_is_open(spark: SparkSession) -> None:
    """The watermark has passed the end that the first session had when it was shown; the second one is final."""
    fresh, shown = _frame(spark, [(1, 0, 15, 4, 2)]), _frame(spark, [(1, 0, 10, 3, 1), (2, 0, 10, 3, 1)])
    windows = ShownWindows(KEY, are_sessions=True)
    assert _rows(windows.results(EveryInterval(100), fresh, fresh, shown, (12, 0), (9, 0))) == [(1, 0, 10, 3, 1)]


def test_the_context_of_a_trigger_has_its_former_name_too() -> None:
    assert Moment is TriggerContext
