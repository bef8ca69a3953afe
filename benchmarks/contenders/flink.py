"""Flink: the same computation over the same Parquet files, with the class path and flags of the Flink benchmark's scripts."""

import re
import subprocess
from pathlib import Path
from typing import Any

from benchmarks.contenders import Job
from benchmarks.data import tables_of
from platform_defs.setup.java import find_java

COMMAND = """
. "$FLINK/bench_env.sh"
exec java -XX:+UseParallelGC -Xms$HEAP -Xmx$HEAP $OPENS $CHECKPOINT -Dlog4j.configurationFile="$HERE/java/log4j2.properties" \
  -cp "$HERE/java/bclasses:$BCP" Bench "$WORKLOAD" "$DATA" "$SINK" "$STATE" "$ROWS" "$OUT" "$CORES"
"""
"""The Flink benchmark's `bench_env.sh` sets HERE (its folder), BCP (its class path) and OPENS (flags of Java); `environment` the others."""

WORKLOADS = {"payments": "interval_join", "bids": "hot_items", "top_bids": "topn", "top_bids_norn": "topn_norn"}
"""The Flink benchmark's names of our workloads. One with `_norn` (no row number) returns no ranks."""


class FlinkOutputError(ValueError):
    """The output of the Flink benchmark has no result."""

    @classmethod
    def without_result(cls) -> "FlinkOutputError":
        """No line starts with `flink `."""
        return cls("the Flink benchmark printed no line that starts with 'flink '")


def is_set_up(folder: Path | None) -> bool:
    """Whether the Flink benchmark is compiled."""
    return folder is not None and (folder / "java" / "bclasses").is_dir()


def run(job: Job) -> dict[str, Any]:
    completed = subprocess.run(
        ["bash", "-ec", COMMAND], env=environment(job, find_java()), cwd=job.scratch, stdout=subprocess.PIPE, text=True, check=True
    )
    print(completed.stdout)
    return outcome(completed.stdout)


def environment(job: Job, java_home: str) -> dict[str, str]:
    """The environment of the command.

    Heap state, without checkpoints and without a sink, is Flink's best case. In production RocksDB, checkpoints and a sink are used.
    """
    state = job.options["state"]
    is_production = state == "rocksdb"
    return {
        "PATH": f"{java_home}/bin:/usr/local/bin:/usr/bin:/bin",
        "FLINK": str(job.flink),
        "HEAP": job.heap,
        "DATA": str(job.data.absolute()),
        "STATE": state,
        "SINK": job.options.get("sink", "files" if is_production else "blackhole"),
        "CHECKPOINT": "-Dckpt=10s" if is_production else "",
        "WORKLOAD": WORKLOADS[job.workload + ("" if job.options.get("with_rank", True) else "_norn")],
        "ROWS": str(len(tables_of(job.data)) * job.rows),
        "OUT": str((job.scratch / "out").absolute()),
        "CORES": str(job.cores),
    }


def outcome(printed: str) -> dict[str, Any]:
    """The values in the line that the Flink benchmark prints. Without a sink, its SQL workloads do not count results.

    Raises:
        FlinkOutputError: it printed no such line.
    """
    line = next((line for line in printed.splitlines() if line.startswith("flink ")), None)
    if line is None:
        raise FlinkOutputError.without_result()
    fields = dict(re.findall(r"(\w+)=(\S+)", line))
    return {"seconds": float(fields["seconds"]), **({"found": int(fields["out"])} if fields["out"] != "?" else {})}
