from itertools import chain

import pytest

from expectations import shop as suites
from expectations import table_suites
from expectations.finding import check_name
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
    definitions = [suite.checks for suite in table_suites(shop(Settings()))]
    keys = set(chain.from_iterable(definition.check_keys for definition in definitions))
    logs, tables = [f"events/{suite.name}" for suite in LOGS], [suite.name for suite in SUITES[len(LOGS) :]]
    assert {k.asset_key.to_user_string() for k in keys} == {*logs, *tables}
    assert len(keys) == sum(len(suite.expectations) for suite in SUITES)


def test_an_expectation_without_a_name_is_named_by_type_and_columns():
    unnamed = [e.copy(update={"meta": None}) for e in suites.orders().expectations]
    assert {"expect_column_values_to_not_be_null_order_id", "expect_compound_columns_to_be_unique_seq_arrival"} <= {
        check_name(e) for e in unnamed
    }
