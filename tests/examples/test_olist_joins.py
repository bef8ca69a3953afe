"""Semi and anti joins of Olist's real sample, and joins whose rows arrive in any order, equal DuckDB's row for row."""

from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any, Literal

import duckdb
import pytest
from pyspark.sql import functions as F

from assets.contracts import DerivedAsset
from assets.shop.sources import Policy, orders, payments
from operators import IntervalJoin
from platform_defs.engine import Engine
from platform_defs.simulator.olist import ORDERS, prepare
from tests.conftest import MakeEngine
from tests.support.json_rows import values_of
from tests.support.shared_data import OLIST
from tests.support.small_sources import correct_totals

pytestmark = [
    pytest.mark.skipif(not (OLIST / ORDERS).is_file(), reason=f"Olist's sample is not here: {OLIST}"),
    pytest.mark.usefixtures("interpreted_plans"),
]
POLICY: Policy = {"out_of_orderness": "1 hour", "idle_timeout": "1 hour", "duplicate_horizon": "7 days", "future_skew": "24 hours"}
BOUNDS: dict[str, Any] = {"lower": 0, "upper": "1 hour", "left_prefix": "order_", "right_prefix": "payment_"}
ROWS = f"""
    WITH o AS (SELECT order_id, order_purchase_timestamp::TIMESTAMP AS at FROM '{OLIST}/olist_orders_dataset.csv'),
    p AS (
        SELECT order_id, payment_type, payment_value, order_approved_at::TIMESTAMP AS at
        FROM '{OLIST}/olist_order_payments_dataset.csv' JOIN '{OLIST}/olist_orders_dataset.csv' USING (order_id)
        WHERE order_approved_at IS NOT NULL
    )
"""
MATCH = "p.order_id = o.order_id AND p.at BETWEEN o.at AND o.at + INTERVAL 1 HOUR"
SEMI = f"SELECT order_id, epoch_ms((SELECT min(p.at) FROM p WHERE {MATCH})) FROM o WHERE EXISTS (FROM p WHERE {MATCH})"
ANTI = f"SELECT order_id, epoch_ms(o.at + INTERVAL 1 HOUR) FROM o WHERE NOT EXISTS (FROM p WHERE {MATCH})"
FULL = f"""
    SELECT coalesce(o.order_id, p.order_id), o.at IS NULL, p.at IS NULL, payment_type,
           epoch_ms(CASE WHEN p.at IS NULL THEN o.at + INTERVAL 1 HOUR ELSE p.at END)
    FROM o FULL JOIN p ON {MATCH}
"""


def _ingested(make_engine: MakeEngine, joins: dict[str, dict[str, Any]], arrival: Literal["by_time", "as_is"], files: int) -> Engine:
    """An engine that has joined orders with payments after each file of both. Before the last join, the sources are drained."""
    assets = [
        DerivedAsset(name=name, inputs=("orders", "payments"), operator=IntervalJoin(on="order_id", **BOUNDS, **spec))
        for name, spec in joins.items()
    ]
    engine = replace(make_engine([orders(POLICY), payments(POLICY)], assets), max_files=1)
    prepare(OLIST, Path(engine.folders["orders"]).parent, parts=files, arrival=arrival)

    def advance() -> None:
        for name in joins:
            engine.advance(name)

    numbers = count(1)
    batches = engine.ingest(on_batch=lambda _: advance() if next(numbers) < files else None)
    assert len(batches) == files
    engine.drain()
    advance()
    return engine


def _wanted(sql: str) -> list[tuple[Any, ...]]:
    return sorted(duckdb.sql(ROWS + sql).fetchall(), key=repr)


def _count(rows: str) -> int:
    return duckdb.sql(f"{ROWS} SELECT count(*) FROM {rows}").fetchall()[0][0]


def test_orders_with_and_without_a_payment_equal_those_of_duckdb(make_engine: MakeEngine) -> None:
    engine = _ingested(make_engine, {"semi": {"how": "semi"}, "anti": {"how": "anti"}}, "by_time", files=2)
    at = F.unix_millis("result_time")
    found = values_of({name: engine.views.table(name).select("order_id", at) for name in ("semi", "anti")})
    assert found == {"semi": _wanted(SEMI), "anti": _wanted(ANTI)}
    assert min(map(len, found.values())) > 2_000
    for name in found:
        account = correct_totals(engine, name)
        assert account["orders", "matched"] == len(found["semi"])
        assert account["payments", "matched"] == _count(f"p WHERE EXISTS (FROM o WHERE {MATCH})")


def test_late_orders_and_payments_are_joined_as_if_they_had_arrived_in_time(make_engine: MakeEngine) -> None:
    """Nearly every row after the first file is late. The allowed lateness is longer than the whole sample."""
    joins = {
        "corrected": {"how": "full", "allowed_lateness": "3000 days"},
        "joined": {"how": "left", "late_rows": "join"},
        "dropped": {"how": "left"},
    }
    engine = _ingested(make_engine, joins, "as_is", files=2)
    names = "order_id", F.col("order_seq").isNull(), F.col("payment_seq").isNull(), "method", F.unix_millis("result_time")
    tables = {name: engine.views.table(name) for name in joins}
    counts = {name: tables[name].selectExpr("count(DISTINCT order_id)") for name in ("joined", "dropped")}
    found = values_of({"corrected": tables["corrected"].select(*names), **counts})
    assert found["corrected"] == _wanted(FULL)
    orders_out = {name: found[name][0][0] for name in counts}
    late = {name: correct_totals(engine, name)["orders", "late"] for name in joins}
    assert orders_out["joined"] == _count("o") == orders_out["dropped"] + late["dropped"]
    assert late["dropped"] > 2_000
    assert (late["corrected"], late["joined"]) == (0, 0)
