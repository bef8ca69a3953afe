"""The checks, run by Dagster on frames with the schemas of the real tables."""

from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import cache

import dagster as dg
import great_expectations as gx
import pyarrow as pa
import pytest
from great_expectations.expectations.core.expect_table_row_count_to_be_between import ExpectTableRowCountToBeBetween
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StringType, StructField, StructType

from assets.factories.keys import event_key
from assets.factories.partitions import RANGE_END, RANGE_START
from assets.shop.sources import orders, payments
from assets.shop.tables import payment_order_wide
from expectations import shop as suites
from expectations import suite_and_table_checks, suite_checks
from expectations.checks import NO_TABLE, findings
from platform_defs.engine.inputs.schemas import event_schema, log_schema
from platform_defs.engine.operations.views import Log
from platform_defs.settings import Settings
from platform_defs.shop import shop
from tests.support.spark_jobs import jobs_of

pytestmark = pytest.mark.usefixtures("interpreted_plans")
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
LATER, MS = NOON + timedelta(minutes=5), timedelta(milliseconds=1)
POLICY = {"out_of_orderness": "10 minutes", "idle_timeout": "1 hour", "duplicate_horizon": "7 days", "future_skew": "24 hours"}
ORDERS, PAYMENTS = orders(POLICY), payments(POLICY)
WIDE = payment_order_wide(within="24 hours", how="full")
ONE_ROW = "item_id string, category string, window_start timestamp, window_end timestamp"
WIDE_KEY = dg.AssetKey("payment_order_wide")


@dataclass
class FakeEngine:
    """Tables by name; any other table is read from a lake that does not contain it."""

    spark: SparkSession
    tables: dict[str, DataFrame] = field(default_factory=dict)
    lake: str = "/nonexistent/lake"

    @property
    def views(self):
        return self

    def table(self, name):
        return self.tables[name] if name in self.tables else self.spark.read.format("delta").load(f"{self.lake}/{name}")

    def log(self, source):
        try:
            table = self.table(f"events/{source}")
        except AnalysisException as error:
            if error.getCondition() in NO_TABLE:
                return None
            raise
        return Log("id", table.schema, 9, lambda seq: seq, lambda after: table.where(F.col("seq").isNull() | (F.col("seq") > after)))

    def naming_lost_files(self):
        return nullcontext()


@cache
def checks_of_the_shop():
    return [*suite_and_table_checks(shop(Settings()))]


def log_row(**columns):
    return {"event_time": NOON, "event_time_raw": NOON, **columns}


@dataclass(frozen=True)
class Case:
    """A dataset: its checks, a good row, and the change that makes a row violate each check (a list: in several rows)."""

    table: str
    key: dg.AssetKey
    good: dict
    violations: dict

    @property
    def checks(self):
        return next(d for d in checks_of_the_shop() if next(iter(d.check_keys)).asset_key == self.key)

    def rows(self):
        """Good rows, and corrupted ones tagged with the check they violate; each with its own identity."""
        tagged = [("good", {})] * 3 + [
            (check, row) for check, rows in self.violations.items() for row in (rows if isinstance(rows, list) else [rows])
        ]
        return [{**self.good, **self.identity(i), **row, "violates": check} for i, (check, row) in enumerate(tagged)]

    def identity(self, i):
        return {"seq": 1 + i % 2, "arrival": i} if "order_seq" not in self.good else {"order_arrival": i, "payment_arrival": i}


LOG_VIOLATIONS = {
    "seq_not_null": {"seq": None},
    "arrival_not_null": {"arrival": None},
    "event_time_not_null": {"event_time": None},
    "row_identity_unique": [{"seq": 9, "arrival": 9}, {"seq": 9, "arrival": 9}],
    "event_time_floored": {"event_time": NOON + MS},
    "amount_not_negative": {"amount": Decimal("-0.01")},
}
ORDER_LOG = Case(
    table="events/orders",
    key=event_key("orders"),
    good=log_row(order_id="o", customer_id="ana", status="created", amount=Decimal("0.00"), order_time=NOON),
    violations={
        **LOG_VIOLATIONS,
        "order_id_not_null": {"order_id": None},
        "customer_id_not_null": {"customer_id": None},
        "status_known": {"status": "teleported"},
    },
)
PAYMENT_LOG = Case(
    table="events/payments",
    key=event_key("payments"),
    good=log_row(payment_id="p", order_id="o", method="boleto", amount=Decimal("0.01"), payment_time=NOON),
    violations={
        **LOG_VIOLATIONS,
        "payment_id_not_null": {"payment_id": None},
        "order_id_not_null": {"order_id": None},
        "amount_not_null": {"amount": None},
        "method_known": {"method": "shells"},
    },
)
ORDER_SIDE = {
    "order_seq": 1,
    "order_event_time": NOON,
    "order_amount": Decimal("2.00"),
    "customer_id": "ana",
    "status": "created",
    "order_time": NOON,
}
PAYMENT_SIDE = {
    "payment_seq": 2,
    "payment_event_time": NOON,
    "payment_id": "p",
    "method": "card",
    "payment_amount": Decimal("2.00"),
    "payment_time": NOON,
}
NO_ORDER = {**dict.fromkeys(ORDER_SIDE), "order_arrival": None}
NO_PAYMENT = {**dict.fromkeys(PAYMENT_SIDE), "payment_arrival": None}
WIDE_TABLE = Case(
    table="payment_order_wide",
    key=WIDE_KEY,
    good={
        "order_id": "o",
        **ORDER_SIDE,
        **PAYMENT_SIDE,
        "order_arrival": 0,
        "payment_arrival": 0,
        "result_time": NOON,
        "final_at": NOON + MS,
    },
    violations={
        "good": [NO_ORDER, NO_PAYMENT, {"order_amount": None}],
        "order_id_not_null": {"order_id": None},
        "result_time_not_null": {"result_time": None},
        "final_at_not_null": {"final_at": None},
        "final_after_result": {"final_at": NOON},
        "payment_not_before_order": {"payment_event_time": NOON - MS},
        "row_has_a_side": {**NO_ORDER, **NO_PAYMENT},
        "pair_unique": [{"order_arrival": 99, "payment_arrival": 99}, {"order_arrival": 99, "payment_arrival": 99}],
        "status_known": {"status": "teleported"},
        "method_known": {"method": "shells"},
        "order_amount_not_negative": {"order_amount": Decimal("-2.00"), "payment_amount": None},
        "payment_amount_not_negative": {"payment_amount": Decimal("-2.00")},
        "payment_not_above_order": {"payment_amount": Decimal("2.01")},
    },
)
CASES = [ORDER_LOG, PAYMENT_LOG, WIDE_TABLE]
WARNINGS = {"customer_id_not_null", "amount_not_null", "status_known", "method_known", "payment_not_above_order"}


@pytest.fixture(scope="module")
def frame(spark):
    """Make the frame of a dataset: the columns of its table, and `violates`, the check that a row violates."""
    empty = [spark.createDataFrame([], event_schema(source)) for source in (ORDERS, PAYMENTS)]
    schemas = {"events/orders": log_schema(ORDERS), "events/payments": log_schema(PAYMENTS), "payment_order_wide": WIDE.rows(*empty).schema}

    def make(case, rows):
        schema = StructType([*schemas[case.table].fields, StructField("violates", StringType())])
        assert all(set(row) == set(schema.fieldNames()) for row in rows)
        return spark.createDataFrame(pa.Table.from_pylist(rows, to_arrow_schema(schema)), schema)  # a local relation, which is quick

    return make


def run(engine, checks, key, *, only=None, tags=None):
    """Run checks (or one of them) as a Dagster job; returns their evaluations by name."""
    selection = dg.AssetSelection.checks(dg.AssetCheckKey(key, only)) if only else dg.AssetSelection.all_asset_checks()
    job = dg.define_asset_job("checks", selection=selection)
    defs = dg.Definitions(assets=[dg.AssetSpec(key)], asset_checks=[checks], jobs=[job], resources={"engine": engine})
    result = defs.resolve_job_def("checks").execute_in_process(tags=tags)
    return {e.check_name: e for e in result.get_asset_check_evaluations()}


def failing(evaluation, column="violates"):
    return [record.data[column] for record in evaluation.metadata["failing_rows"].records]


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.table)
def test_good_rows_pass_every_check(case, frame, spark):
    good = [row for row in case.rows() if row["violates"] == "good"]
    table = frame(case, good)
    evaluations = run(FakeEngine(spark, {case.table: table}), case.checks, case.key)
    assert not table.storageLevel.useMemory  # Great Expectations would leave it cached
    assert set(evaluations) == set(case.violations) - {"good"}
    assert {name for name, e in evaluations.items() if not e.passed} == set()
    assert all("failing_rows" not in e.metadata for e in evaluations.values())
    assert evaluations["order_id_not_null"].description == f"0 of {len(good)} rows fail"
    assert evaluations["order_id_not_null"].metadata["evaluated_rows"].value == len(good)


@pytest.mark.parametrize(("case", "suite"), [(ORDER_LOG, suites.orders()), (WIDE_TABLE, suites.payment_order_wide())], ids=["log", "join"])
def test_a_suite_that_passes_is_one_spark_job(case, suite, frame, spark):
    table = frame(case, [row for row in case.rows() if row["violates"] == "good"])
    with jobs_of(spark) as jobs:
        found = findings(FakeEngine(spark, {case.table: table}), case.table, suite.expectations)
    assert len(jobs) == 1
    assert all(finding.passed for finding in found.by_check.values())


OF_EVERY_LOG = {*LOG_VIOLATIONS} - {"amount_not_negative"}
ONLY_OF_PAYMENTS = replace(PAYMENT_LOG, violations={name: row for name, row in PAYMENT_LOG.violations.items() if name not in OF_EVERY_LOG})
"""Without the rows that violate what holds for every log, which are those of orders."""


@pytest.mark.parametrize("case", [ORDER_LOG, ONLY_OF_PAYMENTS, WIDE_TABLE], ids=lambda c: c.table)
def test_each_corrupted_row_fails_exactly_its_own_check(case, frame, spark):
    rows = case.rows()
    evaluations = run(FakeEngine(spark, {case.table: frame(case, rows)}), case.checks, case.key)
    failed = {name: evaluation for name, evaluation in evaluations.items() if not evaluation.passed}
    assert {*failed} == {*case.violations} - {"good"}
    for name, evaluation in failed.items():
        violations = len(case.violations[name]) if isinstance(case.violations[name], list) else 1
        assert failing(evaluation) == [name] * violations
        assert evaluation.metadata["unexpected_count"].value == violations
        assert evaluation.severity == (dg.AssetCheckSeverity.WARN if name in WARNINGS else dg.AssetCheckSeverity.ERROR)


def test_a_failed_check_reports_the_count_the_rows_and_the_expectation(frame, spark):
    rows = [row for row in ORDER_LOG.rows() if row["violates"] in ("good", "amount_not_negative")]
    evaluations = run(FakeEngine(spark, {ORDER_LOG.table: frame(ORDER_LOG, rows)}), ORDER_LOG.checks, ORDER_LOG.key)
    assert [name for name, e in evaluations.items() if not e.passed] == ["amount_not_negative"]
    evaluation = evaluations["amount_not_negative"]
    assert evaluation.description == "1 of 4 rows fails"
    assert evaluation.metadata["unexpected_percent"].value == 25.0
    assert evaluation.metadata["expectation"].value == {"type": "expect_column_values_to_be_between", "column": "amount", "min_value": 0.0}
    assert failing(evaluation, "amount") == ["-0.01"]
    assert failing(evaluation, "event_time") == ["2026-03-01T12:00:00+00:00"]


def test_the_sample_of_failing_rows_is_limited_and_their_count_is_not(frame, spark):
    rows = [{**ORDER_LOG.good, "seq": 1, "arrival": i, "amount": Decimal("-1.00"), "violates": ""} for i in range(20)]
    checks = suite_checks(ORDER_LOG.key, ORDER_LOG.table, suites.orders(), sample=3)
    evaluations = run(FakeEngine(spark, {ORDER_LOG.table: frame(ORDER_LOG, rows)}), checks, ORDER_LOG.key, only="amount_not_negative")
    assert set(evaluations) == {"amount_not_negative"}
    assert len(failing(evaluations["amount_not_negative"])) == 3
    assert evaluations["amount_not_negative"].metadata["unexpected_count"].value == 20


@pytest.mark.parametrize("case", [ORDER_LOG, WIDE_TABLE], ids=["log", "join"])
def test_a_table_that_does_not_exist_yet_passes_with_a_note(case, spark, tmp_path):
    (tmp_path / case.table).mkdir(parents=True)
    for lake in ("/nonexistent/lake", str(tmp_path)):
        evaluations = run(FakeEngine(spark, lake=lake), case.checks, case.key)
        assert set(evaluations) == set(case.violations) - {"good"}
        assert all(e.passed and e.metadata["note"].value == "no rows yet" for e in evaluations.values())


def test_an_empty_table_passes(frame, spark):
    evaluations = run(FakeEngine(spark, {WIDE_TABLE.table: frame(WIDE_TABLE, [])}), WIDE_TABLE.checks, WIDE_KEY)
    assert all(e.passed and e.metadata["evaluated_rows"].value == 0 for e in evaluations.values())


def test_a_missing_column_fails_as_an_error_that_names_it(frame, spark):
    table = frame(ORDER_LOG, [row for row in ORDER_LOG.rows() if row["violates"] == "good"]).drop("status")
    evaluations = run(FakeEngine(spark, {ORDER_LOG.table: table}), ORDER_LOG.checks, ORDER_LOG.key)
    assert not evaluations["status_known"].passed
    assert evaluations["status_known"].severity == dg.AssetCheckSeverity.ERROR
    assert "status" in str(evaluations["status_known"].metadata["error"].value)
    assert evaluations["row_identity_unique"].passed


def test_a_corrupted_table_is_not_reported_as_missing(spark, tmp_path):
    (tmp_path / "events/orders/_delta_log").mkdir(parents=True)
    (tmp_path / "events/orders/_delta_log/00000000000000000000.json").write_text("{}\n")
    with pytest.raises(Exception, match=r"DELTA_|protocol"):
        run(FakeEngine(spark, lake=str(tmp_path)), ORDER_LOG.checks, ORDER_LOG.key)


def test_a_run_over_days_checks_the_rows_of_its_days(frame, spark):
    days = [NOON + timedelta(days=d, seconds=43_200) for d in (-2, -1, 0)]  # midnights: 28 February, 1 and 2 March
    finals = [days[0] - MS, days[0], days[1], days[2] - MS, days[2]]
    rows = [{**WIDE_TABLE.good, **WIDE_TABLE.identity(i), "final_at": at, "status": f"{i}", "violates": ""} for i, at in enumerate(finals)]
    engine = FakeEngine(spark, {WIDE_TABLE.table: frame(WIDE_TABLE, rows)})
    tags = {RANGE_START: "2026-02-28", RANGE_END: "2026-03-01"}
    evaluation = run(engine, WIDE_TABLE.checks, WIDE_KEY, only="status_known", tags=tags)["status_known"]
    assert failing(evaluation, "status") == ["1", "2", "3"]
    assert evaluation.metadata["days"].value == "2026-02-28 to 2026-03-01"


def test_a_partitioned_run_of_the_asset_checks_its_day(frame, spark):
    days = dg.DailyPartitionsDefinition("2026-01-01")
    asset = dg.asset(key=WIDE_KEY, partitions_def=days)(lambda: None)
    rows = [
        {**WIDE_TABLE.good, **WIDE_TABLE.identity(d), "final_at": NOON + timedelta(days=d), "status": f"{d}", "violates": ""}
        for d in range(3)
    ]
    engine = FakeEngine(spark, {WIDE_TABLE.table: frame(WIDE_TABLE, rows)})
    one = dg.AssetSelection.checks(dg.AssetCheckKey(WIDE_KEY, "status_known"))
    job = dg.define_asset_job("advance", selection=dg.AssetSelection.assets(asset).without_checks() | one)
    defs = dg.Definitions(assets=[asset], asset_checks=[WIDE_TABLE.checks], jobs=[job], resources={"engine": engine})
    result = defs.resolve_job_def("advance").execute_in_process(partition_key="2026-03-02")
    evaluations = {e.check_name: e for e in result.get_asset_check_evaluations()}
    assert failing(evaluations["status_known"], "status") == ["1"]


def test_only_critical_expectations_block():
    checks = suite_checks(ORDER_LOG.key, ORDER_LOG.table, suites.orders(), blocking=True)
    blocking = {spec.name for spec in checks.check_specs if spec.blocking}
    assert blocking == {s.name for s in checks.check_specs} - {"customer_id_not_null", "status_known"}
    assert not any(spec.blocking for spec in ORDER_LOG.checks.check_specs)


def test_a_table_level_expectation_shows_the_observed_value(frame, spark):
    table = frame(ORDER_LOG, [row for row in ORDER_LOG.rows() if row["violates"] == "good"])
    suite = gx.ExpectationSuite(
        name="row_count", expectations=[ExpectTableRowCountToBeBetween(min_value=10, meta={"check": "enough_rows"})]
    )
    evaluations = run(FakeEngine(spark, {ORDER_LOG.table: table}), suite_checks(ORDER_LOG.key, ORDER_LOG.table, suite), ORDER_LOG.key)
    assert not evaluations["enough_rows"].passed
    assert evaluations["enough_rows"].description == "the metadata has the observed value"


def test_clicks_and_sales_of_an_item_without_a_category_do_not_break_the_check(spark):
    """Rows with a null key never match, so a window may have two of them; two rows with a category are one too many."""
    ends = {"window_start": NOON, "window_end": LATER}
    rows = [("x", None), ("x", None), ("y", "toys"), ("z", "toys")]
    schema = StructType.fromDDL(ONE_ROW)
    table = spark.createDataFrame(
        pa.Table.from_pylist([{"item_id": i, "category": c, **ends} for i, c in rows], to_arrow_schema(schema)), schema
    )
    key = dg.AssetKey("item_conversion")
    checks = suite_checks(key, "item_conversion", suites.item_conversion())
    repeated = table.union(table.where("item_id = 'z'"))
    evaluation = run(FakeEngine(spark, {"item_conversion": repeated}), checks, key, only="one_row_a_window")["one_row_a_window"]
    assert not evaluation.passed
    assert failing(evaluation, "item_id") == ["z", "z"]
