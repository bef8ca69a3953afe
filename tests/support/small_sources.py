"""Small sources and joins, and helpers that land files, replay rows and read tables."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from assets.contracts import BoundedOutOfOrderness, DerivedAsset, SourceContract
from operators import IntervalJoin
from operators.engine_columns import ARRIVAL
from platform_defs.engine import Engine
from platform_defs.engine.accounting.day_accounts import DayAccount
from platform_defs.engine.formats.reader import MALFORMED, PATH, RAW
from tests.support.plain_replay import MOST_ROWS_OF_BATCH, Row, is_plain, plain_replay

_RAW_ROW = pa.schema({"k": pa.string(), "v": pa.string(), "ts": pa.string(), "_batch": pa.int32(), ARRIVAL: pa.int64()})
START = 1_772_323_200_000  # 2026-03-01 00:00:00 UTC
MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000
ROW = StructType().add("k", "string").add("v", "integer").add("ts", "timestamp")


@dataclass(frozen=True)
class Event:
    """A row of a small source: its key, its value and its time in ms after START."""

    k: str | None
    v: int
    at: int

    @property
    def line(self) -> str:
        """The row as a JSON line."""
        return json.dumps({"k": self.k, "v": self.v, "ts": iso(START + self.at)})


def iso(epoch_ms: int) -> str:
    """An instant as ISO text in UTC."""
    from assets.days import moment

    return moment(epoch_ms).isoformat(timespec="milliseconds")


def source(name: str, **changes: Any) -> SourceContract:
    """A small source, whose watermark is one minute behind its newest row."""
    return SourceContract(
        **{"name": name, "schema": ROW, "event_time": "ts", "watermark": BoundedOutOfOrderness("1 minute"), "future_skew": None, **changes}
    )


def join(name: str = "pairs", inputs: tuple[str, str] = ("l", "r"), **changes: Any) -> DerivedAsset:
    """An interval join of two small sources."""
    operator = IntervalJoin(**{"on": "k", "lower": "-5 minutes", "upper": "10 minutes", "how": "full", **changes})
    return DerivedAsset(name=name, inputs=inputs, operator=operator)


def land(engine: Engine, name: str, file: str, lines: Iterable[str]) -> Path:
    """Write a file into a source's folder, under a hidden name until it is complete."""
    folder = Path(engine.folders[name])
    folder.mkdir(parents=True, exist_ok=True)
    hidden, path = folder / f".{file}", folder / file
    hidden.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return hidden.rename(path)


def replay(engine: Engine, batches: Sequence[Mapping[str, Sequence[Event]]]) -> None:
    """Replay batches. After each, the watermark of each source is one minute behind its newest row."""
    newest = {n: s.max_event_time for n, s in engine.ledger.newest_rows().items()}
    rows: dict[str, list[Row]] = {name: [] for name in engine.sources}
    marks: list[Mapping[str, int]] = []
    for batch in batches:
        for name, events in batch.items():
            known = newest.get(name)
            newest[name] = max([START + e.at for e in events] + ([] if known is None else [known]), default=None)
            rows[name] += [(e.k, e.v, START + e.at, len(marks), n) for n, e in enumerate(events)]
        marks += [{}, {n: t - MINUTE - 1 for n, t in newest.items() if t is not None}]
    if all(is_plain(engine.sources[name]) for name, of_source in rows.items() if of_source):
        plain_replay(engine, rows, marks)
    else:
        replay_as_text(engine, rows, marks)


def replay_as_text(engine: Engine, rows: Mapping[str, Sequence[Row]], marks: Sequence[Mapping[str, int]]) -> None:
    """Replay rows by the engine, which parses and validates them."""
    text = {name: [(k, str(v), iso(at), *where) for k, v, at, *where in of_source] for name, of_source in rows.items() if of_source}
    engine.ingestion.replay({name: raw_rows(engine.spark, of_source) for name, of_source in text.items()}, marks)


def raw_rows(spark: SparkSession, rows: Sequence[tuple[Any, ...]]) -> DataFrame:
    """Rows to be replayed, given as k, v, event time (text), batch index and number within the batch."""
    columns = zip(*rows, strict=True) if rows else [()] * len(_RAW_ROW)
    frame = spark.createDataFrame(pa.table([pa.array(c, f.type) for c, f in zip(columns, _RAW_ROW, strict=True)], schema=_RAW_ROW))
    unique = (F.col("_batch") * MOST_ROWS_OF_BATCH + F.col(ARRIVAL)).cast("bigint").alias(ARRIVAL)
    nothing = F.lit(None).cast("string")
    return frame.select("k", "v", "ts", "_batch", unique, F.lit("").alias(RAW), F.lit("").alias(PATH), nothing.alias(MALFORMED))


def rows_of(frame: DataFrame, *columns: str) -> list[tuple[Any, ...]]:
    """The rows of a frame, sorted for comparison."""
    return sorted((tuple(r) for r in frame.select(*columns or frame.columns).collect()), key=repr)


def law_violations(engine: Engine, asset: str = "pairs") -> set[tuple[str, str]]:
    """The sides and days on which the conservation law does not hold."""
    return {(a.side, str(a.day)) for a in engine.accounts.days(asset) if not a.holds}


def totals(engine: Engine, asset: str = "pairs") -> dict[tuple[str, str], int]:
    """The terms of the account by side."""
    return totals_of(engine.accounts.days(asset))


def correct_totals(engine: Engine, asset: str = "pairs") -> dict[tuple[str, str], int]:
    """The terms of the account by side, if the conservation law holds on every day."""
    days = engine.accounts.days(asset)
    assert not [a for a in days if not a.holds]
    return totals_of(days)


def totals_of(days: Iterable[DayAccount]) -> dict[tuple[str, str], int]:
    """The terms of an account by side."""
    found: dict[tuple[str, str], int] = {}
    for a in days:
        for term in ("accepted", "matched", "unmatched", "pending", "late"):
            found[a.side, term] = found.get((a.side, term), 0) + getattr(a, term)
    return found


def final_before(at: int) -> str:
    """The condition, for a deletion by deltalake, that a result was final before a time in epoch ms."""
    return f"final_at < arrow_cast({at * 1_000}, 'Timestamp(Microsecond, Some(\"UTC\"))')"
