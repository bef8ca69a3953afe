"""Joins and coGroups whose windows purge: each firing has the rows of both inputs since the last one, as in a naive simulation.

Flink's joined and coGrouped streams are one window operator over the union of both inputs, whose trigger counts the rows of both.
"""

import random
from collections import Counter
from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple, get_args

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from operators import (
    CoGroup,
    CountEvictor,
    Cumulative,
    EveryInterval,
    EveryRows,
    EveryStep,
    OperatorError,
    Session,
    Sliding,
    Tumbling,
    WindowJoin,
)
from operators.engine_columns import ARRIVAL, SEQ, WATERMARK
from operators.window_join import How
from operators.windows import Aligned
from tests.operators.frames import by_tag, frame_of, tagged
from tests.support.purging_model import Firing, Row, WindowOperator

CASES = 200
SCHEMA = pa.schema(
    [
        *[("case_id", pa.int32()), ("k", pa.string()), ("side", pa.int32()), ("id", pa.int32())],
        *[("t", pa.int64()), ("w", pa.int64()), (SEQ, pa.int64()), (ARRIVAL, pa.int64())],
    ]
)
PARAMETERS: dict[str, tuple[Aligned, EveryRows | EveryInterval, int, How]] = {
    "rows, tumbling": (Tumbling(size=40), EveryRows(3), 0, "inner"),
    "rows, sliding, late": (Sliding(size=40, slide=15), EveryRows(2), 25, "full"),
    "rows, gaps": (Sliding(size=10, slide=15), EveryRows(2), 5, "left"),
    "interval, tumbling": (Tumbling(size=40, offset=5), EveryInterval(15), 0, "anti"),
    "interval, sliding, late": (Sliding(size=40, slide=20), EveryInterval(10), 30, "semi"),
    "interval, cumulative, late": (Cumulative(size=60, step=20), EveryInterval(25), 15, "right"),
}


class InputRow(NamedTuple):
    """A row: its input, its key, its batch, its position in the batch, and its id, time and watermark."""

    side: int
    k: str | None
    batch: int
    arrival: int
    row: Row


def _case(rng: random.Random) -> list[InputRow]:
    """Batches of rows of both inputs, many at the edges of windows and intervals, in the order in which they arrive."""
    rows, mark, newest = list[InputRow](), None, rng.randrange(-100, 20)
    for batch in range(1, rng.randrange(2, 7)):
        of_batch, arrived = list[InputRow](), Counter[int]()
        for _ in range(rng.randrange(8)):
            t = rng.choice([newest - rng.randrange(60), newest + rng.randrange(30), (newest // 5 + rng.randrange(-8, 9)) * 5])
            side, k = rng.randrange(2), None if rng.random() < 0.1 else "k"
            of_batch.append(InputRow(side, k, batch, arrived[side], Row(len(rows) + len(of_batch), t, mark)))
            arrived[side] += 1
        rows += sorted(of_batch, key=lambda input_row: (input_row.arrival, input_row.side))
        newest = max([newest, *(input_row.row.t for input_row in rows)]) + rng.choice([0, 0, 1, 30])
        mark = max(newest - rng.choice([0, 1, 5, 20, 50]), newest - 100 if mark is None else mark)
    return rows


def _frames(spark: SparkSession, cases: list[list[InputRow]]) -> list[DataFrame]:
    rows = [
        {
            "case_id": n,
            "k": input_row.k,
            "side": input_row.side,
            "id": input_row.row.id,
            "t": input_row.row.t,
            "w": input_row.row.watermark,
            SEQ: input_row.batch,
            ARRIVAL: input_row.arrival,
        }
        for n, case in enumerate(cases)
        for input_row in case
    ]
    made = spark.createDataFrame(pa.Table.from_pylist(random.Random(2).sample(rows, len(rows)), SCHEMA))
    time, mark = F.timestamp_millis("t").alias("event_time"), F.timestamp_millis("w").alias(WATERMARK)
    return [made.where(F.col("side") == side).select("case_id", "k", "id", time, SEQ, ARRIVAL, mark) for side in (0, 1)]


def _firings(
    case: list[InputRow], window: Aligned, trigger: Any, lateness: int
) -> Iterator[tuple[str | None, Firing, list[int], list[int]]]:
    """Each firing with its key, and the ids of its left and right rows. On each side, the null key is a separate key."""
    sides = {input_row.row.id: input_row.side for input_row in case}
    groups: list[list[InputRow]] = [
        [input_row for input_row in case if input_row.k is not None],
        *[[input_row for input_row in case if (input_row.k, input_row.side) == (None, n)] for n in (0, 1)],
    ]
    for group in groups:
        for firing in WindowOperator(window, trigger, lateness).firings([input_row.row for input_row in group]):
            yield group[0].k, firing, *([i for i in firing.ids if sides[i] == side] for side in (0, 1))


def _bounds_number_and_times(firing: Firing) -> tuple[int, ...]:
    return (*firing.window, firing.number, firing.at, firing.at)


def _joined(how: How, k: str | None, left: list[int], right: list[int]) -> list[tuple[int | None, int | None]]:
    """The results of a join of the rows of a firing, as the ids of the left and the right row."""
    pairs = [(a, b) for a in left for b in right if k is not None]
    only_left, only_right = ([i for i in ids if k is None or not others] for ids, others in ((left, right), (right, left)))
    if how in ("semi", "anti"):
        return [(i, None) for i in (only_left if how == "anti" else [i for i in left if i not in only_left])]
    unmatched_left = [(i, None) for i in only_left if how in ("left", "full")]
    return [*pairs, *unmatched_left, *[(None, i) for i in only_right if how in ("right", "full")]]


COLUMNS = (
    *[f"unix_millis({bound}) AS {bound}" for bound in ("window_start", "window_end")],
    "firing",
    *[f"unix_millis({time}) AS {time}" for time in ("result_time", "final_at")],
)


@cache
def _cases(name: str) -> list[list[InputRow]]:
    rng = random.Random(name)
    return [_case(rng) for _ in range(CASES)]


@pytest.fixture(scope="module")
def results(spark: SparkSession) -> dict[str, Counter[tuple[Any, ...]]]:
    """The groups and the joined rows by the name of the parameters; one query has all of them. Ids are text."""
    selected: dict[str, DataFrame] = {}
    for name, (window, trigger, lateness, how) in PARAMETERS.items():
        frames = _frames(spark, _cases(name))
        given: dict[str, Any] = {"on": ("case_id", "k"), "window": window, "allowed_lateness": lateness, "purging": trigger}
        group_ids = [f"string(array_sort(transform({side}, row -> row.id)))" for side in ("left", "right")]
        joined_ids = ["string(id)", "string(null)"] if how in ("semi", "anti") else ["string(left_id)", "string(right_id)"]
        selected[f"{name}: groups"] = CoGroup(**given)(*frames).selectExpr("case_id", "k", *COLUMNS, *_with_aliases(group_ids))
        selected[f"{name}: joined"] = WindowJoin(how=how, **given)(*frames).selectExpr("case_id", "k", *COLUMNS, *_with_aliases(joined_ids))
    return by_tag(tagged(selected))


@pytest.mark.parametrize("name", PARAMETERS)
def test_groups_and_joins_equal_those_of_a_simulated_window_operator_over_both_inputs(
    results: dict[str, Counter[tuple[Any, ...]]], name: str
) -> None:
    window, trigger, lateness, how = PARAMETERS[name]
    firings = [(n, *firing) for n, case in enumerate(_cases(name)) for firing in _firings(case, window, trigger, lateness)]
    assert results[f"{name}: groups"] == Counter(
        (n, k, *_bounds_number_and_times(firing), str(left), str(right)) for n, k, firing, left, right in firings
    )
    assert results[f"{name}: joined"] == Counter(
        (n, k, *_bounds_number_and_times(firing), *[None if i is None else str(i) for i in result])
        for n, k, firing, left, right in firings
        for result in _joined(how, k, left, right)
    )
    assert sum(firing.number > 1 for _, _, firing, _, _ in firings) > 50
    assert sum(bool(left and right) for *_, left, right in firings) > 100
    assert any(firing.at > firing.window[1] - 1 for _, _, firing, _, _ in firings) == (lateness > 0)
    assert sum(number > 1 for _, _, _, _, number, *_ in results[f"{name}: joined"]) > 20


def _with_aliases(ids: list[str]) -> list[str]:
    return [f"{of_side} AS {side}_ids" for side, of_side in zip(("left", "right"), ids, strict=True)]


def test_the_parameters_contain_every_kind_of_join() -> None:
    assert {how for *_, how in PARAMETERS.values()} == {*get_args(How)}


def _rows_with_ids(spark: SparkSession, *ids: int) -> DataFrame:
    """Rows of one key; a row with id n has the time 10 n + 1 ms."""
    return frame_of(spark, [(i,) for i in ids], "id int").selectExpr("'a' AS k", "id", "timestamp_millis(id * 10L + 1) AS event_time")


PURGING: dict[str, Any] = {"on": "k", "window": Tumbling(size=100), "purging": EveryInterval(25)}
"""Firings with the rows up to 25, 50 and 75 ms, and up to the end. Without batches, rows of both sides are ordered by time."""


def _inputs(spark: SparkSession) -> tuple[DataFrame, DataFrame]:
    return _rows_with_ids(spark, 0, 3, 4, 7), _rows_with_ids(spark, 1, 2, 6, 8)


def test_the_results_of_a_group_have_the_columns_of_rows_and_of_the_firing(spark: SparkSession) -> None:
    rows = "transform(left, l -> named_struct('l', l.id, 'r', transform(right, r -> r.id)))"
    groups = CoGroup(rows=rows, **PURGING)(*_inputs(spark))
    assert groups.columns == ["k", "l", "r", "window_start", "window_end", "firing", "result_time", "final_at"]
    assert sorted((row.firing, row.l, row.r) for row in groups.collect()) == [(1, 0, [1, 2]), (2, 3, []), (2, 4, []), (3, 7, [6])]


def test_a_residual_holds_in_each_firing_of_a_join(spark: SparkSession) -> None:
    frames = _inputs(spark)
    pairs = WindowJoin(how="full", residual="left_id < right_id", **PURGING)
    found = pairs(*frames)
    assert tuple(found.columns) == pairs.result_columns(*[frame.columns for frame in frames])
    assert dict(found.dtypes)["firing"] == "bigint"
    assert _ids_by_firing(found) == Counter({(1, 0, 1), (1, 0, 2), (2, 3, None), (2, 4, None), (3, 7, None), (3, None, 6), (4, None, 8)})


def test_an_evictor_applies_to_the_rows_of_both_inputs_in_each_firing(spark: SparkSession) -> None:
    found = WindowJoin(how="full", evictor=CountEvictor(2), **PURGING)(*_inputs(spark))
    assert _ids_by_firing(found) == Counter({(1, None, 1), (1, None, 2), (2, 3, None), (2, 4, None), (3, 7, 6), (4, None, 8)})


def _ids_by_firing(joined: DataFrame) -> Counter[tuple[int, int | None, int | None]]:
    return Counter((row.firing, row.left_id, row.right_id) for row in joined.collect())


def test_an_input_can_have_a_column_named_firing(spark: SparkSession) -> None:
    """The table of another window that purges has such a column."""
    named = [_rows_with_ids(spark, 0, 1).withColumn("firing", F.lit(side)) for side in (7, 8)]
    shared: dict[str, Any] = {"on": "k", "window": Tumbling(size=100), "purging": EveryRows(4)}
    [row, *_] = WindowJoin(**shared)(*named).collect()
    assert (row.left_firing, row.right_firing, row.firing) == (7, 8, 1)
    [row, *_] = WindowJoin(how="semi", **shared)(*named).collect()
    assert (row.left_firing, row.firing) == (7, 1)


@pytest.mark.parametrize("kind", [CoGroup, WindowJoin])
@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"purging": EveryStep()}, "`purging`.*a backfill would have other results"),
        ({"purging": EveryInterval(5, by="processing")}, "`purging`.*interval of event time"),
        ({"window": Session(gap=5, longest=50)}, "`purging`.*bounds of a session"),
        ({"early": EveryStep()}, "`early`.*None with `purging`"),
    ],
)
def test_illegal_values_with_purging_are_refused(kind: type[CoGroup] | type[WindowJoin], changes: dict[str, Any], match: str) -> None:
    parameters: dict[str, Any] = {"on": "k", "window": Tumbling(size=10), "purging": EveryRows(2), **changes}
    with pytest.raises(OperatorError, match=match):
        kind(**parameters)


def test_a_step_reads_whole_windows_of_both_inputs_and_no_row_corrects_a_firing() -> None:
    for operator in (
        kind(on="k", window=Tumbling(size="1 hour"), allowed_lateness=60_000, purging=EveryRows(2)) for kind in (CoGroup, WindowJoin)
    ):
        assert (operator.reads.lookback, operator.reads.lateness, operator.reads.watermark_delay) == ((61 * 60_000,) * 2, 0, 0)
        assert operator.emits.key == (), "only the whole row identifies a result"
