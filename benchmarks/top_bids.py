"""Top bids: the ten highest bids of each auction, kept up to date, with or without ranks."""

from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from assets.contracts import DerivedAsset
from benchmarks import bids
from benchmarks.contenders import TOP, Job
from benchmarks.workload import Workload
from operators import TopN


def with_rank(job: Job) -> bool:
    """Whether results have the column `rank`."""
    return bool(job.options.get("with_rank", True))


def asset(job: Job) -> DerivedAsset:
    """The leaderboard of bids."""
    top = TopN(by="auction", order_by="price DESC", rank_end=TOP, with_rank=with_rank(job))
    return DerivedAsset(name="top_bids", inputs=("bids",), operator=top)


def outcome(rows: DataFrame) -> dict[str, Any]:
    """The number of bids in the leaderboard and their checksum, as in `benchmarks.data.true_top_bids`."""
    rank = F.col("rank") if "rank" in rows.columns else F.lit(1)
    [(count, checksum)] = rows.agg(F.count("*"), F.sum(rank * (F.col("auction") * 7 + F.col("price"))).cast("bigint")).collect()
    return {"found": count, "checksum": checksum}


WORKLOAD = Workload(sources=bids.sources, asset=asset, outcome=outcome)
