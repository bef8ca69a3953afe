"""The generated data of the benchmarks, and the true results for them."""

import hashlib
from collections import Counter
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks.data import (
    START,
    TABLES,
    Shape,
    batch_bounds,
    batches_folder,
    checksum,
    micro_batches,
    prepare,
    read_by_arrival,
    true_hot_items,
    true_pairs,
    true_top_bids,
)

FLINK_HASHES = {"orders": "2387d0fa80a02b78", "payments": "b79eababd7836715", "bids": "3b11f868c37c32cd"}


def rows_of(data, table):
    return pq.read_table(data / table)


def brute_force(data, within_ms):
    orders, payments = (rows_of(data, t).select(["order_id", "ts"]).to_pylist() for t in TABLES)
    return sum(o["order_id"] == p["order_id"] and 0 <= p["ts"] - o["ts"] <= within_ms for o in orders for p in payments)


@pytest.mark.parametrize("table", FLINK_HASHES)
def test_the_data_equals_that_of_the_flink_job_to_the_byte(tmp_path, table):
    data = prepare(Shape(10_000, data="bids" if table == "bids" else "payments"), tmp_path)
    columns = [_bytes(rows_of(data, table)[c]) for c in rows_of(data, table).column_names]
    assert hashlib.sha256(b"".join(columns)).hexdigest()[:16] == FLINK_HASHES[table]


def _bytes(column):
    return "".join(column.to_pylist()).encode() if column.type == pa.string() else column.to_numpy().tobytes()


@pytest.mark.parametrize("table", TABLES)
def test_ten_micro_batches_hold_every_row_once_by_arrival_in_equal_parts(tmp_path, table):
    data = prepare(Shape(10_003), tmp_path, batches=10)
    files = [dict(batch)[table] for batch in micro_batches(data, 10)]
    parts = [pq.read_table(file) for file in files]
    assert pa.concat_tables(parts).equals(read_by_arrival(data, table).combine_chunks())
    assert {p.num_rows for p in parts} == {1_000, 1_001}
    assert all(a.stat().st_mtime < b.stat().st_mtime for a, b in pairwise(files))


def test_arrival_is_out_of_order_by_less_than_three_seconds(tmp_path):
    times = read_by_arrival(prepare(Shape(10_000), tmp_path), "orders")["ts"].to_numpy()
    behind = np.maximum.accumulate(times) - times
    assert 0 < behind.max() < 3_000


@pytest.mark.parametrize(
    ("rows", "batches", "first", "expected"),
    [(10, 2, 0, [0, 5, 10]), (10, 3, 0, [0, 3, 6, 10]), (10, 3, 4, [0, 4, 7, 10]), (10, 1, 0, [0, 10])],
)
def test_micro_batches_have_equal_sizes_after_the_first(rows, batches, first, expected):
    assert batch_bounds(rows, batches, first) == expected


@pytest.mark.parametrize("shape", [Shape(300), Shape(300, keys=20, step_ms=72_000), Shape(300, keys=3, step_ms=1_000)])
@pytest.mark.parametrize("within_ms", [0, 60_000, 600_000])
def test_the_true_pairs_equal_a_nested_loop(tmp_path, shape, within_ms):
    data = prepare(shape, tmp_path)
    assert true_pairs(data, within_ms) == brute_force(data, within_ms)


def test_existing_data_is_not_made_again(tmp_path):
    data = prepare(Shape(100), tmp_path, batches=2, first=60)
    before = (batches_folder(data, 2, 60) / "orders" / "00000-0.parquet").stat().st_ctime_ns
    prepare(Shape(100), tmp_path, batches=2, first=60)
    assert (batches_folder(data, 2, 60) / "orders" / "00000-0.parquet").stat().st_ctime_ns == before


@pytest.mark.parametrize("shape", [Shape(3_000, data="bids"), Shape(3_000, keys=7, data="bids")])
@pytest.mark.parametrize("open_ms", [None, 50])
def test_the_true_hot_items_equal_a_nested_loop(tmp_path, shape, open_ms):
    data = prepare(shape, tmp_path)
    bids = rows_of(data, "bids").select(["auction", "ts"]).to_pylist()
    newest, ranks = max(b["ts"] for b in bids), []
    for end in range(START, newest + 101, 20):
        counts = Counter(b["auction"] for b in bids if end - 100 <= b["ts"] < end)
        best = sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:3]
        ranks += [(end, n, *item) for n, item in enumerate(best, 1) if open_ms is None or end <= newest - open_ms]
    item = np.array(ranks)
    wanted = {"found": len(ranks), "checksum": checksum(*(item[:, n] for n in range(4)))}
    assert true_hot_items(data, window_ms=100, slide_ms=20, top=3, open_ms=open_ms) == wanted
    assert len(ranks) > 30


@pytest.mark.parametrize("ranked", [True, False])
def test_the_true_top_bids_equal_a_nested_loop(tmp_path, ranked):
    data = prepare(Shape(3_000, keys=7, data="bids"), tmp_path)
    bids = rows_of(data, "bids").select(["auction", "price"]).to_pylist()
    terms = []
    for auction in {b["auction"] for b in bids}:
        best = sorted((b["price"] for b in bids if b["auction"] == auction), reverse=True)[:4]
        terms += [(n if ranked else 1) * (auction * 7 + price) for n, price in enumerate(best, 1)]
    assert true_top_bids(data, 4, ranked=ranked) == {"found": len(terms), "checksum": sum(terms)}
    assert len(terms) == 28
