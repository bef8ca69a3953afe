"""Parameters of a wrong type are refused when an operator is made, with the parameter, the value and what is legal."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
from pyspark.sql import DataFrame

from operators import (
    Aggregate,
    Append,
    AsOfJoin,
    ByKey,
    ByTimeRange,
    ClosedRange,
    CoGroup,
    Consecutive,
    CountEvictor,
    CountWindowAggregate,
    Deduplicate,
    DeltaEvictor,
    EveryRows,
    EveryStep,
    Interval,
    IntervalJoin,
    NewRows,
    OperatorError,
    ProcessCountWindow,
    ProcessWindow,
    Session,
    TopK,
    TopN,
    TriggerContext,
    Tumbling,
    Upsert,
    WindowedAggregate,
    WindowJoin,
)

HOUR, COUNT = Tumbling(size="1 hour"), {"n": "count(*)"}
Make = Callable[..., object]
windowed = partial(WindowedAggregate, window=HOUR, aggregates=COUNT)
by_count = partial(CountWindowAggregate, size=2, aggregates=COUNT)
within = partial(IntervalJoin, on="k", lower=0, upper=1)
WITH_KEY: dict[str, Sequence[Make]] = {
    "by": (
        windowed,
        by_count,
        partial(Aggregate, aggregates=COUNT),
        Deduplicate,
        partial(ProcessWindow, window=HOUR),
        partial(ProcessCountWindow, size=2),
        partial(TopK, k=1, order_by="v"),
        partial(TopN, rank_end=1, order_by="v"),
    ),
    "on": (partial(IntervalJoin, lower=0, upper=1), AsOfJoin, partial(WindowJoin, window=HOUR), partial(CoGroup, window=HOUR)),
    "unique_key": (partial(TopN, rank_end=1, order_by="v"),),
}
NAMES = "the name of a column, or a list of names"


@pytest.mark.parametrize(
    ("value", "legal"),
    [
        (5, NAMES),
        (None, NAMES),
        ([5], NAMES),
        ({"k": 1}, NAMES),
        ({"k"}, NAMES),
        (b"k", NAMES),
        (["k", ""], NAMES),
        (["order.id"], NAMES),
        ("order.id", "the name of a column. Names have no dot and no backtick. Select a field of a struct as a column first"),
        ("", "the name of a column"),
        (["k", "k"], "each column once"),
        (["k", "K"], "each column once, and names that differ in more than case"),
    ],
    ids=repr,
)
def test_a_key_is_a_list_of_different_names(value: object, legal: str) -> None:
    for parameter, operators in WITH_KEY.items():
        for make in operators:
            with pytest.raises(OperatorError, match=f"^{re.escape(f'`{parameter}` is {value!r}; legal: {legal}')}"):
                make(**{parameter: value})


ORDER = "at least one column, such as 'clicks DESC'"
DIFFERENT_LISTS = "different lists of some of the columns of `by`, which are k"
INDEXES = "a tuple of indexes of inputs; `lookback` has 2, and the first has the index 0"
WINDOW_OPERATORS: Sequence[Make] = (
    windowed,
    partial(ProcessWindow, window=HOUR),
    *(partial(c, on="k", window=HOUR) for c in (WindowJoin, CoGroup)),
)


@pytest.mark.parametrize(
    ("makes", "parameter", "values", "legal"),
    [
        ((*WINDOW_OPERATORS, by_count, partial(ProcessCountWindow, size=2)), "evictor", (5, "x", CountEvictor), "CountEvictor(100), Time"),
        ((*WINDOW_OPERATORS, partial(TopK, k=1, order_by="v", window=HOUR)), "early", (5, False, EveryStep), "EveryStep(), EveryRows(100)"),
        (
            (partial(Deduplicate, by="k"), partial(Deduplicate, by="k", window=HOUR)),
            "early",
            ("every step",),
            "EveryStep(), EveryRows(100)",
        ),
        ((within,), "early", (EveryStep, False), "EveryStep or EveryInterval or None for how='inner'"),
        (
            (windowed, partial(Deduplicate, by="k"), partial(TopK, k=1, order_by="v", window=HOUR)),
            "time",
            (5, ["t"], None),
            "the name of a",
        ),
        ((within, partial(AsOfJoin, on="k"), *WINDOW_OPERATORS[2:]), "left_time", (5, ["t"], None, "a.b"), "the name of a column"),
        ((within, partial(AsOfJoin, on="k"), *WINDOW_OPERATORS[2:]), "right_time", (5, ""), "the name of a column"),
        ((within, partial(AsOfJoin, on="k"), WINDOW_OPERATORS[2]), "left_prefix", (5, None, "l."), "text without dots and backticks"),
        ((within, WINDOW_OPERATORS[2]), "residual", (5, True, " "), "a SQL expression as text, or None for none"),
        ((*WINDOW_OPERATORS[1::2], partial(ProcessCountWindow, size=2)), "rows", (5, ""), "a SQL expression as text, or None for none"),
        ((partial(CountWindowAggregate, aggregates=COUNT),), "ends_with", (5, ""), "a SQL expression as text, or None for none"),
        ((CountEvictor, EveryRows), "rows", ("3", True, 1.0, 0, 10**30), "a whole number of at least 1, and at most 10**18"),
        ((partial(TopK, order_by="v"),), "k", ("3", True, 10**30), "a whole number of at least 1, and at most 10**18"),
        ((partial(DeltaEvictor, threshold=1),), "delta", (5, "", None), "a SQL expression as text"),
        (
            (partial(DeltaEvictor, delta="row.v"),),
            "threshold",
            ("1", True, float("nan"), 2**63),
            "a float that is not NaN, or a whole number from",
        ),
        ((partial(Aggregate, by="k"),), "aggregates", ({"n": " "},), "SQL that is not empty, such as"),
        ((partial(windowed, by="k"),), "grouping_sets", (5, [5], [[5]], ["k"], [["k"], ["k"]], [[]] * 2, []), DIFFERENT_LISTS),
        ((partial(TopK, k=1), partial(TopN, rank_end=1)), "order_by", (5, [5], [("v", "DESC")], {"v": "DESC"}, None), ORDER),
        ((partial(TopN, rank_end=1, order_by="v", unique_key="k"),), "monotonic", ("no", 1), "True or False"),
        ((partial(TopN, order_by="v"),), "rank_end", ("a.b", ""), "a whole number of at least 1, and at most 10**18, or the column"),
        ((partial(TopN, order_by="v"),), "rank_end", (10**30,), "a whole number of at least 1, and at most 10**18, or the column"),
        ((partial(AsOfJoin, on="k"),), "change", ("K",), "a right column that is neither in `on` nor the `right_time`"),
        ((partial(TopN, rank_end=1, order_by="v"),), "with_rank", ("no", None), "True or False"),
        ((partial(TopN, rank_end=1, order_by="v"), partial(AsOfJoin, on="k")), "change", (5, ["c"], ""), "the name of a column, or None"),
        (
            (partial(TopN, rank_end="n", order_by="v", by="k"),),
            "change",
            ("k", "v", "V", "n", "N"),
            "a column that is neither in `by`, `unique_key` nor `order_by`, nor `rank_end`",
        ),
        ((partial(TopN, rank_end=1, order_by="v"),), "rises", (5, None, True), "text that says why rows move up only, or ''"),
        ((partial(ClosedRange, upto=5),), "after", ("a", True, 1.5), "whole epoch milliseconds, or None for no lower end"),
        ((partial(ClosedRange, None),), "upto", ("a", None, True), "whole epoch milliseconds"),
        ((within,), "lower_exclusive", ("no", None), "True or False"),
        ((within,), "time_buckets", ("yes",), "True or False"),
        ((within,), "result_time", (["later"], "earlier"), "for how='inner', the time of a row that every result has: 'later'"),
        ((partial(Consecutive, then=TopK(k=1, order_by="n")),), "of", (5, WindowedAggregate), "an operator, such as WindowedAggregate("),
        ((partial(Consecutive, of=windowed()),), "then", (5, TopK), "an operator, such as WindowedAggregate("),
        ((partial(Interval, upper=1),), "lower", (1.5, "1 s", True), "whole milliseconds; `Interval.between` reads text"),
        ((ByKey, Upsert, Append), "key", ("k", 5, (5,), None), "a tuple of names of columns, such as ('k',)"),
        ((NewRows,), "key", ("k", [5]), "a tuple of names of columns, such as ('k',)"),
        ((ByTimeRange,), "lookback", (5, None, (-1,)), "a number of ms of at least 0, or None, for each input, such as (1000,)"),
        ((partial(ByTimeRange, (0,)),), "watermark_delay", ("1 s", 1.5, True, None, -1), "a number of ms of at least 0"),
        ((partial(ByTimeRange, (0,)),), "lateness", ("1 s", 1.5, True, None, -1), "a number of ms of at least 0"),
        ((partial(ByTimeRange, (0, 0)),), "versions", ("1", 1, None, (2,), (-1,), (0.0,)), INDEXES),
        ((partial(ByTimeRange, (0, 0), versions=(0, 1)),), "by_arrival", ("1", 1, None, (2,), (-1,), (0.0,)), INDEXES),
        ((Tumbling,), "size", (10**15,), "a duration of less than 10,000 years"),
        ((partial(Tumbling, size=1),), "offset", (-(10**15),), "a duration of less than 10,000 years"),
        ((partial(Session, gap=1),), "longest", (10**15,), "a duration of less than 10,000 years"),
        ((partial(AsOfJoin, on="k"),), "max_age", (10**15,), "a duration of less than 10,000 years"),
        ((partial(Deduplicate, by="k"),), "ttl", (10**15,), "a duration of less than 10,000 years"),
        ((partial(windowed),), "allowed_lateness", (10**15,), "a duration of less than 10,000 years"),
        ((partial(IntervalJoin, on="k", lower=0),), "upper", (10**15,), "a duration of less than 10,000 years"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_parameter_of_a_wrong_type_is_refused(makes: Sequence[Make], parameter: str, values: Sequence[object], legal: str) -> None:
    for make in makes:
        for value in values:
            with pytest.raises(OperatorError, match=f"^{re.escape(f'`{parameter}` is {value!r}; legal: {legal}')}"):
                make(**{parameter: value})


@dataclass(frozen=True)
class KeepsAll:
    """An evictor of one's own."""

    def keep(self, rows: DataFrame, group: Sequence[str], time: str) -> DataFrame:
        """Every row."""
        return rows


@dataclass(frozen=True)
class Never:
    """A trigger of one's own."""

    def fires(self, now: TriggerContext, before: TriggerContext) -> bool:
        """Never."""
        return False


class Twice(CountEvictor):
    """A subclass of an evictor."""


class AtEachStep(EveryStep):
    """A subclass of a trigger."""


@pytest.mark.parametrize(
    "parameters", [{"evictor": KeepsAll()}, {"evictor": Twice(2)}, {"early": Never()}, {"early": AtEachStep()}], ids=str
)
def test_triggers_and_evictors_of_ones_own_are_legal(parameters: dict[str, Any]) -> None:
    for make in WINDOW_OPERATORS:
        make(**parameters)


@pytest.mark.parametrize("make", [partial(TopK, k=1), partial(TopN, rank_end=1)])
def test_an_order_by_a_field_of_a_struct_is_refused(make: Make) -> None:
    with pytest.raises(OperatorError, match=r"`order_by` is 'a.b'; legal: the name of a column. Names have no dot"):
        make(order_by="`a.b` DESC")


@pytest.mark.parametrize("columns", [{"by": "Rank"}, {"order_by": "rank DESC"}, {"unique_key": "rank"}, {"rank_end": "rank"}])
def test_a_column_rank_is_refused_beside_the_rank_of_the_result(columns: dict[str, Any]) -> None:
    make: Any = partial(TopN, **({"order_by": "v", "rank_end": 1} | columns))
    with pytest.raises(OperatorError, match="the result would have rank twice; rename one of them"):
        make()
    make(with_rank=False)


def test_a_former_name_beside_the_new_one_is_refused() -> None:
    make: Any = partial(TopN, order_by="v", rank_end=1, unique_key="k", monotonic=True)
    legal = "`improving` is False; legal: the new name `monotonic` alone; remove `improving`"
    with pytest.raises(OperatorError, match=legal):
        make(improving=False)


def test_a_former_name_is_no_attribute() -> None:
    top = TopN(order_by="v", rank_end=1, unique_key="k", monotonic=True)
    with pytest.raises(AttributeError, match="no attribute 'improving'"):
        getattr(top, "improving")  # noqa: B009
