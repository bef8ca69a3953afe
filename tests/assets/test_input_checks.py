"""A table whose operator cannot read the kind of one of its inputs is refused when the pipeline is made."""

import re
from dataclasses import dataclass, replace

import pytest

from assets.contract_checks import ContractError
from assets.contracts import DerivedAsset, Preparation
from assets.pipeline_checks import checked_tables
from operators import (
    Aggregate,
    Append,
    AsOfJoin,
    ByKey,
    ByTimeRange,
    CoGroup,
    Consecutive,
    CountWindowAggregate,
    Deduplicate,
    EveryRows,
    IntervalJoin,
    ProcessCountWindow,
    Select,
    Session,
    TimeEvictor,
    TopK,
    TopN,
    Tumbling,
    WindowedAggregate,
)
from tests.support.example_operators import RunningTotal
from tests.support.small_sources import join, source

WINDOWS = WindowedAggregate(by="k", window=Tumbling(size="3 minutes"), aggregates={"n": "count(*)"})
TOP = TopN(order_by="k", rank_end=1)


@dataclass(frozen=True)
class TwoTotals(RunningTotal):
    """An operator of two inputs that reads the rows of new batches."""

    inputs: tuple[str, ...] = ("first", "second")


@dataclass(frozen=True)
class OwnParameters(RunningTotal):
    """An operator whose parameters have names of Tidemark's, and other meanings."""

    on: object = None
    by: object = None
    unique_key: object = None
    rank_end: object = None
    change: object = None
    aggregates: object = None
    ends_with: object = None
    ttl: object = "EUR"
    ttl_by: object = "processing"
    order: object = "arrival"


@dataclass(frozen=True)
class OwnRanges(OwnParameters):
    """An operator of closed ranges whose parameters have names of Tidemark's, and other meanings."""

    time: object = "10 minutes"
    left_time: object = "summer"
    right_time: object = "winter"
    of: object = "price"
    early: object = True
    purging: object = True
    versions: tuple[int, ...] = ()

    @property
    def reads(self) -> ByTimeRange:
        return ByTimeRange(lookback=(0,) * len(self.inputs), versions=self.versions)

    @property
    def emits(self) -> Append:
        return Append()


@dataclass(frozen=True)
class Expiring(RunningTotal):
    """An operator whose keys expire, as it declares by the contract only."""

    @property
    def reads(self) -> ByKey:
        return ByKey(("k",), ttl=1000, ttl_by="processing")


def _tables(operator: object, *inputs: str) -> dict[str, DerivedAsset]:
    made = {
        "total": DerivedAsset(name="total", inputs=("l",), operator=RunningTotal()),
        "windows": DerivedAsset(name="windows", inputs=("l",), operator=WINDOWS),
        "added": DerivedAsset(name="added", inputs=("l",), operator=replace(WINDOWS, purging=EveryRows(2))),
        "pairs": join(),
        "firsts": DerivedAsset(name="firsts", inputs=("l",), operator=Deduplicate(by="k")),
        "counts": DerivedAsset(name="counts", inputs=("l",), operator=Aggregate(by="k", aggregates={"n": "count(*)"})),
        "versions": DerivedAsset(name="versions", inputs=("l", "r"), operator=AsOfJoin(on="k")),
        "selected": DerivedAsset(name="selected", inputs=("l",), operator=Select()),
        "own": DerivedAsset(name="own", inputs=("l",), operator=OwnRanges()),
        "reader": DerivedAsset(name="reader", inputs=inputs, operator=operator),  # pyright: ignore[reportArgumentType]
    }
    return checked_tables({name: source(name) for name in ("l", "r")}, made)


REFUSED = [
    pytest.param(
        TopK(k=1, order_by="v"),
        ("l",),
        "TopK reads the results of a windowed operator, and 'l' is a source; give TopK a window of its own",
        id="a ranking of results over a source",
    ),
    pytest.param(
        TopK(k=1, order_by="k"), ("pairs",), "'pairs' has no windows; give TopK a window of its own", id="a ranking of joined rows"
    ),
    pytest.param(TopK(k=1, order_by="k"), ("selected",), "'selected' has no windows; give TopK a window", id="a ranking of selected rows"),
    pytest.param(TopK(k=1, order_by="k"), ("firsts",), "'firsts' has no windows; give TopK a window", id="a ranking of upserted rows"),
    pytest.param(
        TopN(order_by="k", rank_end=1, ttl="1 day"),
        ("firsts",),
        "for 'reader', sources, and tables of final results: TopN has a `ttl`, and rows of the upserted table 'firsts' are replaced and "
        "deleted, so they do not show when a key had its last row; give the `ttl` to the operator that reads the source",
        id="a Top-N of an upserted table with a time to live",
    ),
    pytest.param(
        Aggregate(by="k", aggregates={"n": "count(*)"}, ttl="1 day", ttl_by="processing"),
        ("pairs",),
        "`ttl_by` is 'processing'; legal: event, for 'reader': rows of the table 'pairs' belong to no batch, so they have no processing "
        "time; or give the `ttl` to the operator that reads the source",
        id="an aggregate of joined rows with a time to live in processing time",
    ),
    pytest.param(TopK(k=1, order_by="k"), ("versions",), "'versions' has no windows", id="a ranking of rows with versions"),
    pytest.param(
        TopK(k=1, order_by="n"),
        ("added",),
        "'added' adds several results of a window, at different times; give TopK a window of its own",
        id="a ranking of windows that purge",
    ),
    pytest.param(
        AsOfJoin(on="k"),
        ("l", "total"),
        "'total' keeps only the current row of each key, and AsOfJoin looks up earlier ones: read the source of the versions",
        id="versions of an upserted table",
    ),
    pytest.param(
        AsOfJoin(on="k", as_of="arrival"),
        ("l", "windows"),
        "sources; AsOfJoin compares the batches in which rows arrived, and the rows of 'windows' belong to no batch: join by event time",
        id="a table by arrival",
    ),
    pytest.param(TwoTotals(), ("l", "total"), "TwoTotals reads its changes; join the inputs first", id="changes and another input"),
    pytest.param(
        CoGroup(on="k", window=Session(gap="3 minutes")),
        ("l", "windows"),
        "only sources, or only tables; sessions decide for each batch which rows are late, and rows of windows belong to no batch",
        id="sessions of a source and a table",
    ),
    pytest.param(
        WINDOWS,
        ("counts",),
        "for 'reader', tables whose rows have an 'event_time', by which WindowedAggregate reads them; "
        "let 'counts' have it, for example as an aggregate: event_time: max(event_time)",
        id="windows of rows without a time",
    ),
    pytest.param(
        CountWindowAggregate(by="k", size=2, aggregates={"n": "count(*)"}),
        ("windows",),
        "CountWindowAggregate counts rows in the order of arrival, and these have no 'seq' and 'arrival'; read a source",
        id="count windows of rows without an order of arrival",
    ),
    pytest.param(
        ProcessCountWindow(by="k", size=2, rows="elements"),
        ("windows",),
        "ProcessCountWindow counts rows in the order of arrival, and these have no 'seq' and 'arrival'; read a source",
        id="functions of count windows of rows without an order of arrival",
    ),
    pytest.param(
        ProcessCountWindow(by="k", size=2, evictor=TimeEvictor("1 minute")),
        ("counts",),
        "an evictor of another kind for rows without an 'event_time'",
        id="an evictor by time of rows without a time",
    ),
    pytest.param(
        CountWindowAggregate(by="k", ends_with="w > 1", aggregates={"n": "count(*)"}),
        ("l",),
        "`ends_with` is 'w > 1'; legal: 'w' is no column of 'l'; the columns of 'l' are k, v, ts",
        id="a condition on a column that rows do not have",
    ),
    pytest.param(
        Deduplicate(by="k", order="arrival"),
        ("windows",),
        "`order` is 'arrival'; legal: for 'reader', event_time: rows of the table 'windows' have no order of arrival (seq and arrival)",
        id="the first window to arrive",
    ),
    pytest.param(
        TopN(order_by="n", rank_end=1, with_rank=False),
        ("windows",),
        "a TopN whose rows have a key: seq, arrival are columns of rows of sources only; give it a `unique_key`, or the rank",
        id="a ranking without a key",
    ),
    pytest.param(
        TopN(order_by="k", rank_end=1, change="n"), ("windows",), "a name that is no column of 'windows'", id="a kind that is a column"
    ),
]


@pytest.mark.parametrize(("operator", "inputs", "message"), REFUSED)
def test_a_table_that_cannot_read_its_inputs_is_refused(operator: object, inputs: tuple[str, ...], message: str) -> None:
    with pytest.raises(ContractError, match=re.escape(message)):
        _tables(operator, *inputs)


@pytest.mark.parametrize(
    ("operator", "inputs"),
    [
        (TopN(order_by="k", rank_end=1, change="change_kind"), ("total",)),
        (TOP, ("total",)),
        (TOP, ("windows",)),
        (TOP, ("pairs",)),
        (Deduplicate(by="k"), ("windows",)),
        (Deduplicate(by="k", order="arrival"), ("firsts",)),
        (Aggregate(by="k", aggregates={"n": "sum(n)"}), ("counts",)),
        (Aggregate(by="k", aggregates={"n": "count(*)"}, ttl="1 day", after_ttl="retract"), ("pairs",)),
        (WINDOWS, ("firsts",)),
        (IntervalJoin(on="k", lower=0, upper="1 minute"), ("l", "firsts")),
        (WINDOWS, ("l",)),
        (TopK(k=1, order_by="n"), ("windows",)),
        (CoGroup(on="k", window=Session(gap="3 minutes")), ("windows", "windows")),
        (CoGroup(on="k", window=Session(gap="3 minutes")), ("l", "r")),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, tuple) else " and ".join(value),
)
def test_a_table_that_can_read_its_inputs_is_accepted(operator: object, inputs: tuple[str, ...]) -> None:
    assert "reader" in _tables(operator, *inputs)


def test_a_description_of_a_column_that_the_table_lacks_is_refused() -> None:
    described = DerivedAsset(name="windows", inputs=("l",), operator=WINDOWS, columns={"n": "how many", "m": "what"})
    with pytest.raises(ContractError, match="`columns` is 'm'; legal: columns of 'windows': k, "):
        checked_tables({"l": source("l")}, {"windows": described})


@pytest.mark.parametrize("on", [None, ("v", "w"), {"v": "w"}, "upper(k)"], ids=str)
def test_parameters_of_a_users_operator_are_not_read_as_names_of_columns(on: object) -> None:
    own = OwnParameters(on=on, by=on, rank_end="first", change="1 hour", aggregates=["n"], ends_with="the hour")
    assert "reader" in _tables(own, "l")
    assert "reader" in _tables(OwnParameters(on=on), "l")
    assert "reader" in _tables(replace(own, inputs=("first", "second")), "l", "r")


@pytest.mark.parametrize(
    ("operator", "inputs"),
    [
        (OwnRanges(), ("l",)),
        (OwnRanges(inputs=("first", "second")), ("l", "r")),
        (Consecutive(of=OwnRanges(), then=TopK(k=1, order_by="total")), ("l",)),
        (TopK(k=1, order_by="total"), ("own",)),
        (OwnParameters(), ("counts",)),
        (OwnParameters(), ("pairs",)),
        (OwnRanges(), ("windows",)),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, tuple) else " and ".join(value),
)
def test_parameters_of_a_users_operator_have_no_effect_on_what_it_can_read(operator: object, inputs: tuple[str, ...]) -> None:
    assert "reader" in _tables(operator, *inputs)


def test_the_versions_of_a_users_operator_can_be_filtered() -> None:
    operator, prepare = OwnRanges(inputs=("first", "second"), change=1, versions=(1,)), {"r": Preparation(where="v > 1")}
    assert DerivedAsset(name="t", inputs=("l", "r"), operator=operator, prepare=prepare).prepares("r")


@pytest.mark.parametrize(
    ("name", "why"), [("counts", "Expiring has a `ttl`, and rows of the upserted"), ("pairs", "`ttl_by` is 'processing'")]
)
def test_a_ttl_in_what_an_operator_reads_is_checked(name: str, why: str) -> None:
    with pytest.raises(ContractError, match=re.escape(why)):
        _tables(Expiring(), name)
