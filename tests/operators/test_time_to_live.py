"""Keys with a time to live (TTL): rows before a gap longer than the TTL no longer count."""

import random
import re
from collections import Counter
from itertools import count
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from operators import Aggregate, ByKey, ColumnError, Deduplicate, Kept, NewRows, OperatorError, Tumbling
from operators.contract import Operator
from tests.support.json_rows import dicts_of

CASES, TTL = 1_000, 10_000
SCHEMA = pa.schema(
    {"case_id": pa.int32(), "k": pa.string(), "v": pa.int32()}
    | {"event_time": pa.timestamp("ms", "UTC"), "seq": pa.int64(), "arrival": pa.int64()}
)
KEY_AND_TTL: dict[str, Any] = {"by": ("case_id", "k"), "ttl": TTL}
OPERATORS: dict[str, Operator] = {
    "merged": Aggregate(aggregates={"n": "count(v)", "most": "max(v)"}, **KEY_AND_TTL),
    "not merged": Aggregate(aggregates={"n": "count(DISTINCT v)", "mean": "avg(v)"}, **KEY_AND_TTL),
    "first": Deduplicate(**KEY_AND_TTL),
    "last": Deduplicate(keep="last", **KEY_AND_TTL),
    "arrived last": Deduplicate(keep="last", order="arrival", **KEY_AND_TTL),
}
Row = dict[str, Any]


def _rows() -> list[Row]:
    rng, arrivals = random.Random(8), count()
    return [
        {"case_id": case, "k": rng.choice(["a", None]), "v": rng.choice([None, 1, 2, 3]), "event_time": rng.randrange(0, 60_000, 2_500)}
        | {"seq": 1, "arrival": next(arrivals)}
        for case in range(CASES)
        for _ in range(rng.randrange(1, 7))
    ]


def _within_ttl(rows: list[Row]) -> list[Row]:
    """The rows since the last gap of more than the TTL, in the order of their arrival."""
    period: list[Row] = []
    for row in sorted(rows, key=lambda r: r["event_time"]):
        period = [*period, row] if period and row["event_time"] - period[-1]["event_time"] <= TTL else [row]
    return sorted(period, key=lambda r: r["arrival"])


def _count_and_max(rows: list[Row]) -> tuple[Any, ...]:
    """The results, and the position (batch and arrival) of the row that last changed one of them."""
    found, at = (), 0
    for n, row in enumerate(rows, 1):
        values = [r["v"] for r in rows[:n] if r["v"] is not None]
        if (now := (len(values), max(values, default=None))) != found:
            found, at = now, row["arrival"]
    return (*found, 1, at)


def _distinct_count_and_mean(rows: list[Row]) -> tuple[Any, ...]:
    """The results, and the position of the last row."""
    values = [r["v"] for r in rows if r["v"] is not None]
    return len({*values}), sum(values) / len(values) if values else None, 1, rows[-1]["arrival"]


def _deduplicated(name: str, rows: list[Row]) -> tuple[Any, ...]:
    order = (lambda r: r["arrival"]) if name == "arrived last" else (lambda r: (r["event_time"], r["arrival"]))
    row = (min if name == "first" else max)(rows, key=order)
    return row["v"], row["arrival"]


@pytest.fixture(scope="module")
def results(spark: SparkSession) -> dict[str, list[Row]]:
    """The rows of each operator's result; one query has all of them."""
    rows = _rows()
    frame = spark.createDataFrame(pa.Table.from_pylist(random.Random(1).sample(rows, len(rows)), SCHEMA)).repartition(3)
    return dicts_of({name: operator(frame) for name, operator in OPERATORS.items()})


@pytest.mark.parametrize("name", OPERATORS)
def test_rows_before_a_gap_longer_than_the_ttl_do_not_count(results: dict[str, list[Row]], name: str) -> None:
    by_key: dict[Any, list[Row]] = {}
    for row in _rows():
        by_key.setdefault((row["case_id"], row["k"]), []).append(row)
    model = {"merged": _count_and_max, "not merged": _distinct_count_and_mean}.get(name) or (lambda rows: _deduplicated(name, rows))
    wanted = {key: model(_within_ttl(of_key)) for key, of_key in by_key.items()}
    columns = [*results[name][0]][2:] if isinstance(OPERATORS[name], Aggregate) else ["v", "arrival"]
    found = Counter((row["case_id"], row["k"], *(row[c] for c in columns)) for row in results[name])
    assert found == Counter((*key, *values) for key, values in wanted.items())
    assert sum(len(_within_ttl(of_key)) < len(of_key) for of_key in by_key.values()) > CASES / 2


MAKE = [lambda **how: Aggregate(by="k", aggregates={"n": "count(*)"}, **how), lambda **how: Deduplicate(by="k", **how)]
"""Both operators, with other parameters."""


@pytest.mark.parametrize("make", MAKE)
def test_a_step_reads_kept_rows_and_with_retract_expired_keys(make: Any) -> None:
    kept = Kept(3_600_000)
    assert make().reads == NewRows()
    assert make(ttl="1 hour").reads == ByKey(("k",), keeps=kept)
    assert make(ttl="1 hour", after_ttl="retract").reads == ByKey(("k",), ttl=3_600_000, keeps=kept)
    by_clock = make(ttl="1 hour", after_ttl="retract", ttl_by="processing").reads
    assert by_clock == ByKey(("k",), ttl=3_600_000, ttl_by="processing", keeps=kept)


@pytest.mark.parametrize("make", MAKE)
@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"ttl": 0}, "`ttl` is 0; legal: a duration of more than zero, or None"),
        ({"ttl": "1 day", "ttl_by": "wall"}, "`ttl_by` is 'wall'; legal: event, processing"),
        ({"after_ttl": "retract"}, "`after_ttl` is 'retract'; legal: keep; or retract, with a `ttl`"),
        ({"ttl": 1, "after_ttl": "drop"}, "`after_ttl` is 'drop'; legal: keep; or retract"),
    ],
)
def test_an_illegal_ttl_is_refused(make: Any, parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(OperatorError, match=re.escape(message)):
        make(**parameters)


def test_windows_have_no_time_to_live() -> None:
    with pytest.raises(OperatorError, match="`ttl` is '1 hour'; legal: None with a `window`"):
        Deduplicate(by="k", window=Tumbling(size="1 minute"), ttl="1 hour")


def test_frames_without_the_time_are_refused(spark: SparkSession) -> None:
    rows = spark.sql("SELECT 1 AS k, timestamp_millis(0) AS event_time")
    with pytest.raises(OperatorError, match="`ttl_by` is 'processing'; legal: event: a frame has no processing time of its rows"):
        Aggregate(by="k", aggregates={"n": "count(*)"}, ttl=1, ttl_by="processing")(rows)
    with pytest.raises(ColumnError, match="`ttl` names the column 'event_time', which the frame does not have"):
        Aggregate(by="k", aggregates={"n": "count(*)"}, ttl=1)(rows.drop("event_time"))
