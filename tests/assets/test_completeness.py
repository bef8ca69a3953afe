"""The least shares of matched rows of a join: by side, by severity, and in a pipeline."""

from dataclasses import dataclass
from datetime import date
from typing import Any

import dagster as dg
import pytest

from assets.completeness import Completeness
from assets.contract_checks import ContractError
from assets.contracts import DerivedAsset, SourceContract
from assets.factories.join_completeness import completeness_result, is_join, shares
from assets.pipeline import Pipeline
from expectations.completeness import ExpectRowsToBeJoinedOnEachDay
from operators import Aggregate, AsOfJoin, CoGroup, IntervalJoin, Tumbling, WindowedAggregate, WindowJoin
from platform_defs.declared.pipeline import read

SCHEMA = "k STRING, at TIMESTAMP"
SOURCES = [SourceContract(name=name, schema=SCHEMA, event_time="at") for name in ("orders", "payments")]
HOUR = Tumbling(size="1 hour")
TABLES = [
    DerivedAsset(name="pairs", inputs=("orders", "payments"), operator=IntervalJoin(on="k", lower=0, upper="1 hour")),
    DerivedAsset(name="windows", inputs=("orders", "payments"), operator=WindowJoin(on="k", window=HOUR)),
    DerivedAsset(name="groups", inputs=("orders", "payments"), operator=CoGroup(on="k", window=HOUR)),
    DerivedAsset(name="counts", inputs=("orders",), operator=WindowedAggregate(by="k", window=HOUR, aggregates={"n": "count(*)"})),
    DerivedAsset(name="unpaid", inputs=("orders", "payments"), operator=IntervalJoin(on="k", lower=0, upper="1 hour", how="anti")),
    DerivedAsset(name="as_of", inputs=("payments", "orders"), operator=AsOfJoin(on="k")),
    DerivedAsset(name="with_counts", inputs=("payments", "counts"), operator=IntervalJoin(on="k", lower=0, upper="1 hour")),
]


@dataclass
class Matches:
    """The matched rows of a side and day."""

    side: str
    day: date
    matched: int
    unmatched: int
    late: int = 0

    @property
    def completeness(self) -> float:
        """The share of matched rows."""
        return self.matched / (self.matched + self.unmatched + self.late)


FIRST, SECOND = date(2026, 3, 1), date(2026, 3, 2)
FOUND = [
    Matches("orders", FIRST, 9, 1),
    Matches("payments", FIRST, 6, 2, 2),
    Matches("orders", SECOND, 1, 1),
    Matches("payments", SECOND, 5, 0),
]


@pytest.mark.parametrize(
    ("required", "severity", "poor"),
    [
        (Completeness(), None, []),
        (Completeness(warn_below=0.5, error_below=0.5), None, []),
        (Completeness(warn_below=0.6), "WARN", ["orders on 2026-03-02 (50.0% of 2)"]),
        (Completeness(error_below=0.6), "ERROR", ["orders on 2026-03-02 (50.0% of 2)"]),
        (Completeness(warn_below={"payments": 0.7}), "WARN", ["payments on 2026-03-01 (60.0% of 10, 2 of them late)"]),
        (
            Completeness(warn_below=0.7, error_below={"orders": 0.55}),
            "ERROR",
            ["payments on 2026-03-01 (60.0% of 10, 2 of them late)", "orders on 2026-03-02 (50.0% of 2)"],
        ),
    ],
    ids=["nothing is required", "just enough", "a warning", "an error", "of one side, with late rows", "both"],
)
def test_the_check_fails_below_a_share_with_its_severity(required: Completeness, severity: str | None, poor: list[str]) -> None:
    result = completeness_result(FOUND, required)
    assert result.passed is (severity is None)
    if severity:
        assert result.severity == dg.AssetCheckSeverity[severity]
        assert result.description == f"too few rows are matched: {', '.join(poor)}"


def test_a_share_is_rounded_down() -> None:
    required, almost = Completeness(warn_below=0.9999999, error_below={"orders": 0.5}), Matches("orders", FIRST, 99_999, 1)
    result = completeness_result([almost], required)
    assert result.description == "too few rows are matched: orders on 2026-03-01 (99.9% of 100,000)"
    assert (result.metadata or {})["completeness orders"].value == 0.9999
    [poor] = (result.metadata or {})["poor"].value
    assert poor["completeness"] == 0.9999
    assert str(required) == "all sides warn below 99.99999%; orders fail below 50%"


def test_the_metadata_have_the_trend_and_the_share_of_each_side() -> None:
    assert shares(FOUND) == {"completeness orders": 0.8333, "completeness payments": 0.7333}
    metadata = completeness_result(FOUND, Completeness()).metadata or {}
    trend = metadata["trend"]
    assert isinstance(trend, dg.TableMetadataValue)
    assert [(r.data["day"], r.data["side"], r.data["completeness"], r.data["late"]) for r in trend.records] == [
        ("2026-03-01", "orders", 0.9, 0),
        ("2026-03-01", "payments", 0.6, 2),
        ("2026-03-02", "orders", 0.5, 0),
        ("2026-03-02", "payments", 1.0, 0),
    ]
    assert metadata["worst"].value == "orders on 2026-03-02 (50.0% of 2)"
    assert completeness_result([], Completeness(error_below=1)).passed


def test_every_join_has_a_completeness() -> None:
    assert [is_join(table) for table in TABLES] == [True, True, True, False, True, True, True]


def test_a_number_for_all_tables_holds_for_interval_joins_of_sources_and_names_hold_for_any_join() -> None:
    default = Pipeline(sources=SOURCES, tables=TABLES)
    assert default.completeness_of("pairs") == Completeness(warn_below=0.5)
    assert default.completeness_of("windows") == default.completeness_of("groups") == Completeness()
    assert default.completeness_of("with_counts") == default.completeness_of("unpaid") == Completeness()
    assert default.completeness_of("as_of").severity("payments", 0.4) == "warning"
    assert default.completeness_of("as_of").severity("orders", 0.0) is None
    own = Completeness(warn_below={"payments": 0.99}, error_below=0.5)
    named = Pipeline(sources=SOURCES, tables=TABLES, completeness={"windows": 0.9, "groups": own})
    assert named.completeness_of("windows") == Completeness(warn_below=0.9)
    assert named.completeness_of("groups") == own
    assert named.completeness_of("pairs") == Completeness(warn_below=0.5)
    assert str(own) == "payments warn below 99%; all sides fail below 50%"
    assert str(Completeness()) == "no share is required"


TOTALS = DerivedAsset(name="totals", inputs=("orders",), operator=Aggregate(by="k", aggregates={"n": "count(*)"}))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Completeness(warn_below=1.5), "`warn_below` is 1.5; legal: a share from 0 to 1"),
        (lambda: Completeness(error_below={"orders": "half"}), "`error_below` is 'half'; legal: a share from 0 to 1"),  # pyright: ignore[reportArgumentType]
        (lambda: Pipeline(sources=SOURCES, tables=TABLES, completeness={"pairs": True}), "`completeness` is True; legal: a share"),
        (
            lambda: Pipeline(sources=SOURCES, tables=TABLES, completeness={"pairs": {"payments": 0.9}}),  # pyright: ignore[reportArgumentType]
            "legal: a share from 0 to 1, or `Completeness.warn_below=.*` for a share of each input",
        ),
        (
            lambda: Pipeline(sources=SOURCES, tables=TABLES, completeness={"pairs": Completeness(warn_below={"order": 1})}),
            "`completeness` is 'order'; legal: names of inputs of 'pairs': orders, payments",
        ),
        (
            lambda: Pipeline(sources=SOURCES, tables=TABLES, completeness=Completeness(warn_below={"paymnts": 0.99})),
            r"`completeness` is 'paymnts'; legal: names of inputs of joins of sources: .*; did you mean 'payments'\?",
        ),
        (
            lambda: Pipeline(sources=SOURCES, tables=[*TABLES, TOTALS], completeness={"totals": 0.9}),
            "`completeness` is 'totals'; legal: names of joins: .*pairs.*; only their rows are matched or unmatched",
        ),
    ],
)
def test_illegal_shares_are_refused(make: Any, message: str) -> None:
    with pytest.raises(ContractError, match=message):
        make()


YAML = """
sources:
  - {name: orders, schema: "k STRING, at TIMESTAMP", event_time: at}
  - {name: payments, schema: "k STRING, at TIMESTAMP", event_time: at}
tables:
  - {name: windows, inputs: [orders, payments], operator: {window_join: {on: k, window: {tumbling: {size: 1 hour}}}}}
completeness: {windows: SHARES}
"""


def test_a_pipeline_in_yaml_has_shares_by_side_and_severity() -> None:
    made = read(YAML.replace("SHARES", "{warn_below: {payments: 0.99}, error_below: 0.5}"))
    assert made.completeness_of("windows") == Completeness(warn_below={"payments": 0.99}, error_below=0.5)
    assert read(YAML.replace("SHARES", "0.9")).completeness_of("windows") == Completeness(warn_below=0.9)
    with pytest.raises(ContractError, match=r"`completeness` is 'warn_bellow'; legal: .*; did you mean 'warn_below'"):
        read(YAML.replace("SHARES", "{warn_bellow: 0.5}"))


def test_a_suite_in_yaml_may_expect_that_rows_are_joined() -> None:
    suite = """
suites:
  windows:
    - {type: expect_rows_to_be_joined_on_each_day, kwargs: {column: right_seq, side_column: left_seq, mostly: 0.9}, severity: warning}
"""
    [expectation] = read(YAML.replace("completeness: {windows: SHARES}", suite)).suites_by_name()["windows"].expectations
    assert expectation == ExpectRowsToBeJoinedOnEachDay(column="right_seq", side_column="left_seq", mostly=0.9, severity="warning")
