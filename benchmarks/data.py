"""The input as Parquet files: orders and payments, or bids, complete and split by arrival into equal micro-batches.

The rows are the same as those of the Flink benchmark's generator for the same size: two files per table, row i of the arrival order in
file i % 2, out of order by less than 3 s. For the growth curves, `keys` reduces the number of keys and `step_ms` stretches event time.
"""

import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.contenders import WITHIN_MS

START = 1_700_000_000_000
JITTER_MS = 3_000
LONGEST_DELAY_MS = 720_000
TABLES = ("orders", "payments")
TABLES_OF = {"payments": TABLES, "bids": ("bids",)}
"""The tables of each kind of data."""
HOT_SHARE, HOT_AUCTIONS = 0.5, 100

Columns = dict[str, np.ndarray]


@dataclass(frozen=True)
class Shape:
    """The shape of the data.

    Args:
        rows: rows of each table.
        keys: number of distinct order keys (or auctions); 0 for no limit. Order i has the key i % keys.
        step_ms: event time between consecutive orders.
        data: `payments` (with their orders) or `bids`.
    """

    rows: int
    keys: int = 0
    step_ms: int = 1
    data: Literal["payments", "bids"] = "payments"

    @property
    def name(self) -> str:
        """The name of the data's folder."""
        return f"{self.data}-{self.rows}-{self.keys or self.rows}-{self.step_ms}"


def prepare(shape: Shape, folder: Path, batches: int = 0, first: int = 0) -> Path:
    """Write the data and its micro-batches, unless they exist.

    Args:
        shape: the shape of the data.
        folder: the folder for the data of all shapes.
        batches: number of micro-batches; 0 for none.
        first: rows of each table in the first micro-batch; 0 for as many as in the others.

    Returns:
        The data's folder. It contains one folder per table, and one per division into micro-batches.
    """
    data = folder / shape.name
    if not (data / TABLES_OF[shape.data][-1]).exists():
        _write_complete_folder(data, lambda scratch: _write_data(shape, scratch))
    target = batches_folder(data, batches, first)
    if batches and not target.exists():
        _write_complete_folder(target, lambda scratch: write_micro_batches(data, scratch, batches, first))
    return data


def batches_folder(data: Path, batches: int, first: int = 0) -> Path:
    """The folder of the micro-batches of one division; it contains a folder per table."""
    return data / f"batches-{batches}-{first}"


def _write_complete_folder(folder: Path, make: Callable[[Path], None]) -> None:
    """Write a folder under a temporary name and rename it, so that an incomplete folder never looks complete."""
    scratch = folder.with_name(f".{folder.name}")
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    make(scratch)
    shutil.rmtree(folder, ignore_errors=True)
    scratch.rename(folder)


def _write_data(shape: Shape, folder: Path) -> None:
    tables = [_bids(shape)] if shape.data == "bids" else _orders_and_payments(shape)
    for table, (columns, arrival) in zip(TABLES_OF[shape.data], tables, strict=True):
        order = np.argsort(arrival, kind="stable")
        for part in range(2):
            _write({name: values[order[part::2]] for name, values in columns.items()}, folder / table / f"part-{part}.parquet")


def _orders_and_payments(shape: Shape) -> Iterator[tuple[Columns, np.ndarray]]:
    """Both tables, with the arrival time of each row.

    Random numbers are drawn in the order of the Flink benchmark's generator; another order would give other data.
    """
    n, keys, rng = shape.rows, shape.keys or shape.rows, np.random.default_rng(42)
    row = np.arange(n, dtype=np.int64)
    time, amount = START + row * shape.step_ms, rng.integers(100, 100_000, n)
    customer = rng.integers(0, max(1, n // 50), n)
    yield {"order_id": row % keys, "customer_id": customer, "amount": amount, "ts": time}, time + rng.integers(0, JITTER_MS, n)
    paid, delay = rng.integers(0, n, n), rng.integers(0, LONGEST_DELAY_MS, n)
    is_stray = rng.random(n) < 0.1
    paid_order_ids = np.where(is_stray, n + paid, paid % keys)
    paid_at = time[paid] + delay
    columns = {"payment_id": row, "order_id": paid_order_ids, "amount": np.where(is_stray, 1, amount[paid]), "ts": paid_at}
    yield columns, paid_at + rng.integers(0, JITTER_MS, n)


def _bids(shape: Shape) -> tuple[Columns, np.ndarray]:
    """Ten bids per millisecond: half of them for the one hot auction in each hundred, the others for about the newest hundred auctions."""
    n, rng = shape.rows, np.random.default_rng(7)
    row = np.arange(n, dtype=np.int64)
    newest = row * 3 // 46
    is_hot = rng.random(n) < HOT_SHARE
    others = np.maximum(0, newest - HOT_AUCTIONS) + rng.integers(0, 110, n)
    auction = np.where(is_hot, newest // HOT_AUCTIONS * HOT_AUCTIONS, others)
    auction = (auction % shape.keys if shape.keys else auction) + 1_000
    price = np.round(np.power(10.0, rng.random(n) * 6) * 100).astype(np.int64)
    bidder, time = rng.integers(1_000, 1_000 + n // 46 + 1_000, n), START + row // 10
    channel = np.array(["Google", "Facebook", "Baidu", "Apple"])[rng.integers(0, 4, n)]
    return {"auction": auction, "bidder": bidder, "price": price, "channel": channel, "ts": time}, time + rng.integers(0, JITTER_MS, n)


def tables_of(data: Path) -> tuple[str, ...]:
    """The tables of a data folder."""
    return next(tables for tables in TABLES_OF.values() if (data / tables[-1]).exists())


def _write(columns: Mapping[str, np.ndarray], path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(dict(columns)), path, compression="snappy", row_group_size=500_000)


def read_by_arrival(data: Path, table: str) -> pa.Table:
    """A table in arrival order: its two files, with rows from each file in turn."""
    parts = [pq.read_table(data / table / f"part-{part}.parquet") for part in range(2)]
    order = np.empty(sum(p.num_rows for p in parts), np.int64)
    order[0::2], order[1::2] = np.arange(parts[0].num_rows), parts[0].num_rows + np.arange(parts[1].num_rows)
    return pa.concat_tables(parts).take(pa.array(order))


def batch_bounds(rows: int, batches: int, first: int = 0) -> list[int]:
    """The bounds of the micro-batches: `batches + 1` row numbers from 0 to `rows`."""
    if first:
        return [0, *(first + end for end in batch_bounds(rows - first, batches - 1))]
    return [rows * n // batches for n in range(batches + 1)]


def write_micro_batches(data: Path, target: Path, batches: int, first: int = 0) -> None:
    """Split the tables by arrival into files; the modification times of the files have the same order."""
    for table in tables_of(data):
        rows = read_by_arrival(data, table)
        (target / table).mkdir(parents=True)
        halves = 2 // len(tables_of(data))  # two files per micro-batch, so that each of two cores reads one
        for n, (begin, end) in enumerate(pairwise(batch_bounds(rows.num_rows, batches, first))):
            for half in range(halves):
                low, high = (begin + (end - begin) * h // halves for h in (half, half + 1))
                path = target / table / f"{n:05d}-{half}.parquet"
                pq.write_table(rows.slice(low, high - low), path, compression="snappy")
                os.utime(path, (START // 1_000 + n, START // 1_000 + n))


def micro_batches(data: Path, batches: int, first: int = 0) -> list[list[tuple[str, Path]]]:
    """The micro-batches, each as pairs (table, file)."""
    folder = batches_folder(data, batches, first)
    return [[(t, path) for t in tables_of(data) for path in sorted((folder / t).glob(f"{n:05d}-*.parquet"))] for n in range(batches)]


def true_pairs(data: Path, within_ms: int = WITHIN_MS) -> int:
    """The true number of pairs of the join, counted by numpy and cached with the data."""
    cache_file = data / "pairs.json"
    cache: dict[str, int] = json.loads(cache_file.read_text()) if cache_file.exists() else {}
    if str(within_ms) not in cache:
        cache[str(within_ms)] = _count_pairs(data, within_ms)
        cache_file.write_text(json.dumps(cache))
    return cache[str(within_ms)]


def _count_pairs(data: Path, within_ms: int) -> int:
    """Encode (key, time) as one number and sort the orders: the orders of a payment are between two positions."""
    key, time = _keys_and_times(data, "orders")
    paid_key, paid_time = _keys_and_times(data, "payments")
    time_range = max(time.max(), paid_time.max()) - START + within_ms + 1
    orders = np.sort(key * time_range + (time - START))
    paid_at = paid_time - START
    first = np.searchsorted(orders, paid_key * time_range + np.maximum(paid_at - within_ms, 0), "left")
    return int((np.searchsorted(orders, paid_key * time_range + paid_at, "right") - first).sum())


def _keys_and_times(data: Path, table: str) -> tuple[np.ndarray, np.ndarray]:
    columns = pq.read_table(data / table, columns=["order_id", "ts"])
    return columns["order_id"].to_numpy(), columns["ts"].to_numpy()


def true_hot_items(data: Path, window_ms: int, slide_ms: int, top: int, open_ms: int | None = None) -> dict[str, int]:
    """The true number of ranks in all windows and their checksum, computed by numpy and cached with the data.

    Args:
        data: the data's folder.
        window_ms: length of a window.
        slide_ms: time from the start of one window to the start of the next.
        top: number of ranks per window.
        open_ms: excludes windows that end less than this before the newest bid; None to include all.
    """
    cache_file, name = data / "hot_items.json", f"{window_ms}-{slide_ms}-{top}-{open_ms}"
    cache: dict[str, dict[str, int]] = json.loads(cache_file.read_text()) if cache_file.exists() else {}
    if name not in cache:
        cache[name] = _count_hot_items(data, window_ms, slide_ms, top, open_ms)
        cache_file.write_text(json.dumps(cache))
    return cache[name]


def _count_hot_items(data: Path, window_ms: int, slide_ms: int, top: int, open_ms: int | None) -> dict[str, int]:
    """Count bids by auction and pane, then sum the panes of each window."""
    bids = pq.read_table(data / "bids", columns=["auction", "ts"])
    auction, time = bids["auction"].to_numpy(), bids["ts"].to_numpy()
    pane, latest = time // slide_ms, time.max() + window_ms if open_ms is None else time.max() - open_ms
    panes = window_ms // slide_ms
    counts_by_pane = {p: np.unique(auction[pane == p], return_counts=True) for p in np.unique(pane)}
    count, total = 0, 0
    for last in range(int(pane.min()), min(int(pane.max()) + panes, int(latest // slide_ms))):
        parts = [counts_by_pane[p] for p in range(last - panes + 1, last + 1) if p in counts_by_pane]
        keys, positions = np.unique(np.concatenate([k for k, _ in parts]), return_inverse=True)
        counts = np.bincount(positions, weights=np.concatenate([n for _, n in parts])).astype(np.int64)
        best = np.lexsort((keys, -counts))[:top]
        end_times, ranks = np.full(len(best), (last + 1) * slide_ms), np.arange(1, len(best) + 1)
        count, total = count + len(best), total + checksum(end_times, ranks, keys[best], counts[best])
    return {"found": count, "checksum": total}


def true_top_bids(data: Path, top: int, *, ranked: bool) -> dict[str, int]:
    """The true number of the highest bids of each auction and their checksum, computed by numpy and cached with the data.

    The order of bids with equal prices does not change the checksum.
    """
    cache_file, name = data / "top_bids.json", f"{top}-{ranked}"
    cache: dict[str, dict[str, int]] = json.loads(cache_file.read_text()) if cache_file.exists() else {}
    if name not in cache:
        bids = pq.read_table(data / "bids", columns=["auction", "price"])
        auction, price = bids["auction"].to_numpy(), bids["price"].to_numpy()
        order = np.lexsort((-price, auction))
        auction, price = auction[order], price[order]
        first = np.flatnonzero(np.r_[True, auction[1:] != auction[:-1]])
        rank = np.arange(len(auction)) - np.repeat(first, np.diff(np.r_[first, len(auction)])) + 1
        best = rank <= top
        terms = (rank if ranked else np.ones_like(rank))[best] * (auction[best] * 7 + price[best])
        cache[name] = {"found": int(best.sum()), "checksum": int(terms.sum())}
        cache_file.write_text(json.dumps(cache))
    return cache[name]


def checksum(end_ms: np.ndarray, rank: np.ndarray, auction: np.ndarray, bids: np.ndarray) -> int:
    """A checksum of all ranks that does not depend on their order."""
    return int(((rank * 1_009 + (end_ms - START) // 1_000) * (auction * 7 + bids)).sum())
