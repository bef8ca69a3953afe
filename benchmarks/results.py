"""The recorded results: one JSON line per run, so that an interrupted benchmark can resume."""

import json
import platform
import subprocess
from collections.abc import Iterable, Mapping
from importlib.metadata import distributions
from pathlib import Path
from statistics import median
from typing import Any

import psutil

from platform_defs.settings import PROJECT
from platform_defs.setup.java import find_java, java_version

Record = Mapping[str, Any]
PACKAGES = ("pyspark", "delta-spark", "deltalake", "duckdb", "pyarrow")


def read(path: Path) -> list[Record]:
    """The newest record of each cell."""
    if not path.exists():
        return []
    lines = [_with_outcome(json.loads(line)) for line in path.read_text().splitlines() if line.strip()]
    return list({json.dumps(line["cell"], sort_keys=True): line for line in lines}.values())


def _with_outcome(record: dict[str, Any]) -> Record:
    """A record with its outcome under the key `outcome`, which earlier versions called `told`."""
    return {"outcome" if key == "told" else key: value for key, value in record.items()}


def append(path: Path, record: Record) -> None:
    """Append a record."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as out:
        out.write(json.dumps(record) + "\n")


def machine() -> dict[str, Any]:
    """The machine and the software versions of a run."""
    return {
        "cpu": _processor(),
        "cores": psutil.cpu_count(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "java": str(java_version(Path(find_java()))),
        "versions": {d.name: d.version for d in distributions() if d.name in PACKAGES},
        "commit": _commit(),
    }


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _commit() -> str:
    command = ["git", "-C", str(PROJECT), "describe", "--always", "--dirty"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip() or "unknown"


def successful(records: Iterable[Record], kind: str, **cell: Any) -> list[Record]:
    """The successful records of a kind whose cells have the given values."""
    return [r for r in records if r["kind"] == kind and "failed" not in r and all(r["cell"].get(k) == v for k, v in cell.items())]


def medians(records: Iterable[Record], kind: str, contender: str, *path: str) -> dict[int, float]:
    """The median of a figure by the number of rows per table; `path` locates the figure in a record."""
    by_rows: dict[int, list[float]] = {}
    for record in successful(records, kind, contender=contender):
        value: Any = record
        for key in path:
            value = value[key]
        by_rows.setdefault(record["cell"]["rows"], []).append(value)
    return {rows: median(values) for rows, values in sorted(by_rows.items())}


def slope(seconds: Mapping[int, float], tables: int = 2) -> float | None:
    """Seconds per additional million rows read, of all tables together, between the smallest size and the largest.

    Args:
        seconds: seconds by the number of rows per table.
        tables: number of tables that are read.

    Returns:
        The slope; None if there are fewer than two sizes.
    """
    if len(seconds) < 2:
        return None
    low, high = min(seconds), max(seconds)
    return (seconds[high] - seconds[low]) / (tables * (high - low) / 1e6)
