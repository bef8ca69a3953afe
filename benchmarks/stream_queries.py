"""Steps of a join and of windows by closed ranges and by a streaming query, for several sizes of the lookback.

`python -m benchmarks.stream_queries FOLDER join|windows [ROWS...]` prints the median seconds of a step, with its commit, for each number of
rows that the operator looks back at, of each source. A step has 1,000 new rows of each source.
"""

import sys
import time
from pathlib import Path
from statistics import median

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from assets.contracts import BoundedOutOfOrderness, SourceContract
from assets.derived_asset import DerivedAsset, StreamsAs
from operators import IntervalJoin, Sliding, WindowedAggregate
from operators.contract import Operator
from operators.timing import DAY_MS
from platform_defs.engine import Engine
from platform_defs.engine.lake.tables import Lake
from platform_defs.settings import Settings
from platform_defs.spark.session import session

START, STEP_MS, NEW_ROWS, STEPS, WARM = 1_772_323_200_000, 60_000, 1_000, 12, 4
SIDES = ("l", "r")
WAYS: tuple[StreamsAs, ...] = ("ranges", "query")
OPERATORS: dict[str, Operator] = {
    "join": IntervalJoin(on="k", lower="-24 hours", upper="24 hours", how="full"),
    "windows": WindowedAggregate(by="zone", window=Sliding(size="24 hours", slide="1 hour"), aggregates={"n": "count(*)", "of": "max(k)"}),
}


def _engine(spark: SparkSession, folder: Path, operator: Operator) -> Engine:
    inputs = SIDES[: len(operator.inputs)]
    tables = {name: DerivedAsset(name=name, inputs=inputs, operator=operator, streams_as=name) for name in WAYS}
    schema, bound = "k BIGINT, zone BIGINT, at TIMESTAMP", BoundedOutOfOrderness("1 minute")
    contracts = [SourceContract(name=name, schema=schema, event_time="at", watermark=bound, future_skew=None) for name in inputs]
    folders = {name: str(folder / name) for name in inputs}
    return Engine(Lake(str(folder / "lake")), {c.name: c for c in contracts}, tables, lambda: spark, folders=folders)


def _land(spark: SparkSession, folder: Path, n: int, rows: int, first: int, length: int) -> None:
    """Land the nth file of each side: `rows` rows, evenly spread over `length` ms from `first` on (epoch ms); most rows have no match."""
    for side, name in enumerate(SIDES):
        at = F.timestamp_millis((F.lit(first) + F.col("id") * length / rows).cast("bigint"))
        k = F.xxhash64(F.col("id"), F.lit(n), F.lit(side)) % (rows * 20 + NEW_ROWS)
        columns = k.alias("k"), (F.col("id") % 100).alias("zone"), at.alias("at")
        spark.range(rows).select(*columns).coalesce(1).write.parquet(str(folder / "made" / f"{name}-{n}"))
        [made] = (folder / "made" / f"{name}-{n}").glob("*.parquet")
        (folder / name).mkdir(exist_ok=True)
        made.rename(folder / name / f"{n:03}.parquet")


def _steps(spark: SparkSession, folder: Path, operator: Operator, rows: int) -> dict[str, list[float]]:
    """The seconds of each step, by table."""
    engine, took = _engine(spark, folder, operator), {name: list[float]() for name in WAYS}
    with engine.queries.enable():
        _land(spark, folder, 0, rows, START, DAY_MS)
        for n in range(1, STEPS + 1):
            engine.ingest()
            for name, times in took.items():
                began = time.perf_counter()
                for _ in engine.steps(name, purpose="stream"):
                    pass
                times.append(time.perf_counter() - began)
            _land(spark, folder, n, NEW_ROWS, START + DAY_MS + (n - 1) * STEP_MS, STEP_MS)
    return took


def main(folder: Path, operator: Operator, sizes: list[int]) -> None:
    """Print the table."""
    spark = session(Settings(driver_memory="3g"))  # pyright: ignore[reportCallIssue]
    print("rows looked back at | step by ranges, s | step by a query, s | first step of a query, s")
    for rows in sizes:
        took = _steps(spark, folder / str(rows), operator, rows)
        middle = {name: median(times[WARM:]) for name, times in took.items()}
        print(f"{rows:,} | {middle['ranges']:.2f} | {middle['query']:.2f} | {took['query'][1]:.2f}", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), OPERATORS[sys.argv[2]], [int(size) for size in sys.argv[3:]] or [10_000, 300_000])
