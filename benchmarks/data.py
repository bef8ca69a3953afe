"""The input: orders and payments as Parquet, made once, in whole and cut into equal micro-batches by arrival.

Row for row what the Flink peer's own generator makes with the same size: two files a table, row i of the arrival order in file
i % 2, out of order by less than 3 s. `keys` and `step_ms` bend it for the growth curves: fewer keys, a longer time.
"""

import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.contenders import WITHIN_MS

START = 1_700_000_000_000
JITTER_MS = 3_000
LONGEST_DELAY_MS = 720_000
TABLES = ("orders", "payments")

Columns = dict[str, np.ndarray]


@dataclass(frozen=True)
class Shape:
    """What data to make.

    Args:
        rows: rows of each table.
        keys: how many orders there are to tell apart; 0 for one a row. Order i has the key i % keys.
        step_ms: event time from one order to the next.
    """

    rows: int
    keys: int = 0
    step_ms: int = 1

    @property
    def name(self) -> str:
        """The folder's name."""
        return f"{self.rows}-{self.keys or self.rows}-{self.step_ms}"


def prepare(shape: Shape, folder: Path, batches: int = 0, first: int = 0) -> Path:
    """Make the data, and its micro-batches, unless they are there.

    Args:
        shape: what to make.
        folder: where the data of all shapes lies.
        batches: how many micro-batches to cut it into; 0 for none.
        first: rows of each table in the first of them; 0 for as many as in the others.

    Returns:
        The data's folder: `orders/`, `payments/`, and a folder for each way it was cut.
    """
    place = folder / shape.name
    if not (place / "payments").exists():
        _whole(place, lambda scratch: _make(shape, scratch))
    target = batches_folder(place, batches, first)
    if batches and not target.exists():
        _whole(target, lambda scratch: cut(place, scratch, batches, first))
    return place


def batches_folder(place: Path, batches: int, first: int = 0) -> Path:
    """Where the micro-batches of one cut lie, a folder a table."""
    return place / f"batches-{batches}-{first}"


def _whole(place: Path, make: Callable[[Path], None]) -> None:
    """Make a folder under another name first, so that one cut short is never taken for a whole one."""
    scratch = place.with_name(f".{place.name}")
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    make(scratch)
    shutil.rmtree(place, ignore_errors=True)
    scratch.rename(place)


def _make(shape: Shape, place: Path) -> None:
    for table, (columns, arrival) in zip(TABLES, _tables(shape), strict=True):
        order = np.argsort(arrival, kind="stable")
        for part in range(2):
            _write({name: values[order[part::2]] for name, values in columns.items()}, place / table / f"part-{part}.parquet")


def _tables(shape: Shape) -> Iterator[tuple[Columns, np.ndarray]]:
    """Both tables with each row's arrival. The draws are the peer's, in its order: another one would be other data."""
    n, keys, draw = shape.rows, shape.keys or shape.rows, np.random.default_rng(42)
    row = np.arange(n, dtype=np.int64)
    time, amount = START + row * shape.step_ms, draw.integers(100, 100_000, n)
    customer = draw.integers(0, max(1, n // 50), n)
    yield {"order_id": row % keys, "customer_id": customer, "amount": amount, "ts": time}, time + draw.integers(0, JITTER_MS, n)
    paid, delay = draw.integers(0, n, n), draw.integers(0, LONGEST_DELAY_MS, n)
    stray = draw.random(n) < 0.1
    named = np.where(stray, n + paid, paid % keys)
    paid_at = time[paid] + delay
    columns = {"payment_id": row, "order_id": named, "amount": np.where(stray, 1, amount[paid]), "ts": paid_at}
    yield columns, paid_at + draw.integers(0, JITTER_MS, n)


def _write(columns: Mapping[str, np.ndarray], path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(dict(columns)), path, compression="snappy", row_group_size=500_000)


def by_arrival(place: Path, table: str) -> pa.Table:
    """A table in arrival order: its two files, a row of each in turn."""
    parts = [pq.read_table(place / table / f"part-{part}.parquet") for part in range(2)]
    order = np.empty(sum(p.num_rows for p in parts), np.int64)
    order[0::2], order[1::2] = np.arange(parts[0].num_rows), parts[0].num_rows + np.arange(parts[1].num_rows)
    return pa.concat_tables(parts).take(pa.array(order))


def ends(rows: int, batches: int, first: int = 0) -> list[int]:
    """Where the micro-batches begin and end: `batches + 1` places, the first 0, the last `rows`."""
    if first:
        return [0, *(first + end for end in ends(rows - first, batches - 1))]
    return [rows * n // batches for n in range(batches + 1)]


def cut(place: Path, target: Path, batches: int, first: int = 0) -> None:
    """Cut both tables, by arrival, into files whose modification times tell their order."""
    for table in TABLES:
        rows = by_arrival(place, table)
        places = ends(rows.num_rows, batches, first)
        (target / table).mkdir(parents=True)
        for n, (begin, end) in enumerate(pairwise(places)):
            path = target / table / f"{n:05d}.parquet"
            pq.write_table(rows.slice(begin, end - begin), path, compression="snappy")
            os.utime(path, (START // 1_000 + n, START // 1_000 + n))


def micro_batches(place: Path, batches: int, first: int = 0) -> list[list[tuple[str, Path]]]:
    """The micro-batches: (table, file) of each table's."""
    folder = batches_folder(place, batches, first)
    return [[(table, folder / table / f"{n:05d}.parquet") for table in TABLES] for n in range(batches)]


def true_pairs(place: Path, within_ms: int = WITHIN_MS) -> int:
    """How many pairs a join within the time must find, counted by numpy; kept beside the data."""
    kept = place / "pairs.json"
    known: dict[str, int] = json.loads(kept.read_text()) if kept.exists() else {}
    if str(within_ms) not in known:
        known[str(within_ms)] = _count_pairs(place, within_ms)
        kept.write_text(json.dumps(known))
    return known[str(within_ms)]


def _count_pairs(place: Path, within_ms: int) -> int:
    """Each (key, time) as one number, orders sorted: a payment's orders lie between two places."""
    key, time = _columns(place, "orders")
    paid_key, paid_time = _columns(place, "payments")
    room = max(time.max(), paid_time.max()) - START + within_ms + 1
    orders = np.sort(key * room + (time - START))
    paid_at = paid_time - START
    first = np.searchsorted(orders, paid_key * room + np.maximum(paid_at - within_ms, 0), "left")
    return int((np.searchsorted(orders, paid_key * room + paid_at, "right") - first).sum())


def _columns(place: Path, table: str) -> tuple[np.ndarray, np.ndarray]:
    read = pq.read_table(place / table, columns=["order_id", "ts"])
    return read["order_id"].to_numpy(), read["ts"].to_numpy()
