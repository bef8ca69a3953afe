"""Cases run through the engine: many in one lake, or one case batch by batch.

The lake's watermark never decreases, so the times of each case are shifted to after those of the previous case. The rows of a case between
two watermarks are one ledger batch, and each watermark is a control batch. The last batch of a case is a watermark at which all results of
the case are final: Flink's end of the input, or our drain.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StringType, StructField, StructType

from assets.contracts import DerivedAsset, Punctuated, SourceContract
from operators import IntervalJoin
from operators.engine_columns import ARRIVAL
from platform_defs.engine import Engine
from platform_defs.engine.formats.files import File
from platform_defs.engine.formats.reader import MALFORMED, PATH, RAW
from platform_defs.engine.ingest.replay import BATCH
from platform_defs.engine.ingest.validate import FIRST_TIME, LAST_TIME
from platform_defs.engine.lake.tables import Lake
from tests.oracle.cases import Case, Params
from tests.oracle.residual import translated
from tests.support.clock import Clock
from tests.support.model import Event, Mark

_COLUMNS = ("case_id", "step", "id", "k", "v", "ts", "at")
_SCHEMA = StructType([StructField(c, StringType() if c in ("case_id", "k") else LongType(), c in ("k", "v")) for c in _COLUMNS])
_READ = ("case_id", "k", "left_step", "left_id", "left_ts", "right_step", "right_id", "right_ts", "result_time", "final_at")
SIDES = ("L", "R")

SOURCES = {
    side: SourceContract(
        name=side, schema=_SCHEMA, event_time="timestamp_millis(at)", watermark=Punctuated("CAST(NULL AS TIMESTAMP)"), future_skew=None
    )
    for side in SIDES
}
"""Two sources whose watermarks are given explicitly."""


@dataclass(frozen=True)
class Found:
    """The engine's result of a case, in the times of the case.

    Args:
        rows: the rows of the result by column, with `result_time` and `final_at` in ms.
        late: the late rows, as (side, step, id).
        error: the error, if there is no result.
    """

    rows: list[dict[str, Any]] = field(default_factory=list)
    late: list[tuple[str, int, int]] = field(default_factory=list)
    error: str | None = None


@dataclass(frozen=True)
class CaseBatch:
    """One ledger batch of a case: rows, or a watermark."""

    rows: tuple[Event, ...] = ()
    mark: int | None = None


def case_batches(case: Case) -> list[CaseBatch]:
    """A case as ledger batches, including the last watermark."""
    found, rows, marks = list[CaseBatch](), list[Event](), iter(case.marks)
    for item in (*case.stream, Mark(case.high)):
        if isinstance(item, Event):
            rows.append(item)
            continue
        found += [CaseBatch(rows=tuple(rows))] if rows else []
        found.append(CaseBatch(mark=next(marks, case.high)))
        rows = []
    return found


def shifts(cases: Sequence[Case]) -> list[dict[int, int]]:
    """For each lake, the shift of the times of its cases in ms, by the index of the case. The times of a lake are around 1970."""
    room, lakes = min(-FIRST_TIME, LAST_TIME), list[dict[int, int]]()
    used = room * 2 + 1
    for index, case in enumerate(cases):
        span = case.high - case.low + 1
        if used + span > room * 2:
            lakes.append({})
            used = 0
        lakes[-1][index] = used - case.low
        used += span
    return [_centered(cases, lake) for lake in lakes]


def _centered(cases: Sequence[Case], lake: Mapping[int, int]) -> dict[int, int]:
    half = max(cases[index].high + shift for index, shift in lake.items()) // 2
    return {index: shift - half for index, shift in lake.items()}


def is_too_long(case: Case) -> bool:
    """Whether the times of a case span more years than the engine accepts."""
    return case.high - case.low + 1 > 2 * min(-FIRST_TIME, LAST_TIME)


def operator(params: Params) -> IntervalJoin:
    """The operator of the given parameters."""
    residual = None if params.residual is None else translated(params.residual)
    bounds = {
        "lower": params.lower,
        "upper": params.upper,
        "lower_exclusive": params.lower_exclusive,
        "upper_exclusive": params.upper_exclusive,
    }
    return IntervalJoin(on=("case_id", "k"), how=params.how, residual=residual, **bounds)  # pyright: ignore[reportArgumentType]


def bulk(spark: SparkSession, folder: Path, cases: Sequence[Case]) -> list[Found]:
    """Run cases through shared lakes: one replay, then one advance for each distinct set of parameters."""
    found = [Found(error="it was not run")] * len(cases)
    for number, moved in enumerate(shifts(cases)):
        for index, result in _one_lake(spark, folder / f"lake_{number}", cases, moved).items():
            found[index] = result
    return found


def _one_lake(spark: SparkSession, folder: Path, cases: Sequence[Case], moved: Mapping[int, int]) -> dict[int, Found]:
    groups: dict[Params, list[int]] = {}
    for index in moved:
        groups.setdefault(cases[index].params, []).append(index)
    assets = [_asset(f"join_{n}", params, [str(p) for p in indexes]) for n, (params, indexes) in enumerate(groups.items())]
    engine = _engine(spark, folder, [a for a in assets if isinstance(a, DerivedAsset)])
    _replay(engine, cases, moved)
    late = _late(engine)
    with ThreadPoolExecutor(2) as pool:
        tables = list(pool.map(lambda asset: _attempt(lambda: _advanced(engine, asset)), assets))
    found: dict[int, Found] = {}
    for indexes, table in zip(groups.values(), tables, strict=True):
        rows = {str(index): list[dict[str, Any]]() for index in indexes}
        for row in () if isinstance(table, str) else table:
            rows[row["case_id"]].append(_unshifted(row, moved[int(row["case_id"])]))
        for index in indexes:
            result = Found(rows[str(index)], late.get(str(index), []))
            found[index] = Found(error=table) if isinstance(table, str) else result
    return found


def _asset(name: str, params: Params, ids: Sequence[str]) -> DerivedAsset | str:
    """The asset of some parameters, which keeps the rows of its own cases; or the text of an error."""
    join = _attempt(lambda: operator(params))
    return (
        join
        if isinstance(join, str)
        else DerivedAsset(name=name, inputs=SIDES, operator=join, shape=lambda r: r.where(F.col("case_id").isin(*ids)))
    )


def _attempt(action: Callable[[], Any]) -> Any:
    """The result of an action, or the text of its error: a failing case must not affect another."""
    try:
        return action()
    except Exception as error:
        return f"{type(error).__name__}: {str(error).strip().splitlines()[0]}"


def _engine(spark: SparkSession, folder: Path, assets: Sequence[DerivedAsset]) -> Engine:
    return Engine(Lake(str(folder)), SOURCES, {a.name: a for a in assets}, lambda: spark, Clock())


def _advanced(engine: Engine, asset: DerivedAsset | str) -> list[dict[str, Any]]:
    if isinstance(asset, str):
        raise ValueError(asset)
    engine.advance(asset.name)
    return table(engine, asset.name)


def table(engine: Engine, name: str) -> list[dict[str, Any]]:
    """The rows of a result table, times in ms; none if the table is missing."""
    delta = engine.lake.delta(name)
    if delta is None:
        return []
    rows = delta.to_pyarrow_table(columns=list(_READ))
    in_ms = pa.schema([f.with_type(pa.timestamp("ms", tz="UTC")) if pa.types.is_timestamp(f.type) else f for f in rows.schema])
    as_ints = pa.schema([f.with_type(pa.int64()) if pa.types.is_timestamp(f.type) else f for f in in_ms])
    return rows.cast(in_ms).cast(as_ints).to_pylist()


def _unshifted(row: Mapping[str, Any], shift: int) -> dict[str, Any]:
    return {**row, "result_time": row["result_time"] - shift, "final_at": row["final_at"] - shift}


def _late(engine: Engine) -> dict[str, list[tuple[str, int, int]]]:
    """The late rows of each case, read from the view of one table: the join's lateness decision depends on no parameter."""
    found: dict[str, list[tuple[str, int, int]]] = {}
    for side in SIDES if engine.assets else ():
        for row in engine.views.late(next(iter(engine.assets)), side).select("case_id", "step", "id").collect():
            found.setdefault(row.case_id, []).append((side, row.step, row.id))
    return found


def _replay(engine: Engine, cases: Sequence[Case], moved: Mapping[int, int]) -> None:
    marks, rows = list[dict[str, int]](), {side: list[tuple[int, list[Any]]]() for side in SIDES}
    for index, shift in moved.items():
        for batch in case_batches(cases[index]):
            for row in batch.rows:
                rows[row.side].append((len(marks), _values(row, str(index), shift)))
            marks.append({} if batch.mark is None else dict.fromkeys(SIDES, batch.mark + shift))
    engine.ingestion.replay({side: _frame(engine.spark, values) for side, values in rows.items() if values}, marks)


def _values(row: Event, case_id: str, shift: int) -> list[Any]:
    return [case_id, row.step, row.id, row.key, row.v, row.ts, row.ts + shift]


def _frame(spark: SparkSession, rows: Sequence[tuple[int, list[Any]]]) -> DataFrame:
    """Rows as the file reader returns them, with every column as text."""
    text = {name: pa.array([_text(values[n]) for _, values in rows], pa.string()) for n, name in enumerate(_COLUMNS)}
    nothing = pa.nulls(len(rows), pa.string())
    index, batch = pa.array(range(len(rows)), pa.int64()), pa.array([e for e, _ in rows], pa.int64())
    return spark.createDataFrame(pa.table({**text, RAW: nothing, PATH: nothing, MALFORMED: nothing, ARRIVAL: index, BATCH: batch}))


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


@dataclass(frozen=True)
class Stepped:
    """The rows that one batch of a case produced."""

    mark: int | None
    rows: list[dict[str, Any]]


def stepwise(spark: SparkSession, folder: Path, case: Case) -> tuple[list[Stepped], list[tuple[str, int, int]]]:
    """Ingest a case batch by batch, rows as JSON files, and advance after each; times outside the years 1 to 9999 are shifted."""
    asset = DerivedAsset(name="join", inputs=SIDES, operator=operator(case.params))
    engine = _engine(spark, folder / "lake", [asset])
    shift = 0 if case.low >= FIRST_TIME and case.high <= LAST_TIME else -(case.low + case.high) // 2
    steps, before = list[Stepped](), Counter[tuple[Any, ...]]()
    for number, batch in enumerate(case_batches(case)):
        if batch.mark is None:
            engine.ingestion.batches.files(list(_landed(folder, number, batch.rows, shift)))
        else:
            engine.ingestion.control_batches.watermark(dict.fromkeys(SIDES, batch.mark + shift))
        engine.advance("join")
        now = Counter(tuple(_unshifted(row, shift)[c] for c in _READ) for row in table(engine, "join"))
        steps.append(Stepped(batch.mark, [dict(zip(_READ, row, strict=True)) for row in (now - before).elements()]))
        before = now
    return steps, _late(engine).get("0", [])


def _landed(folder: Path, number: int, rows: Sequence[Event], shift: int) -> Iterator[File]:
    for side in SIDES:
        lines = [json.dumps(dict(zip(_COLUMNS, _values(r, "0", shift), strict=True))) for r in rows if r.side == side]
        if lines:
            path = folder / "landing" / side / f"{number:05}.json"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("\n".join(lines), encoding="utf-8")
            yield File(number, path.resolve().as_uri(), path.stat().st_size, side)
