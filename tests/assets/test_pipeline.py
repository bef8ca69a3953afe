"""A pipeline as a value: it is checked when it is made, and knows the order of its tables."""

import re
from dataclasses import replace

import pytest

from assets.completeness import Completeness
from assets.contract_checks import ContractError
from assets.contracts import DerivedAsset, SourceContract
from assets.pipeline import Pipeline
from operators import Aggregate, IntervalJoin, Tumbling, WindowedAggregate
from tests.support.small_sources import HOUR, ROW

RIDES, FARES = (SourceContract(name=name, schema=ROW, event_time="ts", future_skew="2 hours") for name in ("rides", "fares"))
WIDE = DerivedAsset(name="wide", inputs=("rides", "fares"), operator=IntervalJoin(on="k", lower=0, upper="3 hours", how="full"))
COUNTS = DerivedAsset(
    name="counts", inputs=("wide",), operator=WindowedAggregate(by="k", window=Tumbling(size="1 hour"), aggregates={"n": "count(*)"})
)
TOTALS = DerivedAsset(name="totals", inputs=("rides",), operator=Aggregate(by="k", aggregates={"n": "count(*)"}))


@pytest.mark.parametrize("name", ["total sum", "a,b", "a=b", "sum(v)"])
def test_a_name_of_a_column_that_delta_refuses_is_refused(name: str):
    table = replace(TOTALS, operator=Aggregate(by="k", aggregates={name: "count(*)"}))
    expected = f"table 'totals': `operator` is {name!r}; legal: names of columns without white space and , ; {{ }} ( ) =, which Delta"
    with pytest.raises(ContractError, match=f"^{re.escape(expected)}"):
        Pipeline(sources=[RIDES], tables=[table])


@pytest.mark.parametrize("name", ["a/b", "a%", "a#"])
def test_a_name_of_a_column_can_have_other_characters(name: str):
    table = replace(TOTALS, operator=Aggregate(by="k", aggregates={name: "count(*)"}))
    assert Pipeline(sources=[RIDES], tables=[table]).tables_by_name


def test_tables_are_ordered_after_their_inputs():
    pipeline = Pipeline(sources=[RIDES, FARES], tables=[COUNTS, WIDE, TOTALS])
    assert [*pipeline.tables_by_name] == ["wide", "counts", "totals"]
    assert [*pipeline.sources_by_name] == ["rides", "fares"]


def test_results_are_ahead_of_the_clock_by_the_skew_and_the_lookbacks_of_consecutive_operators():
    """A ride of two hours from now is unmatched three hours later, in a window that ends within the next hour."""
    assert Pipeline(sources=[RIDES, FARES], tables=[COUNTS, WIDE]).ahead_ms == 6 * HOUR
    assert Pipeline(sources=[RIDES]).ahead_ms == 2 * HOUR


def test_one_limit_of_freshness_holds_for_all_tables_and_a_mapping_for_those_that_it_names():
    tables = [WIDE, COUNTS]
    assert Pipeline(sources=[RIDES, FARES], tables=tables).freshness_of("wide") is None
    assert Pipeline(sources=[RIDES, FARES], tables=tables, freshness="1 hour").freshness_of("wide") == 3_600_000
    named = Pipeline(sources=[RIDES, FARES], tables=tables, freshness={"wide": "90 s"})
    assert (named.freshness_of("wide"), named.freshness_of("counts")) == (90_000, None)


def test_one_completeness_holds_for_all_tables_and_a_mapping_for_those_that_it_names():
    tables = [WIDE, COUNTS]
    assert Pipeline(sources=[RIDES, FARES], tables=tables, completeness=0.9).completeness_of("wide") == Completeness(warn_below=0.9)
    named = Pipeline(sources=[RIDES, FARES], tables=tables, completeness={"wide": 0.99})
    assert named.completeness_of("wide") == Completeness(warn_below=0.99)
    assert named.completeness_of("counts") == Completeness()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sources": []}, r"`sources` is \[\]; legal: at least one source"),
        ({"sources": [RIDES, RIDES]}, r"`sources` is 'rides'; legal: names that differ"),
        ({"sources": [WIDE]}, r"`sources` is .*; legal: a list of SourceContract values"),
        ({"sources": RIDES}, r"`sources` is .*; legal: a list of SourceContract values"),
        ({"tables": None}, r"`tables` is None; legal: a list of DerivedAsset values"),
        ({"suites": ["rides"]}, r"`suites` is \['rides'\]; legal: \{name of a source or table: its suite\}"),
        ({"tables": [WIDE, WIDE]}, r"`tables` is 'wide'; legal: names that differ"),
        ({"tables": [COUNTS]}, r"`inputs` is 'wide'; legal: names of sources and tables: rides, fares, counts; 'counts' reads it"),
        ({"completeness": {"wides": 0.5}}, r"`completeness` is 'wides'; legal: names of tables: wide; did you mean 'wide'\?"),
        (
            {"suites": {"rids": None}},
            r"`suites` is 'rids'; legal: names of sources and tables: rides, fares, wide; did you mean 'rides'\?$",
        ),
        ({"completeness": 1.5}, r"`completeness` is 1.5; legal: a share from 0 to 1"),
        ({"first_day": "soon"}, r"`first_day` is 'soon'; legal: a day, YYYY-MM-DD"),
        ({"last_day": "soon"}, r"`last_day` is 'soon'; legal: a day, YYYY-MM-DD"),
        (
            {"first_day": "2026-03-02", "last_day": "2026-03-01"},
            r"`last_day` is '2026-03-01'; legal: `first_day`, '2026-03-02', or a later day",
        ),
        ({"first_day": 20200101}, r"`first_day` is 20200101; legal: a day, YYYY-MM-DD"),
        ({"first_day": "20200101"}, r"`first_day` is '20200101'; legal: a day, YYYY-MM-DD"),
        ({"first_day": "0001-01-01"}, r"`first_day` is '0001-01-01'; legal: a day, YYYY-MM-DD, from 1900-01-01 to 2100-01-01"),
        ({"freshness": {"wides": "1 hour"}}, r"`freshness` is 'wides'; legal: names of tables: wide; did you mean 'wide'\?"),
        ({"freshness": "0 ms"}, r"`freshness` is '0 ms'; legal: a duration of more than zero"),
        ({"freshness": {"wide": "9999999 days"}}, r"`freshness` is '9999999 days'; legal: a duration of at most 3652059 days"),
        ({"completeness": "0.5"}, r"`completeness` is '0.5'; legal: a share from 0 to 1"),
    ],
)
def test_an_illegal_pipeline_is_refused_with_the_parameter_and_what_is_legal(changes, message):
    with pytest.raises(ContractError, match=message):
        Pipeline(**{"sources": [RIDES, FARES], "tables": [WIDE], **changes})


def test_a_suite_of_an_unknown_table_is_refused_when_the_suites_are_made():
    pipeline = Pipeline(sources=[RIDES], suites=lambda: {"ridez": None})
    with pytest.raises(ContractError, match=r"`suites` is 'ridez'; legal: names of sources and tables: rides; did you mean 'rides'\?$"):
        pipeline.suites_by_name()
