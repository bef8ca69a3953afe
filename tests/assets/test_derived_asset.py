"""Which tables a stream may compute by a streaming query, and why the others may not be. No test starts Spark."""

from dataclasses import dataclass
from typing import Any

import pytest
from pyspark.sql import DataFrame

from assets.contracts import ContractError, DerivedAsset
from assets.pipeline import Pipeline
from operators import (
    CountEvictor,
    Cumulative,
    EveryStep,
    IntervalJoin,
    Session,
    Sliding,
    TopK,
    TopN,
    Tumbling,
    WindowedAggregate,
)
from operators.contract import Operator
from tests.support.small_sources import source

WINDOW = Tumbling(size="1 minute")


def _join(**more: Any) -> IntervalJoin:
    return IntervalJoin(**{"on": "k", "lower": 0, "upper": "1 minute", **more})


def _windows(window: Any = WINDOW, value: str = "count(*)", **more: Any) -> WindowedAggregate:
    return WindowedAggregate(by="k", window=window, aggregates={"value": value}, **more)


def _table(operator: Operator, streams_as: Any = "query") -> DerivedAsset:
    return DerivedAsset(name="t", inputs=("l", "r")[: len(operator.inputs)], operator=operator, streams_as=streams_as)


LEGAL = [
    *[_join(how=how) for how in ("inner", "left", "right", "full")],
    _join(early=EveryStep()),
    _join(how="left", result_time="left", time_buckets=True),
    *[_windows(value=value) for value in ("sum(v)", "avg(v)", "max_by(v, struct(event_time, seq))", "stddev(v)")],
    *[_windows(Sliding(size="2 minutes", slide="1 minute"), value) for value in ("count(*)", "max(v)", "avg(v)", "sum(v) + 0")],
    _windows(Cumulative(size="2 minutes", step="1 minute"), early=EveryStep()),
]


@pytest.mark.parametrize("operator", LEGAL, ids=repr)
def test_a_table_whose_query_has_the_same_results_is_legal(operator: Operator) -> None:
    assert _table(operator).streams_as == "query"


@dataclass(frozen=True)
class Refused:
    """An operator of which a query would have other results."""

    id: str
    operator: Operator
    why: str


class OtherResults(IntervalJoin):
    """An operator of a user, whose results differ from those of the query that it inherits."""

    def __call__(self, *frames: DataFrame) -> DataFrame:
        return super().__call__(*frames).limit(1)


REFUSED = (
    Refused("a subclass", OtherResults(on="k", lower=0, upper=1), "operator is OtherResults: Spark has no streaming form of it"),
    Refused("grouping sets", _windows(grouping_sets=[["k"], []]), "have no `grouping_sets`"),
    Refused("semi", _join(how="semi"), "emits a left row when it finds any match, which need not be the earliest"),
    Refused("anti", _join(how="anti", result_time="left"), "Spark has no anti join of streams"),
    Refused("allowed lateness of a join", _join(allowed_lateness=1), "has no `allowed_lateness`, which is 1"),
    Refused("late rows that join", _join(late_rows="join", result_time="left"), "has no `late_rows`, which is 'join'"),
    Refused("allowed lateness of windows", _windows(allowed_lateness=1), "have no `allowed_lateness`, which is 1"),
    Refused("evictor", _windows(evictor=CountEvictor(rows=1)), "have no `evictor`"),
    Refused("session", _windows(Session(gap="1 minute")), "a session that Spark keeps open may be closed by the watermark"),
    Refused("distinct", _windows(value="count(DISTINCT v)"), "Spark has no DISTINCT aggregates of streams"),
    Refused("sums of panes", _windows(Sliding(size=20, slide=10), "sum(v)"), r"write 'sum\(v\) \+ 0', for which a step adds the rows too"),
    Refused("ranking of windows", TopK(k=1, by="k", order_by="v", window=WINDOW), "operator is TopK: Spark has no streaming form of it"),
    Refused("upserted", TopN(order_by="v", by="k", rank_end=1), "operator is TopN: Spark has no streaming form of it"),
)


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case.id)
def test_a_query_with_other_results_is_refused_with_the_reason(case: Refused) -> None:
    with pytest.raises(ContractError, match="`streams_as` is 'query'; legal: 'ranges' for table 't'") as caught:
        _table(case.operator)
    with pytest.raises(ContractError, match=case.why):
        raise caught.value
    assert _table(case.operator, "ranges").streams_as == "ranges"


def test_a_query_of_a_table_is_refused() -> None:
    below = DerivedAsset(name="below", inputs=("t", "r"), operator=_join(), streams_as="query")
    with pytest.raises(ContractError, match="a query reads event logs, and 't' is a table, whose results are corrected and rebuilt"):
        Pipeline(sources=[source("l"), source("r")], tables=[_table(_join()), below])


def test_another_value_of_streams_as_is_refused() -> None:
    with pytest.raises(ContractError, match="`streams_as` is 'spark'; legal: ranges, query"):
        _table(_join(), "spark")
