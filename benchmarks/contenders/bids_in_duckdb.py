"""DuckDB: hot items, from the Parquet files that the other contenders read, into a Parquet file.

Bids are counted by pane (a slide of the window, 2 s), and the panes of each window are summed.
"""

import time
from typing import Any

import duckdb
import pyarrow.parquet as pq

from benchmarks.contenders import SLIDE_MS, TOP, WINDOW_MS, Job
from benchmarks.contenders.duckdb_join import connected
from benchmarks.data import checksum


def run(job: Job) -> dict[str, Any]:
    target = job.scratch / "hot_items.parquet"
    with connected(job) as connection:
        start = time.perf_counter()
        _write(connection, job, str(target))
        seconds = round(time.perf_counter() - start, 3)
    table = pq.read_table(target)
    columns = [table[name].to_numpy() for name in ("window_end", "rank", "auction", "bids")]
    return {"seconds": seconds, "found": table.num_rows, "checksum": checksum(*columns)}


def _write(connection: duckdb.DuckDBPyConnection, job: Job, target: str) -> None:
    connection.execute(f"""
        COPY (
          WITH panes AS (SELECT auction, ts - ts % {SLIDE_MS} AS pane, count(*) AS pane_bids
                         FROM read_parquet('{job.data / "bids"}/*.parquet') GROUP BY ALL),
               counted AS (SELECT auction, pane + {SLIDE_MS} + slides.n * {SLIDE_MS} AS window_end, sum(pane_bids)::BIGINT AS bids
                           FROM panes, (SELECT unnest(range({WINDOW_MS // SLIDE_MS})) AS n) AS slides GROUP BY ALL)
          SELECT window_end, row_number() OVER (PARTITION BY window_end ORDER BY bids DESC, auction) AS rank, auction, bids
          FROM counted QUALIFY rank <= {TOP}
        ) TO '{target}' (FORMAT parquet)""")
