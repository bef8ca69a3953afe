"""The strategies for watermarks are checked when they are made, in Python and in YAML."""

from typing import Any

import pytest

from assets.contracts import (
    Alignment,
    BatchExpression,
    BatchStatistics,
    Generated,
    SourceContract,
)
from operators.errors import OperatorError
from platform_defs.declared.pipeline import read


class Constant:
    """A generator of watermarks."""

    def on_batch(self, batch: BatchStatistics) -> int | None:
        return batch.last_event_time


class NeedsAnArgument:
    """A generator that a name alone cannot make."""

    def __init__(self, bound: int) -> None:
        self.bound = bound


def _contract(**changes: Any) -> SourceContract:
    return SourceContract(**{"name": "rides", "schema": "zone STRING, started_at TIMESTAMP", "event_time": "started_at", **changes})


HERE = "tests.assets.test_watermark_strategies"


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: BatchExpression("started_at"), r"`watermark` is 'started_at'; legal: SQL with an aggregate function, such as max"),
        (lambda: BatchExpression(""), "`watermark` is ''"),
        (lambda: Generated("os"), r"`generator` is 'os'; legal: a WatermarkGenerator, or the name of one, 'package.module:name'"),
        (lambda: Generated("no_such_module:x"), r"that can be imported; ModuleNotFoundError: No module named 'no_such_module'"),
        (lambda: Generated("os:no_such"), r"that can be imported; AttributeError: module 'os' has no attribute 'no_such'"),
        (
            lambda: Generated(f"{HERE}:NeedsAnArgument"),
            "legal: a class that can be called without arguments; TypeError: ",
        ),
        (lambda: Generated("os:sep"), r"`generator` is 'os:sep'; legal: an object with a method `on_batch"),
        (lambda: Generated(object()), r"legal: an object with a method `on_batch"),  # pyright: ignore[reportArgumentType]
        (lambda: Alignment("", "1 hour"), "`group` is ''"),
        (lambda: Alignment("g", "-1 hour"), "`max_drift` is '-1 hour'"),
        (lambda: Alignment("g", None), "`max_drift` is None"),  # pyright: ignore[reportArgumentType]
        (lambda: _contract(alignment="g"), r"`alignment` is 'g'; legal: Alignment\(group=..., max_drift=...\), or None"),
        (
            lambda: _contract(alignment=Alignment("g", "1 hour")),
            "`idle_timeout` is None; legal: an idle timeout for source 'rides', .* hold back its group for ever",
        ),
        (
            lambda: _contract(alignment=Alignment("g", "1 hour"), idle_timeout="1 hour", event_time="ingested_at"),
            "`alignment` is .*; legal: None for source 'rides': the watermark of processing time is the clock",
        ),
        (lambda: _contract(watermark=BatchExpression("max(time)")), r"'time' is no column of source 'rides'"),
        (lambda: _contract(watermark="x"), r"legal: BoundedOutOfOrderness\(...\), Punctuated\(...\), BatchExpression\(...\) or Generated"),
    ],
)
def test_illegal_strategies_are_refused(make: Any, match: str) -> None:
    with pytest.raises(OperatorError, match=match):
        make()


def test_a_generator_is_an_object_its_name_or_the_name_of_its_class() -> None:
    one = Constant()
    assert Generated(one).instance is one
    assert isinstance(Generated(f"{HERE}:Constant").instance, Constant)
    assert Generated(f"{HERE}:Constant") == Generated(f"{HERE}:Constant")


def test_a_batch_expression_reads_the_columns_and_the_event_time() -> None:
    assert _contract(watermark=BatchExpression("max(event_time) - INTERVAL 1 MINUTE")).watermark
    assert _contract(watermark=BatchExpression("max_by(started_at, zone)")).watermark


YAML = """
sources:
  - name: rides
    schema: zone STRING, started_at TIMESTAMP
    event_time: started_at
    watermark: {{{watermark}}}
    idle_timeout: 1 hour
    alignment: {{group: trips, max_drift: 10 minutes}}
"""


@pytest.mark.parametrize(
    ("watermark", "expected"),
    [
        (
            'batch_expression: {watermark: "max(started_at) - INTERVAL 10 MINUTES"}',
            BatchExpression("max(started_at) - INTERVAL 10 MINUTES"),
        ),
        (f'generated: {{generator: "{HERE}:Constant"}}', Generated(f"{HERE}:Constant")),
    ],
)
def test_strategies_in_yaml(watermark: str, expected: Any) -> None:
    [found] = read(YAML.format(watermark=watermark)).sources
    assert found.watermark == expected
    assert found.alignment == Alignment("trips", "10 minutes")
