"""The cost of a long ledger: to open it in a new process, to query it, and to append to it. Needs no Spark."""

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from platform_defs.engine.formats.files import File
from platform_defs.engine.lake.tables import Lake
from platform_defs.engine.ledger import watermarks
from platform_defs.engine.ledger.ledger import Ledger, next_row
from platform_defs.engine.ledger.rows import SCHEMA
from platform_defs.engine.ledger.summarize import summary_of

SOURCES = ("orders", "payments", "order_items", "clicks", "order_updates")
_START_MS, _INTERVAL_MS, _BATCHES_PER_COMMIT = 1_760_000_000_000, 60_000, 10_000


def make(root: Path, batches: int) -> None:
    """Write a ledger with one batch per minute; each batch has one file of each of five sources."""
    for first in range(1, batches + 1, _BATCHES_PER_COMMIT):
        seqs = [seq for seq in range(first, min(first + _BATCHES_PER_COMMIT, batches + 1)) for _ in SOURCES]
        write_deltalake(f"{root}/ledger", _rows(seqs), mode="append", description="Tidemark lake, format 2")
    DeltaTable(f"{root}/ledger").create_checkpoint()


def summarize(root: Path, upto: int) -> None:
    """Replace the batches up to one by a summary, as maintenance does."""
    ledger = Ledger(Lake(str(root)), lambda: _START_MS + _INTERVAL_MS * upto)
    ledger.summarize(ledger.version, summary_of(ledger, upto, {}))


def _rows(seqs: list[int]) -> pa.Table:
    times, sources = [_START_MS + _INTERVAL_MS * seq for seq in seqs], [*SOURCES] * (len(seqs) // len(SOURCES))
    offsets = [[_file(seq, source).offset] for seq, source in zip(seqs, sources, strict=True)]
    values: dict[str, Any] = {"seq": seqs, "kind": ["rows"] * len(seqs), "ingested_at": times, "source": sources, "offsets": offsets}
    values |= {"watermark": [t - 20_000 for t in times], "max_event_time": [t - 10_000 for t in times], "idle": [False] * len(seqs)}
    values |= {"first_event_time": [t - 80_000 for t in times], "last_event_time": [t - 10_000 for t in times]}
    values |= {name: [100] * len(seqs) for name in ("rows_read", "accepted")}
    columns: list[pa.Array] = []
    for field in SCHEMA:
        if field.name not in values:
            columns.append(pa.nulls(len(seqs), field.type) if field.type != pa.int64() else pa.array([0] * len(seqs), field.type))
        elif pa.types.is_timestamp(field.type):
            columns.append(pa.array(values[field.name], pa.timestamp("ms", "UTC")).cast(field.type))
        else:
            columns.append(pa.array(values[field.name], field.type))
    return pa.table(columns, schema=SCHEMA)


def _file(seq: int, source: str) -> File:
    folder = f"/data/landing/{source}"
    return File(_START_MS + _INTERVAL_MS * seq, f"file:{folder}/{seq // 1_440}/part-{seq:08}.jsonl", 4_096, source, folder=folder)


def measure(root: Path, batches: int) -> dict[str, float]:
    """Measure a ledger in this process, which must be new: CPU seconds, and the MiB by which opening it raises the peak memory."""
    ledger, costs = Ledger(Lake(str(root)), lambda: _START_MS + _INTERVAL_MS * (batches + 1)), dict[str, float]()
    before = _peak_mb()
    costs["open"] = _cpu(lambda: ledger.head)
    costs["open MB"] = round(_peak_mb() - before, 1)
    timelines: list[watermarks.Timeline] = []
    positions = range(len(SOURCES))

    def extend() -> None:
        previous = timelines or [watermarks.after_summary(ledger.history.summarized)] * (len(SOURCES) + 1)
        inputs = [watermarks.of_source(ledger.source(SOURCES[i]), ledger.head, previous[i]) for i in positions]
        timelines[:] = [*inputs, watermarks.of_operator(inputs, previous[-1])]

    costs["watermarks, all batches"] = _cpu(extend)
    files = [_file(seq, SOURCES[0]) for seq in range(batches - 32, batches + 32)]
    costs["look up 64 files, the first time"] = _cpu(lambda: ledger.file_records(SOURCES[0], files))
    costs["look up 64 files, again"] = _cpu(lambda: ledger.file_records(SOURCES[0], files))
    costs["totals of five sources"] = _cpu(lambda: [ledger.totals(source) for source in SOURCES])
    commits = [_cpu(lambda: _commit(ledger)) for _ in range(100)]
    costs["commit, median of 100"], costs["commit, slowest of 100"] = sorted(commits)[50], max(commits)
    costs["watermarks, new batches"] = _cpu(extend)
    return costs


def _commit(ledger: Ledger) -> None:
    seq, now = ledger.head + 1, ledger.now()
    ledger.commit([tuple(next_row(s, seq=seq, ingested_at=now) for s in ledger.newest_rows().values())])


def _cpu(action: Callable[[], object]) -> float:
    start = time.process_time()
    action()
    return round(time.process_time() - start, 4)


def _peak_mb() -> float:
    """The peak resident memory of this process, in MiB."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) / 1024


def run(work: Path, batches: int, kept: int | None = None) -> dict[str, float]:
    """Write the ledger if it does not exist, and measure it in a new process.

    Args:
        work: the folder for the ledger.
        batches: the number of batches.
        kept: how many of the newest batches are kept (the others are summarized); None for a ledger without a summary.
    """
    root = work / (f"ledger-age-{batches}" if kept is None else f"ledger-age-{batches}-kept-{kept}")
    if not (root / "ledger").exists():
        make(root, batches)
        if kept is not None:
            summarize(root, batches - kept)
    done = subprocess.run([sys.executable, "-m", __name__, str(root), str(batches)], stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout)


if __name__ == "__main__":
    print(json.dumps(measure(Path(sys.argv[1]), int(sys.argv[2]))))
