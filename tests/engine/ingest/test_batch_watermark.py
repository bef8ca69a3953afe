"""Custom watermark generators: SQL over a batch, and a Python object that gets the batch's statistics."""

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assets.contracts import BatchExpression, BatchStatistics, BoundedOutOfOrderness, Generated, Punctuated, SourceContract
from platform_defs.engine.ingest.batch_counts import BatchCounts
from platform_defs.engine.ingest.batch_watermark import watermark_after
from platform_defs.engine.ingest.errors import IngestError
from platform_defs.engine.ledger.ledger import SourceBatch
from tests.conftest import MakeEngine
from tests.support.example_counts import example_count
from tests.support.small_sources import HOUR, MINUTE, START, Event, land, source

COUNTS = BatchCounts(read=5, good=3, quarantined=2, markers=0, warned=0, first=100, last=400, watermark=None, mean=200.0, deviation=1.0)
LAST = SourceBatch(seq=1, kind="rows", ingested_at=1, source="l", watermark=250, max_event_time=900)
NO_ROWS: Any = None


@dataclass
class Slow:
    """A generator whose watermark is halfway between the batch's mean and its newest event time."""

    def on_batch(self, batch: BatchStatistics) -> int | None:
        return int(batch.mean_event_time + batch.last_event_time) // 2


SLOW = Slow()


@dataclass
class Returns:
    """A generator that returns a value and keeps what it was given."""

    value: Any
    given: BatchStatistics | None = None

    def on_batch(self, batch: BatchStatistics) -> int | None:
        self.given = batch
        if isinstance(self.value, Exception):
            raise self.value
        return self.value


def _after(how: Any, counts: BatchCounts = COUNTS, last: SourceBatch | None = LAST) -> int | None:
    return _after_batch(source("l", watermark=how), counts, last)


def _after_batch(contract: SourceContract, counts: BatchCounts, last: SourceBatch | None) -> int | None:
    return watermark_after(contract, counts, NO_ROWS, last, None, 5_000)


def test_a_generator_is_given_the_statistics_of_the_batch() -> None:
    generator = Returns(300)
    assert _after(Generated(generator)) == 300
    assert generator.given == BatchStatistics(
        rows=3,
        first_event_time=100,
        last_event_time=400,
        mean_event_time=200.0,
        newest_event_time=900,
        watermark=250,
        ingested_at=5_000,
    )
    _after(Generated(generator), last=None)
    assert generator.given == replace(generator.given, newest_event_time=400, watermark=None)


@pytest.mark.parametrize(
    ("how", "last", "expected"),
    [
        (Generated(Slow()), LAST, 300),
        (Generated(Slow()), None, 300),
        (Generated(Returns(None)), LAST, 250),
        (Generated(Returns(None)), None, None),
        (Generated(Returns(249)), LAST, 250),
        (Generated(Returns(-5)), None, -5),
        (Generated("tests.engine.ingest.test_batch_watermark:Slow"), None, 300),
        (Generated("tests.engine.ingest.test_batch_watermark:SLOW"), None, 300),
        (BoundedOutOfOrderness("10 ms"), LAST, 389),
    ],
)
def test_the_watermark_after_a_batch(how: Any, last: SourceBatch | None, expected: int | None) -> None:
    assert _after(how, last=last) == expected


def test_a_generator_is_not_called_for_a_batch_without_accepted_rows() -> None:
    generator = Returns(300)
    assert _after(Generated(generator), replace(COUNTS, good=0, first=None, last=None, mean=None)) == 250
    assert generator.given is None


@pytest.mark.parametrize("value", [1.5, "300", True, 1 << 62, START * 1_000])
def test_a_value_that_is_no_watermark_is_refused(value: Any) -> None:
    with pytest.raises(
        IngestError, match=r"source 'l' returned .* legal: a whole number, in epoch ms .*, or None. Nothing .* was ingested"
    ):
        _after(Generated(Returns(value)))


def test_an_error_of_a_generator_names_the_source() -> None:
    with pytest.raises(IngestError, match=r"generator of source 'l' raised KeyError: 'x', for BatchStatistics\(rows=3"):
        _after(Generated(Returns(KeyError("x"))))


@given(st.lists(st.one_of(st.none(), st.integers(-(10**12), 10**12)), max_size=20))
def test_a_watermark_never_goes_back(values: list[int | None]) -> None:
    generator, last = Returns(None), cast(SourceBatch | None, None)
    contract = source("l", watermark=Generated(generator))
    for n, value in enumerate(values):
        generator.value = value
        watermark = _after_batch(contract, COUNTS, last)
        known = [v for v in values[: n + 1] if v is not None]
        assert watermark == max(known, default=None)
        last = replace(LAST, watermark=watermark)


@dataclass(frozen=True)
class Statistic:
    """A generator that returns one of the statistics that it is given."""

    name: str

    def on_batch(self, batch: BatchStatistics) -> int | None:
        value = getattr(batch, self.name)
        return value if value is None else int(value)


STRATEGIES: dict[Any, Callable[[list[int], list[int], list[int]], int | None]] = {
    BoundedOutOfOrderness("7 ms"): lambda times, newest, marks: max(times) - 8,
    Punctuated("ts"): lambda times, newest, marks: min(times),  # the rows' watermark in this law
    Generated(Statistic("first_event_time")): lambda times, newest, marks: min(times),
    Generated(Statistic("mean_event_time")): lambda times, newest, marks: int(sum(times) / len(times)),
    Generated(Statistic("newest_event_time")): lambda times, newest, marks: max(newest),
    Generated(Statistic("watermark")): lambda times, newest, marks: max(marks, default=None),
    Generated(Statistic("rows")): lambda times, newest, marks: len(times),
}
"""The watermark by its definition: from the times of a batch with rows, those of all batches, and the watermarks before it."""


@pytest.mark.parametrize("examples", [200, pytest.param(1_000, marks=pytest.mark.soak)])
@pytest.mark.parametrize("how", STRATEGIES, ids=str)
def test_watermarks_equal_those_of_a_model(how: Any, examples: int) -> None:
    """Random streams, some batches without accepted rows. The watermark is the highest value so far."""
    rng, contract, cases = random.Random(6), source("l", watermark=how), Counter[str]()
    for case in range(example_count(examples)):
        last, known, marks = None, list[int](), list[int]()
        for _ in range(rng.randrange(8)):
            times = [rng.randrange(-50, 50) for _ in range(rng.randrange(4))]
            known += times
            of_batch = {"first": min(times, default=None), "last": max(times, default=None), "watermark": min(times, default=None)}
            mean = sum(times) / len(times) if times else None
            watermark = _after_batch(contract, replace(COUNTS, good=len(times), mean=mean, **of_batch), last)
            expected = STRATEGIES[how](times, known, marks) if times else None
            cases["with rows" if times else "without rows"] += 1
            marks += [] if expected is None else [expected]
            assert watermark == max(marks, default=None), case
            last = replace(LAST, watermark=watermark, max_event_time=max(known, default=None))
    assert min(cases["with rows"], cases["without rows"]) >= example_count(examples) // 2


def test_a_stream_with_generators(make_engine: MakeEngine) -> None:
    """One row of a batch is two days ahead of the others, and duplicates and quarantined rows are in it."""
    median = "timestamp_millis(CAST(percentile(unix_millis(event_time), 0.5) AS BIGINT)) - INTERVAL 10 MINUTES"
    hows = {
        "median": BatchExpression(median),
        "by_value": BatchExpression("max_by(event_time, v)"),
        "never": BatchExpression("max(event_time) FILTER (WHERE v > 99)"),
        "python": Generated(Slow()),
    }
    engine = make_engine([source(name, watermark=how, unique_key=("k",)) for name, how in hows.items()], [])
    for name in hows:
        rows = [Event("a", 3, 0), Event("b", 1, HOUR), Event("c", 2, 48 * HOUR)]
        land(engine, name, "1.jsonl", [*[row.line for row in rows], rows[0].line, '{"k": "bad"}'])
    engine.ingest()
    watermarks = {name: row.watermark for name, row in engine.ledger.newest_rows().items()}
    assert {name: None if watermark is None else watermark - START for name, watermark in watermarks.items()} == {
        "median": HOUR // 2 - 10 * MINUTE,  # of four rows: the duplicate counts
        "by_value": 0,
        "never": None,
        "python": (49 * HOUR // 4 + 48 * HOUR) // 2,
    }
    for name in hows:
        land(engine, name, "2.jsonl", [Event("d", 0, MINUTE).line])
    engine.ingest()
    assert {name: row.watermark for name, row in engine.ledger.newest_rows().items()} == watermarks | {"by_value": START + MINUTE}
