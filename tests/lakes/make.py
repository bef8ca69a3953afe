"""Write the lake that later versions are tested with: `python -m tests.lakes.make FILE.tar.gz`, in a checkout of the version.

The lake has tables of every operator and state: a join, corrected windows, sessions with late rows, rankings, and upserted tables,
one of which reads another.
"""

import sys
import tarfile
import tempfile
from pathlib import Path

from assets.contracts import DerivedAsset
from operators import Aggregate, Deduplicate, Session, Sliding, TopK, TopN, Tumbling, WindowedAggregate, WindowJoin
from platform_defs.engine import Engine
from platform_defs.engine.lake.tables import Lake
from platform_defs.settings import Settings
from platform_defs.spark.session import session
from tests.support.clock import Clock
from tests.support.small_sources import DAY, MINUTE, Event, join, land, source

SOURCES = [source("l", unique_key=("k", "v")), source("r")]
_LENIENT = {"by": "k", "aggregates": {"n": "count(*)"}, "allowed_lateness": "2 minutes"}
ASSETS = [
    join(),
    DerivedAsset(name="counts", inputs=("l",), operator=WindowedAggregate(window=Sliding(size="2 minutes", slide="1 minute"), **_LENIENT)),
    DerivedAsset(name="top", inputs=("counts",), operator=TopK(k=1, order_by=("n DESC", "k"))),
    DerivedAsset(name="visits", inputs=("l",), operator=WindowedAggregate(window=Session(gap="30 seconds"), **_LENIENT)),
    DerivedAsset(name="firsts", inputs=("r",), operator=Deduplicate(by="k", keep="first", window=Tumbling(size=5 * MINUTE))),
    DerivedAsset(name="beside", inputs=("l", "r"), operator=WindowJoin(on="k", window=Tumbling(size="1 hour"), how="full")),
    DerivedAsset(name="sums", inputs=("l",), operator=Aggregate(by="k", aggregates={"n": "count(*)", "total": "sum(v)"})),
    DerivedAsset(name="best", inputs=("sums",), operator=TopN(order_by="n DESC", rank_end=1, change="how", unique_key="k")),
]
BATCHES = [
    {
        "l": [Event("a", 1, 0), Event("b", 2, 3 * MINUTE), Event(None, 3, 3 * MINUTE)],
        "r": [Event("a", 1, MINUTE), Event("b", 1, 3 * MINUTE)],
    },
    {"l": [Event("b", 4, 2 * MINUTE - 1), Event("b", 5, 2 * MINUTE - 2), Event("a", 6, 20 * MINUTE)], "r": [Event("a", 2, 20 * MINUTE)]},
    {"l": [Event("a", 7, 1), Event("b", 2, 3 * MINUTE), Event("c", 8, DAY)], "r": [Event("c", 9, DAY)]},
]
LATER = {"l": [Event("c", 10, DAY - 2 * MINUTE), Event("d", 11, 2 * DAY)], "r": [Event("d", 12, 2 * DAY)]}


def engine(root: Path) -> Engine:
    """An engine on the lake `root/lake`; its input files are in `root/landing`."""
    folders = {s.name: str(root / "landing" / s.name) for s in SOURCES}
    spark = lambda: session(Settings(driver_memory="2g", shuffle_partitions=2))  # noqa: E731 - a resource, made on first use
    return Engine(Lake(str(root / "lake")), {s.name: s for s in SOURCES}, {a.name: a for a in ASSETS}, spark, Clock(), folders=folders)


def main(file: Path) -> None:
    """Write the lake."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        made = engine(root)
        for part, batch in enumerate(BATCHES):
            for name, events in batch.items():
                land(made, name, f"{part}.jsonl", [*[e.line for e in events], "not JSON"])
            made.ingest()
            for name in made.assets:
                made.advance(name)
        with tarfile.open(file, "w:gz") as packed:
            packed.add(root, ".", filter=_of_the_lake)


def _of_the_lake(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """A tar member without its owner; None for files that belong to the machine: locks, Spark's checkpoint and checksums."""
    if member.name.endswith(".crc") or {"_locks", "_checkpoints"} & {*Path(member.name).parts}:
        return None
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


if __name__ == "__main__":
    main(Path(sys.argv[1]))
