"""DuckDB: the ten highest bids of each auction over the same Parquet files, into Parquet."""

import time
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from benchmarks.contenders import TOP, Job
from benchmarks.contenders.duckdb_join import connected


def run(job: Job) -> dict[str, Any]:
    target, with_rank = job.scratch / "top_bids.parquet", job.options.get("with_rank", True)
    with connected(job) as connection:
        start = time.perf_counter()
        connection.execute(f"""
            COPY (
              SELECT * {"" if with_rank else "EXCLUDE rank"} FROM (
                SELECT *, row_number() OVER (PARTITION BY auction ORDER BY price DESC) AS rank
                FROM read_parquet('{job.data / "bids"}/*.parquet') QUALIFY rank <= {TOP})
            ) TO '{target}' (FORMAT parquet)""")
        seconds = round(time.perf_counter() - start, 3)
    table = pq.read_table(target)
    ranks = table["rank"].to_numpy() if with_rank else np.ones(table.num_rows, np.int64)
    checksum = int((ranks * (table["auction"].to_numpy() * 7 + table["price"].to_numpy())).sum())
    return {"seconds": seconds, "found": table.num_rows, "checksum": checksum}
