"""The suites of the shop, the names of checks, and suites that are refused before a check runs."""

from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import chain
from types import SimpleNamespace
from typing import Any, cast

import dagster as dg
import pytest
from great_expectations import ExpectationSuite
from great_expectations import expectations as gxe
from great_expectations.expectations.expectation import Expectation
from pyspark.sql.types import StructType

from assets.contract_checks import ContractError
from assets.contracts import DerivedAsset, SourceContract
from assets.pipeline import Pipeline
from expectations import shop as suites
from expectations import suite_and_table_checks, suite_checks, table_suites
from expectations.checks import Findings
from expectations.completeness import ExpectRowsToBeJoinedOnEachDay
from expectations.finding import Finding, check_name
from expectations.new_rows import CHECKED, select_row_checks
from operators import Aggregate, IntervalJoin
from platform_defs.engine.inputs.schemas import log_schema
from platform_defs.settings import Settings
from platform_defs.shop import shop
from platform_defs.simulator import trade

OLIST_STATUSES = {"delivered", "shipped", "canceled", "unavailable", "invoiced", "processing", "created", "approved"}
OLIST_METHODS = {"credit_card", "boleto", "voucher", "debit_card", "not_defined"}
LOGS = [suites.orders(), suites.payments(), suites.order_items(), suites.clicks(), suites.order_updates()]
WIDE = [suites.payment_order_wide(), suites.order_wide(), suites.payment_wide()]
WINDOWS = [suites.item_sales(), suites.item_clicks(), suites.item_conversion()]
LEADERBOARDS = [suites.seller_revenue(), suites.order_status_board()]
HOT = [suites.hot_items_of("hot_items", 10), suites.hot_items_of("category_hot_items", 10, "category")]
SUITES = [*LOGS, *WIDE, *WINDOWS, *HOT, *LEADERBOARDS]
WARNINGS = {"customer_id_not_null", "amount_not_null", "status_known", "method_known", "payment_not_above_order", "category_not_null"}


@pytest.mark.parametrize("suite", SUITES, ids=lambda s: s.name)
def test_each_expectation_has_a_unique_name_and_a_reason(suite):
    names = [check_name(e) for e in suite.expectations]
    assert len(set(names)) == len(names)
    assert all(e.meta and e.description for e in suite.expectations)


@pytest.mark.parametrize("suite", SUITES, ids=lambda s: s.name)
def test_expectations_that_depend_on_the_input_are_warnings(suite):
    for expectation in suite.expectations:
        assert (expectation.severity == suites.WARNING) == (check_name(expectation) in WARNINGS), check_name(expectation)


def test_the_known_values_are_those_of_the_simulator_and_of_olist():
    assert set(suites.STATUSES) == OLIST_STATUSES | set(trade.STATUSES)
    assert set(suites.METHODS) == OLIST_METHODS | set(trade.METHODS)


def test_each_expectation_is_an_asset_check():
    definitions = [suite.checks() for suite in table_suites(shop(Settings()))]
    keys = set(chain.from_iterable(definition.check_keys for definition in definitions))
    logs, tables = [f"events/{suite.name}" for suite in LOGS], [suite.name for suite in SUITES[len(LOGS) :]]
    assert {k.asset_key.to_user_string() for k in keys} == {*logs, *tables}
    assert len(keys) == sum(len(suite.expectations) for suite in SUITES)


def test_a_source_and_a_table_that_is_named_after_its_log_can_both_have_a_suite():
    log = DerivedAsset(name="events__fares", inputs=("fares",), operator=Aggregate(by="zone", aggregates={"total": "sum(fee)"}))
    suite = ExpectationSuite(name="zones", expectations=[gxe.ExpectColumnValuesToNotBeNull(column="zone")])
    pipeline = Pipeline(sources=[FARES], tables=[log], suites={"fares": suite, log.name: suite})
    assert {definition.node_def.name for definition in suite_and_table_checks(pipeline)} == {
        "_fares_suite",
        "_events__fares_suite",
        "_events__fares_changelog",
    }


def test_an_expectation_without_a_name_is_named_by_type_and_columns():
    unnamed = [e.copy(update={"meta": None}) for e in suites.orders().expectations]
    assert {"expect_column_values_to_not_be_null_order_id", "expect_compound_columns_to_be_unique_seq_arrival"} <= {
        check_name(e) for e in unnamed
    }
    without_a_name = gxe.ExpectColumnValuesToNotBeNull(column="zone", meta={"check": None})
    assert check_name(without_a_name) == "expect_column_values_to_not_be_null_zone"


@pytest.mark.parametrize("columns", [["order-id"], ["a$b", "straße"], ["paid.at"]])
def test_the_default_name_of_a_check_is_legal_in_dagster(columns: list[str]) -> None:
    expectation = gxe.ExpectCompoundColumnsToBeUnique(column_list=["seq", *columns])
    suite = ExpectationSuite(name="fares", expectations=[expectation])
    assert len(list(suite_checks(dg.AssetKey("fares"), "fares", suite).check_keys)) == 1


FARES = SourceContract(name="fares", schema="zone STRING, fee INT, paid STRUCT<at: TIMESTAMP>", event_time="paid.at")
TOTALS = DerivedAsset(name="totals", inputs=("fares",), operator=Aggregate(by="zone", aggregates={"total": "sum(fee)"}))


def _tables_with_suites(name: str, expectation: Expectation, source: SourceContract = FARES) -> list[str]:
    suite = ExpectationSuite(name=name, expectations=[expectation])
    return [found.table for found in table_suites(Pipeline(sources=[source], tables=[TOTALS], suites={name: suite}))]


@pytest.mark.parametrize(
    ("name", "expectation", "message"),
    [
        (
            "fares",
            gxe.ExpectColumnValuesToNotBeNull(column="feee", meta={"check": "fee_is_known"}),
            r"^check 'fee_is_known': `column` is 'feee'; legal: the columns of source 'fares' are zone, fee, paid; did you mean 'fee'\?$",
        ),
        (
            "totals",
            gxe.ExpectColumnValuesToNotBeNull(column="fee"),
            r"^check 'expect_.*_fee': `column` is 'fee'; legal: the columns of table 'totals' are zone, total, seq, arrival$",
        ),
        ("fares", gxe.ExpectColumnPairValuesToBeEqual(column_A="fee", column_B="total"), r"`column` is 'total'; legal: the columns of"),
        ("fares", gxe.ExpectCompoundColumnsToBeUnique(column_list=["fee", "zones"]), r"`column` is 'zones'; .*; did you mean 'zone'\?$"),
    ],
)
def test_a_column_that_the_source_or_table_does_not_have_is_refused(name: str, expectation: Expectation, message: str) -> None:
    with pytest.raises(ContractError, match=message):
        _tables_with_suites(name, expectation)


@pytest.mark.parametrize(
    "expectation",
    [
        gxe.ExpectColumnValuesToNotBeNull(column="FEE"),
        gxe.ExpectColumnValuesToNotBeNull(column="paid.at"),
        gxe.ExpectColumnValuesToNotBeNull(column="event_time_raw"),
        gxe.ExpectColumnToExist(column="tip"),
        gxe.ExpectTableRowCountToBeBetween(min_value=1),
    ],
)
def test_columns_that_may_exist_are_accepted(expectation: Expectation) -> None:
    assert _tables_with_suites("fares", expectation) == ["events/fares"]


def test_two_expectations_with_the_same_name_are_refused() -> None:
    limits = [gxe.ExpectColumnValuesToBeBetween(column="fee", max_value=most) for most in (500, 10_000)]
    name = "expect_column_values_to_be_between_fee"
    message = rf"^suite 'fares': the check '{name}' is that of two expectations; legal: a name for each\. .* `meta: {{check: NAME}}`$"
    suite = ExpectationSuite(name="fares", expectations=limits)
    with pytest.raises(ContractError, match=message):
        table_suites(Pipeline(sources=[FARES], tables=[TOTALS], suites={"fares": suite}))
    with pytest.raises(ContractError, match=message):
        suite_checks(dg.AssetKey("fares"), "fares", suite)


@pytest.mark.parametrize(
    ("name", "legal"),
    [
        ("a b", "letters a to z or A to Z, digits and '_'$"),
        ("", "letters a to z"),
        ("straße", "letters a to z"),
        ("conservation_law", "a name other than conservation_law, .*, which Tidemark reserves for its own checks"),
        ("no_more_than_n", "a name other than conservation_law"),
        ("fresh", "a name other than conservation_law, .*fresh, which"),
    ],
)
def test_a_name_of_a_check_that_dagster_refuses_is_an_error_that_names_the_suite(name: str, legal: str) -> None:
    suite = ExpectationSuite(name="sums", expectations=[gxe.ExpectColumnValuesToNotBeNull(column="zone", meta={"check": name})])
    with pytest.raises(ContractError, match=rf"^suite 'sums': the name of the check is '{name}'; legal: {legal}"):
        table_suites(Pipeline(sources=[FARES], tables=[TOTALS], suites={"totals": suite}, freshness="1 hour"))


@pytest.mark.parametrize("name", ["conservation_law", "no_more_than_n", "fresh"])
def test_a_check_of_a_log_may_have_a_name_that_is_reserved_for_tables(name: str) -> None:
    suite = ExpectationSuite(name="fares", expectations=[gxe.ExpectColumnValuesToNotBeNull(column="zone", meta={"check": name})])
    pipeline = Pipeline(sources=[FARES], tables=[TOTALS], suites={"fares": suite}, freshness="1 hour")
    assert [found.table for found in table_suites(pipeline)] == ["events/fares"]


@pytest.mark.parametrize("suite", [None, [gxe.ExpectColumnValuesToNotBeNull(column="zone")]])
def test_a_suite_of_another_kind_is_refused(suite: Any) -> None:
    with pytest.raises(ContractError, match=r"^`suites` is .*; legal: an ExpectationSuite for 'totals'$"):
        table_suites(Pipeline(sources=[FARES], tables=[TOTALS], suites={"totals": suite}))


@pytest.mark.parametrize(
    ("expectation", "value"),
    [
        (gxe.ExpectColumnValuesToBeBetween(column="t", min_value=datetime(2020, 1, 1, tzinfo=UTC)), "2020-01-01 00:00:00+00:00"),
        (gxe.ExpectColumnValuesToBeInSet(column="t", value_set=[date(2020, 1, 1)]), ["2020-01-01"]),
        (gxe.ExpectColumnValuesToBeInSet(column="v", value_set=[Decimal("1.5")]), ["1.5"]),
    ],
    ids=["datetime", "date", "decimal"],
)
def test_the_metadata_of_a_check_has_dates_times_and_decimals(
    expectation: Expectation, value: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, name = SimpleNamespace(id="log", head=3, time_of=lambda seq: seq), check_name(expectation)
    found = Findings({name: Finding(passed=True, evaluated=0)}, StructType(), cast(Any, log), {name: 0})
    monkeypatch.setattr("expectations.checks.log_findings", lambda *_, **__: found)
    checks = suite_checks(dg.AssetKey("l"), "events/l", ExpectationSuite(name="l", expectations=[expectation]), source="l")
    job = dg.define_asset_job("checks", selection=dg.AssetSelection.all_asset_checks())
    defs = dg.Definitions(assets=[dg.AssetSpec("l")], asset_checks=[checks], jobs=[job], resources={"engine": None})
    [evaluation] = defs.resolve_job_def("checks").execute_in_process().get_asset_check_evaluations()
    shown, recorded = (cast(Any, evaluation.metadata[key].value) for key in ("expectation", CHECKED))
    assert value in shown.values()
    assert recorded["expectation"] == shown


def test_a_column_that_files_may_add_is_accepted() -> None:
    source = replace(FARES, new_columns="add")
    assert _tables_with_suites("fares", gxe.ExpectColumnValuesToNotBeNull(column="tip"), source) == ["events/fares"]


PAID = DerivedAsset(name="paid", inputs=("fares", "fees"), operator=IntervalJoin(on="zone", lower=0, upper="1 hour", how="left"))


@pytest.mark.parametrize(
    ("table", "side", "legal"),
    [
        ("paid", "fare", "an input of 'paid': fares, fees"),
        ("totals", "fares", "no `side`, since 'totals' is not the table of a join"),
        ("fares", "fares", "no `side`, since 'fares' is not the table of a join"),
    ],
    ids=["not an input", "no join", "a source"],
)
def test_a_side_that_is_no_input_of_a_join_is_refused(table: str, side: str, legal: str) -> None:
    counted = ExpectRowsToBeJoinedOnEachDay(column="zone", side=side, meta={"check": "paid"})
    suites_of = {table: ExpectationSuite(name=table, expectations=[counted])}
    pipeline = Pipeline(sources=[FARES, replace(FARES, name="fees")], tables=[TOTALS, PAID], suites=suites_of)
    with pytest.raises(ContractError, match=f"^check 'paid': side='{side}'; legal: {legal}$"):
        table_suites(pipeline)


def test_the_expectations_of_the_shops_logs_are_checked_on_new_rows() -> None:
    pipeline = shop(Settings())
    expectations = {log.source: log.suite.expectations for log in table_suites(pipeline) if log.source is not None}
    assert len(expectations) == len(LOGS)
    for source, of_log in expectations.items():
        columns = log_schema(pipeline.sources_by_name[source])
        assert select_row_checks(of_log, columns) == of_log, source
