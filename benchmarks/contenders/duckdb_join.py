"""DuckDB: the same join over the same Parquet files, written to Parquet, or read as Arrow and discarded."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import duckdb
import pyarrow as pa  # DuckDB imports it on first use; imported here, it is not timed

from benchmarks.contenders import Job


def run(job: Job) -> dict[str, Any]:
    with connected(job) as connection:
        start = time.perf_counter()
        found = _into_parquet(connection, job) if job.options["sink"] == "parquet" else _count_as_arrow(connection, job)
        return {"seconds": round(time.perf_counter() - start, 3), "found": found}


@contextmanager
def connected(job: Job) -> Iterator[duckdb.DuckDBPyConnection]:
    """A DuckDB connection with the job's memory limit and cores."""
    with duckdb.connect() as connection:
        connection.execute(f"SET threads = {job.cores}")
        connection.execute(f"SET memory_limit = '{job.heap.rstrip('gG')}GiB'")
        connection.execute(f"SET temp_directory = '{job.scratch}'")
        yield connection


def _query(job: Job) -> str:
    orders, payments = job.data / "orders", job.data / "payments"
    return f"""
        SELECT o.order_id, o.customer_id, p.payment_id, epoch_ms(o.ts) AS ordered_at, epoch_ms(p.ts) AS paid_at,
               o.amount AS order_amount, p.amount AS payment_amount
        FROM read_parquet('{orders}/*.parquet') o JOIN read_parquet('{payments}/*.parquet') p
          ON o.order_id = p.order_id AND p.ts BETWEEN o.ts AND o.ts + {job.within_ms}"""


def _into_parquet(connection: duckdb.DuckDBPyConnection, job: Job) -> int:
    written = connection.execute(f"COPY ({_query(job)}) TO '{job.scratch / 'pairs.parquet'}' (FORMAT parquet)").fetchone()
    return int(written[0]) if written else 0


def _count_as_arrow(connection: duckdb.DuckDBPyConnection, job: Job) -> int:
    reader: pa.RecordBatchReader = connection.sql(_query(job)).to_arrow_reader(100_000)
    return sum(batch.num_rows for batch in reader)
