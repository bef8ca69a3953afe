"""Code of a user in a table's definition is named as long as the table has no version. Without Spark."""

from dataclasses import dataclass, replace
from typing import Any

import dagster as dg
import pytest
from pyspark.sql import Column, DataFrame

from assets.contracts import DerivedAsset, Shape
from assets.factories.closed_range_table import closed_range_asset
from assets.factories.upserted_table import upserted_asset
from assets.uncompared_code import code_without_version
from operators import (
    Aggregate,
    Consecutive,
    CountEvictor,
    EveryRows,
    ProcessWindow,
    Session,
    TopK,
    Tumbling,
    WindowedAggregate,
)
from operators.steps import Append, ByTimeRange

COUNTS = WindowedAggregate(by="k", window=Tumbling(size="1 minute"), aggregates={"n": "count(*)"})
CONSECUTIVE = Consecutive(of=COUNTS, then=TopK(order_by="n DESC", k=1))
ELEMENTS = ProcessWindow(by="k", window=Session(gap="1 minute"), evictor=CountEvictor(3))


@dataclass(frozen=True)
class OwnCounts(WindowedAggregate):
    """An operator of a user that changes one of Tidemark's."""


@dataclass(frozen=True)
class OwnEvictor:
    """An evictor of a user."""

    most: int = 3

    def evict(self, *_: Any) -> Any:
        raise NotImplementedError


@dataclass(frozen=True)
class OwnOperator:
    """An operator of a user."""

    @property
    def inputs(self) -> tuple[str, ...]:
        return ("rows",)

    @property
    def reads(self) -> ByTimeRange:
        return ByTimeRange(lookback=(0,))

    @property
    def emits(self) -> Append:
        return Append()

    def late(self, event_time: Column, watermark: Column) -> Column:
        return event_time < watermark

    def __call__(self, *frames: DataFrame) -> DataFrame:
        return frames[0]


def _table(operator: Any, **values: Any) -> DerivedAsset:
    return DerivedAsset(name="t", inputs=("l",), operator=operator, **values)


def _with(operator: Any, **values: Any) -> Any:
    """An operator with values that its own checks might refuse."""
    changed = replace(operator)
    for name, value in values.items():
        object.__setattr__(changed, name, value)
    return changed


@pytest.mark.parametrize(
    ("table", "parts"),
    [
        pytest.param(_table(COUNTS), (), id="no code"),
        pytest.param(_table(ELEMENTS), (), id="objects of Tidemark"),
        pytest.param(_table(Aggregate(by="k", aggregates={"n": "count(*)"}), shape=Shape(where="n > 1")), (), id="a Shape"),
        pytest.param(_table(COUNTS, shape=lambda rows: rows), ("shape",), id="a function as shape"),
        pytest.param(_table(OwnOperator()), ("operator",), id="an operator of a user"),
        pytest.param(
            _table(OwnCounts(by="k", window=Tumbling(size="1 minute"), aggregates={"n": "count(*)"}), shape=lambda rows: rows),
            ("shape", "operator"),
            id="a subclass",
        ),
        pytest.param(_table(_with(ELEMENTS, evictor=OwnEvictor())), ("evictor",), id="a parameter"),
        pytest.param(_table(_with(CONSECUTIVE, then=OwnOperator())), ("then",), id="an operator within another"),
        pytest.param(_table(_with(CONSECUTIVE, of=_with(ELEMENTS, evictor=OwnEvictor()))), ("of",), id="a parameter within another"),
        pytest.param(_table(_with(replace(COUNTS, early=EveryRows(3)), early=OwnEvictor())), (), id="no result depends on it"),
    ],
)
def test_code_is_named_unless_the_table_has_a_version(table: DerivedAsset, parts: tuple[str, ...]) -> None:
    assert code_without_version(table) == parts
    assert code_without_version(replace(table, version="1")) == ()


class NoWork:
    """Takes tables to advance, and advances none."""

    def add(self, *_: Any) -> None:
        """There is no work."""


@pytest.mark.parametrize(("version", "metadata"), [("", {"code_without_version": "shape"}), ("1", {})])
def test_the_definition_in_dagster_names_the_code(version: str, metadata: dict[str, str]) -> None:
    table, worker = _table(COUNTS, shape=lambda rows: rows, version=version), NoWork()
    made: Any = {"sources": ["l"], "worker": worker}
    for asset in (upserted_asset(table, **made), closed_range_asset(table, days=dg.DailyPartitionsDefinition("2026-01-01"), **made)):
        [found] = asset.metadata_by_key.values()
        assert {key: value for key, value in found.items() if key == "code_without_version"} == metadata
