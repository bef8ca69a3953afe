"""A table whose operator cannot read the kind of one of its inputs is refused when the pipeline is made."""

import re
from dataclasses import dataclass

import pytest

from assets.contract_checks import ContractError
from assets.contracts import DerivedAsset
from assets.pipeline_checks import checked_tables
from operators import Aggregate, CoGroup, Deduplicate, IntervalJoin, Session, TopK, TopN, Tumbling, WindowedAggregate
from tests.support.example_operators import RunningTotal
from tests.support.small_sources import join, source

WINDOWS = WindowedAggregate(by="k", window=Tumbling(size="3 minutes"), aggregates={"n": "count(*)"})
TOP = TopN(order_by="k", rank_end=1)


@dataclass(frozen=True)
class TwoTotals(RunningTotal):
    """An operator of two inputs that reads the rows of new batches."""

    inputs: tuple[str, ...] = ("first", "second")


def _tables(operator: object, *inputs: str) -> dict[str, DerivedAsset]:
    made = {
        "total": DerivedAsset(name="total", inputs=("l",), operator=RunningTotal()),
        "windows": DerivedAsset(name="windows", inputs=("l",), operator=WINDOWS),
        "pairs": join(),
        "reader": DerivedAsset(name="reader", inputs=inputs, operator=operator),  # pyright: ignore[reportArgumentType]
    }
    return checked_tables({name: source(name) for name in ("l", "r")}, made)


REFUSED = [
    pytest.param(
        TOP,
        ("total",),
        "`inputs` is 'total'; legal: for 'reader', sources; the rows of 'total' are updated and deleted, which TopN does not read; "
        "TopN with `change`, the name of a column for the change kind, reads them",
        id="Top-N of changes without their kind",
    ),
    pytest.param(
        Deduplicate(by="k"), ("total",), "which Deduplicate does not read; a `TopN` with `change` reads them", id="deduplicate changes"
    ),
    pytest.param(
        TOP, ("windows",), "TopN reads the rows of new batches, and the rows of 'windows' belong to no batch", id="Top-N of windows"
    ),
    pytest.param(Aggregate(by="k", aggregates={"n": "sum(n)"}), ("windows",), "belong to no batch: read 'l'", id="an aggregate of windows"),
    pytest.param(Deduplicate(by="k"), ("windows",), "belong to no batch: read 'l'", id="deduplicate windows"),
    pytest.param(WINDOWS, ("total",), "no time range of them can be read: read 'l'", id="windows of changes"),
    pytest.param(
        IntervalJoin(on="k", lower=0, upper="1 minute"), ("l", "total"), "the rows of 'total' replace each other", id="a join with changes"
    ),
    pytest.param(
        TopK(k=1, order_by="v"),
        ("l",),
        "TopK reads the results of a windowed operator, and 'l' is a source; give TopK a window of its own",
        id="a ranking of results over a source",
    ),
    pytest.param(
        TopK(k=1, order_by="k"), ("pairs",), "'pairs' has no windows; give TopK a window of its own", id="a ranking of joined rows"
    ),
    pytest.param(
        TopN(order_by="k", rank_end=1, change="change_kind", ttl="1 day"),
        ("total",),
        "sources: TopN has a `ttl`, and the rows of the upserted table 'total' have no event time",
        id="Top-N of changes with a time to live",
    ),
    pytest.param(TwoTotals(), ("l", "total"), "TwoTotals reads its changes; join the inputs first", id="changes and another input"),
    pytest.param(
        CoGroup(on="k", window=Session(gap="3 minutes")),
        ("l", "windows"),
        "only sources, or only tables; sessions decide for each batch which rows are late, and rows of windows belong to no batch",
        id="sessions of a source and a table",
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
        (WINDOWS, ("l",)),
        (TopK(k=1, order_by="n"), ("windows",)),
        (CoGroup(on="k", window=Session(gap="3 minutes")), ("windows", "windows")),
        (CoGroup(on="k", window=Session(gap="3 minutes")), ("l", "r")),
    ],
    ids=["Top-N of changes", "windows of a source", "a ranking of results", "sessions of tables", "sessions of sources"],
)
def test_a_table_that_can_read_its_inputs_is_accepted(operator: object, inputs: tuple[str, ...]) -> None:
    assert "reader" in _tables(operator, *inputs)


def test_a_description_of_a_column_that_the_table_lacks_is_refused() -> None:
    described = DerivedAsset(name="windows", inputs=("l",), operator=WINDOWS, columns={"n": "how many", "m": "what"})
    with pytest.raises(ContractError, match="`columns` is 'm'; legal: columns of 'windows': k, "):
        checked_tables({"l": source("l")}, {"windows": described})
