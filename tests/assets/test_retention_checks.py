"""A table that reads rows of any age of a source with a retention is refused."""

from dataclasses import dataclass, replace

import pytest

from assets.contract_checks import ContractError
from assets.contracts import DerivedAsset, Shape
from assets.pipeline_checks import checked_tables
from operators import Aggregate, AsOfJoin, Deduplicate, IntervalJoin, TopN
from tests.support.small_sources import join, source


def _table(name: str, operator: object, *inputs: str) -> DerivedAsset:
    return DerivedAsset(name=name, inputs=inputs, operator=operator)  # pyright: ignore[reportArgumentType]


TOTALS = _table("totals", Aggregate(by="k", aggregates={"n": "count(*)", "event_time": "max(event_time)"}), "l")
FREQUENT = replace(TOTALS, name="frequent", shape=Shape(where="n > 1"))


@dataclass(frozen=True)
class Refused:
    id: str
    tables: tuple[DerivedAsset, ...]
    why: str


REFUSED = [
    Refused(
        "versions of any age", (_table("rates", AsOfJoin(on="k"), "l", "r"),), "table 'rates' .*versions of any age; give it a `max_age`"
    ),
    Refused("all late rows", (join(late_rows="join", how="inner"),), "table 'pairs' .*joins late rows of any age"),
    Refused(
        "all rows of a key",
        (_table("best", TopN(rank_end=2, by="k", order_by=["v DESC"], unique_key="k", strategy="retract"), "l"),),
        "all rows of a key",
    ),
    Refused("results that are left out", (FREQUENT,), "table 'frequent' .*its `shape` leaves out results of Aggregate"),
    Refused("keys with a TTL", (_table("first", Deduplicate(by="k", ttl="1 day"), "l"),), "all rows of a key again, and a `ttl` does not"),
    Refused(
        "corrections of any age",
        (TOTALS, _table("mixed", IntervalJoin(on="k", lower=0, upper="1 hour"), "l", "totals")),
        "table 'mixed' .*'totals', which it reads too, may change at any age",
    ),
]


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case.id)
def test_a_table_that_reads_rows_of_any_age_is_refused(case: Refused) -> None:
    sources = {name: source(name, retention="30 days") for name in ("l", "r")}
    tables = {table.name: table for table in case.tables}
    with pytest.raises(ContractError, match=f"`retention` is '30 days'; legal: None for source .*{case.why}"):
        checked_tables(sources, tables)
    checked_tables({name: source(name) for name in ("l", "r")}, tables)


def test_other_tables_are_accepted() -> None:
    sources = {name: source(name, retention="30 days") for name in ("l", "r")}
    tables = [join(), TOTALS, _table("rates", AsOfJoin(on="k", max_age="1 day"), "l", "r"), _table("first", Deduplicate(by="k"), "l")]
    tables.append(replace(TOTALS, name="means", shape=Shape(select="*, n / 2 AS half")))
    assert {*checked_tables(sources, {table.name: table for table in tables})} == {"pairs", "totals", "rates", "first", "means"}
