"""The contenders. Each is a module with `run(job) -> outcome`, and runs in a separate process.

An outcome is a dict with `seconds` (the job alone, without start-up), `found` (the number of results) if results were counted, and
`checksum` if the contender stores its results and their number alone proves little.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

WITHIN_MS = 600_000
WINDOW_MS, SLIDE_MS, TOP = 10_000, 2_000, 10
"""The windows of hot items, and the number of rows that a ranking keeps."""
OUTCOME_PREFIX = "outcome: "
"""The prefix of a contender's last line; the rest of the line is a JSON object."""


@dataclass(frozen=True)
class Job:
    """The instructions for a contender.

    Args:
        data: the folder of the input, written by `benchmarks.data.prepare`.
        scratch: an empty folder for the contender's files.
        rows: rows of each table.
        batches: number of micro-batches.
        first: rows of each table in the first micro-batch; 0 for as many as in the others.
        within_ms: the join's interval: a payment is at most this much later than its order.
        heap: the JVM's heap, or DuckDB's memory limit.
        cores: number of cores to use.
        flink: the folder of the Flink benchmark.
        workload: the computation: the name of a module of `benchmarks` with a `WORKLOAD`.
        options: options of the contender.
    """

    data: Path
    scratch: Path
    rows: int
    batches: int = 10
    first: int = 0
    within_ms: int = WITHIN_MS
    heap: str = "4g"
    cores: int = 2
    flink: Path | None = None
    workload: str = "payments"
    options: Mapping[str, Any] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """The job as a JSON object, for the command line of the contender's process."""
        return {k: str(v) if isinstance(v, Path) else v for k, v in vars(self).items()}

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> "Job":
        """The job from the result of `as_json`."""
        paths = {k: Path(fields[k]) for k in ("data", "scratch", "flink") if fields.get(k)}
        return cls(**{**fields, **paths})


@dataclass(frozen=True, kw_only=True)
class Contender:
    """A contender, one line of a table in the report.

    Args:
        name: its name on the command line and in the recorded results.
        title: its name in the report.
        module: its module in `benchmarks.contenders`.
        options: options for the module.
        slow: whether it runs only once, and at smaller sizes if the workload has them.
        optional: whether it runs only if it is named on the command line.
        workload: its workload, if the data does not determine it.
    """

    name: str
    title: str
    module: str
    options: Mapping[str, Any] = field(default_factory=dict)
    slow: bool = False
    optional: bool = False
    workload: str = ""


JOIN = (
    Contender(name="catch_up", title="Tidemark, one catch-up step, into Delta", module="catch_up"),
    Contender(name="ten", title="Tidemark, ten micro-batches ingested and advanced, into Delta", module="micro_batches"),
    Contender(name="flink", title="Flink DataStream, heap state, no sink", module="flink", options={"state": "hashmap"}),
    Contender(
        name="flink_rocksdb",
        title="Flink DataStream, RocksDB, checkpoints, files",
        module="flink",
        options={"state": "rocksdb"},
        slow=True,
        optional=True,
    ),
    Contender(name="spark_batch", title="Spark, hand-written batch query, into Delta", module="spark_batch", options={"sink": "delta"}),
    Contender(name="spark_batch_noop", title="Spark, hand-written batch query, no sink", module="spark_batch", options={"sink": "noop"}),
    Contender(name="duckdb", title="DuckDB, into Parquet", module="duckdb_join", options={"sink": "parquet"}),
    Contender(name="duckdb_nothing", title="DuckDB, no sink", module="duckdb_join", options={"sink": "nothing"}),
    Contender(name="spark_stream", title="Spark stream-stream join, heap state, no sink", module="spark_stream", slow=True),
    Contender(
        name="spark_stream_rocksdb",
        title="Spark stream-stream join, RocksDB, no sink",
        module="spark_stream",
        options={"state": "rocksdb"},
        slow=True,
    ),
)

HOT_ITEMS = (
    Contender(name="catch_up", title="Tidemark, one catch-up step, into Delta", module="catch_up"),
    Contender(name="ten", title="Tidemark, ten micro-batches ingested and advanced, into Delta", module="micro_batches"),
    Contender(name="flink", title="Flink DataStream, heap state, no sink", module="flink", options={"state": "hashmap"}),
    Contender(name="spark_batch", title="Spark, hand-written batch query, into Delta", module="bids_in_spark"),
    Contender(name="duckdb", title="DuckDB, into Parquet", module="bids_in_duckdb"),
    Contender(
        name="spark_stream",
        title="Spark's streaming windows, heap state, no sink",
        module="bids_in_spark",
        options={"state": "heap", "open_ms": 5_000},
    ),
    Contender(
        name="spark_stream_rocksdb",
        title="Spark's streaming windows, RocksDB, no sink",
        module="bids_in_spark",
        options={"state": "rocksdb", "open_ms": 5_000},
    ),
)
"""The contenders of hot items."""

_TOP_BIDS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "catch_up": ("Tidemark, one catch-up step, into Delta", "catch_up", {}),
    "ten": ("Tidemark, ten micro-batches ingested and advanced, into Delta", "micro_batches", {}),
    "flink": ("Flink SQL, heap state, no sink", "flink", {"state": "hashmap"}),
    "flink_counted": ("Flink SQL, heap state, every change counted", "flink", {"state": "hashmap", "sink": "count"}),
    "duckdb": ("DuckDB, into Parquet", "top_bids_in_duckdb", {}),
}
TOP_BIDS = tuple(
    Contender(
        name=name if with_rank else f"{name}_norn",
        title=f"{title}, {'with ranks' if with_rank else 'without ranks'}",
        module=module,
        options={**options, "with_rank": with_rank},
        slow=name == "flink_counted",
        workload="top_bids",
    )
    for with_rank in (True, False)
    for name, (title, module, options) in _TOP_BIDS.items()
)
"""The contenders of top bids, with and without ranks. Flink SQL counts its output only with a counting sink, which is not its best case."""
