"""Flink's window cases put through our operators: window joins, coGroup, deduplication, window Top-N, and consecutive windows.

A row's watermark is the last one sent before it. Cases of the same parameters share a frame, `case_id` being part of
every key and group. What is compared is the final content: a case without an end is compared as far as it was closed.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from operators import CoGroup, Cumulative, Deduplicate, Sliding, TopK, Tumbling, WindowedAggregate, WindowJoin
from operators.contract import WATERMARK
from operators.windows import Aligned

DEDUP, WINDOW_TOPN, CONSECUTIVE = "dedup", "window_topn", "consecutive_windows"
WINDOW_JOIN, SQL_WINDOW_JOIN = "window_join", "sql_window_join"
KNOWN = (DEDUP, WINDOW_TOPN, CONSECUTIVE, WINDOW_JOIN, SQL_WINDOW_JOIN)
_SCHEMA = pa.schema(
    {"case_id": pa.string(), "side": pa.string(), "id": pa.int64(), "k": pa.string(), "sub": pa.string(), "v": pa.int64(), "ts": pa.int64()}
    | {"w": pa.int64(), "seq": pa.int64(), "arrival": pa.int64()}
)
_SUMS = {"total": "sum(v)", "cnt": "count(*)"}

Row = tuple[Any, ...]


@dataclass(frozen=True, eq=False)
class WindowCase:
    """One recorded case, whose operator is known here.

    Args:
        told: the file's content.
    """

    told: Mapping[str, Any]

    @property
    def name(self) -> str:
        """Operator and name."""
        return f"{self.told['operator']}/{self.told['name']}"

    @property
    def params(self) -> Mapping[str, Any]:
        """The operator's parameters."""
        return self.told["params"]

    @property
    def expected(self) -> list[Mapping[str, Any]]:
        """Flink's final rows."""
        return self.told.get("expected_final", self.told["expected"])

    @cached_property
    def columns(self) -> list[str]:
        """The columns that Flink's rows have, but for the step."""
        return [c for c in self.expected[0] if c not in ("step", "kind")]

    @cached_property
    def wanted(self) -> Counter[Row]:
        """Flink's final rows as a multiset."""
        return Counter(tuple(_plain(row[c]) for c in self.columns) for row in self.expected)

    @property
    def last_mark(self) -> int | None:
        """The last watermark that was sent, where none of the end was; None where everything was closed."""
        if self.told.get("end_watermark", True):
            return None
        return max(item["ts"] for item in self.told["input"] if item["t"] == "w")

    def rows(self) -> Iterator[dict[str, Any]]:
        """The rows, each with the watermark before it."""
        mark: int | None = None
        for step, item in enumerate(self.told["input"]):
            if item["t"] == "w":
                mark = item["ts"]
            else:
                known = {c: item.get(c) for c in ("side", "id", "k", "sub", "v", "ts")}
                yield {"case_id": self.name, **known, "w": mark, "seq": step, "arrival": 0}


def gather(folder: Path) -> list[WindowCase]:
    """The cases below a folder that these operators answer: those with allowed lateness or sessions are not among them yet."""
    found = [WindowCase(json.loads(path.read_text(encoding="utf-8"))) for path in sorted(folder.rglob("*.json"))]
    known = [c for c in found if c.told["operator"] in KNOWN and not c.told.get("error")]
    return [c for c in known if not any(s.get("allowed_lateness") or _is_session(s) for s in _stages(c.params))]


def _stages(params: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [params[s] for s in ("stage1", "stage2") if s in params] or [params]


def _is_session(stage: Mapping[str, Any]) -> bool:
    return stage.get("window", {}).get("type") == "session"


def window(told: Mapping[str, Any]) -> Aligned:
    """A window as a case tells it."""
    offset = told.get("offset", 0)
    match told["type"]:
        case "tumbling":
            return Tumbling(size=told["size"], offset=offset)
        case "sliding":
            return Sliding(size=told["size"], slide=told["slide"], offset=offset)
        case _:
            return Cumulative(size=told["size"], step=told["step"], offset=offset)


def run(spark: SparkSession, cases: Sequence[WindowCase]) -> dict[str, Counter[Row]]:
    """What our operators make of the cases, by name; one Spark job for each distinct set of parameters."""
    groups: dict[str, list[WindowCase]] = {}
    for case in cases:
        groups.setdefault(json.dumps([case.told["operator"], case.params], sort_keys=True), []).append(case)
    found = {case.name: Counter[Row]() for case in cases}
    for alike in groups.values():
        marks = {c.name: c.last_mark for c in alike}
        for row in _answer(alike[0], _frame(spark, alike)).collect():
            told, mark = row.asDict(), marks[row.case_id]
            if mark is None or "window_end" not in told or told["window_end"] - 1 <= mark:
                found[row.case_id][tuple(_plain(told[c]) for c in alike[0].columns)] += 1
    return found


def _frame(spark: SparkSession, cases: Sequence[WindowCase]) -> DataFrame:
    told = spark.createDataFrame(pa.Table.from_pylist([row for case in cases for row in case.rows()], _SCHEMA))
    return told.select("*", F.timestamp_millis("ts").alias("event_time"), F.timestamp_millis("w").alias(WATERMARK)).drop("w")


def _answer(case: WindowCase, rows: DataFrame) -> DataFrame:
    """The result with Flink's names, times in ms."""
    how = {
        DEDUP: _deduplicated,
        WINDOW_TOPN: _top_n,
        CONSECUTIVE: _consecutive,
        WINDOW_JOIN: _joined_or_grouped,
        SQL_WINDOW_JOIN: _joined_by_sql,
    }
    made = how[case.told["operator"]](case.params, rows)
    in_ms = {c: F.unix_millis(c) for c, kind in made.dtypes if kind == "timestamp"}
    return made.select(*[in_ms.get(c, F.col(c)).alias(c) for c in made.columns])


def _names(told: str) -> list[str]:
    return [name.strip() for name in told.split(",") if name.strip()]


def _deduplicated(params: Mapping[str, Any], rows: DataFrame) -> DataFrame:
    operator = Deduplicate(
        by=["case_id", *_names(params["partition_by"])],
        keep=params["keep"],
        order="event_time" if params["time"] == "rowtime" else "arrival",
        window=window(params["window"]) if "window" in params else None,
    )
    return operator(rows.where(~operator.late(F.col("event_time"), F.col(WATERMARK))))


def _top_n(params: Mapping[str, Any], rows: DataFrame) -> DataFrame:
    within, by = window(params["window"]), ["case_id", *_names(params["partition_by"])]
    order = [" ".join(part) for part in params["order_by"]]
    if params["source"] == "window_agg":
        rows = WindowedAggregate(by=["case_id", "k"], window=within, aggregates=_SUMS)(rows)
        top = TopK(k=params["rank_end"], order_by=order, by=by)
    else:
        top = TopK(k=params["rank_end"], order_by=order, by=by, window=within)
    return top(rows).where(F.col("rank") >= params["rank_start"]).withColumnRenamed("rank", "rn")


def _consecutive(params: Mapping[str, Any], rows: DataFrame) -> DataFrame:
    """Stage 1 sums by key, a null counting as 0; stage 2 ranks what it made, in windows of its own."""
    first, second = _stages(params)
    sums = {"total": "sum(coalesce(v, 0))", "cnt": "count(*)"}
    totals = WindowedAggregate(by=["case_id", "k"], window=window(first["window"]), aggregates=sums)(rows)
    order = ["total DESC", "k", "source_window_start", "cnt DESC"]
    top = TopK(k=second["k"], order_by=order, by="case_id", window=window(second["window"]), time="result_time")
    named = {"k": "key", "source_window_start": "src_window_start", "result_time": "result_ts"}
    return top(totals).withColumnsRenamed(named)


def _plain(value: Any) -> Any:
    """A value as it can be counted; the rows of a group have no order in Flink's answers."""
    return tuple(sorted(value)) if isinstance(value, list) else value


def _by_side(rows: DataFrame) -> tuple[DataFrame, DataFrame]:
    left, right = (rows.where(F.col("side") == side).drop("side", "sub") for side in "LR")
    return left, right


def _joined_or_grouped(params: Mapping[str, Any], rows: DataFrame) -> DataFrame:
    """DataStream's window join and coGroup; an outer join is made of the groups, as in Flink's `CoGroupFunction`."""
    within, mode, on = window(params["window"]), params["mode"], ("case_id", "k")
    if mode == "join_inner":
        return WindowJoin(on=on, window=within)(*_by_side(rows)).withColumnRenamed("result_time", "result_ts")
    grouped = CoGroup(on=on, window=within)(*_by_side(rows)).withColumnsRenamed({"k": "key", "result_time": "result_ts"})
    ids = {f"{side}_ids": F.transform(side, lambda row: row["id"]) for side in ("left", "right")}
    if mode == "cogroup":
        return grouped.withColumns(ids).drop("left", "right")
    pads = {side: mode in (f"cogroup_{side}", "cogroup_full") for side in ("left", "right")}
    pairs = "transform(left, l -> transform(right, r -> named_struct('left_id', l.id, 'right_id', r.id)))"
    lonely = {
        "left": "transform(left, l -> named_struct('left_id', l.id, 'right_id', CAST(NULL AS BIGINT)))",
        "right": "transform(right, r -> named_struct('left_id', CAST(NULL AS BIGINT), 'right_id', r.id))",
    }
    nothing = "CAST(array() AS array<struct<left_id:bigint,right_id:bigint>>)"
    left = lonely["left"] if pads["left"] else nothing
    right = lonely["right"] if pads["right"] else nothing
    made = f"CASE WHEN size(right) = 0 THEN {left} WHEN size(left) = 0 THEN {right} ELSE flatten({pairs}) END"
    return CoGroup(on=on, window=within, rows=made)(*_by_side(rows)).withColumnRenamed("result_time", "result_ts")


def _joined_by_sql(params: Mapping[str, Any], rows: DataFrame) -> DataFrame:
    within, how = window(params["window"]), params["join_type"].lower()
    residual = params.get("residual")
    words = None if residual is None else residual.replace("L.", "left_").replace("R.", "right_")
    sides = [side.withColumn("k_", F.col("k")) for side in _by_side(rows)]
    made = WindowJoin(on=("case_id", "k"), window=within, how=how, residual=words)(*sides)
    named = {"left_k_": "left_k", "right_k_": "right_k"} if how not in ("semi", "anti") else {"id": "left_id", "k_": "left_k"}
    told = made.withColumnsRenamed(named)
    start, there = F.col("window_start"), {s: F.col(f"{s}_id").isNotNull() for s in ("left", "right") if f"{s}_id" in told.columns}
    return told.withColumns({f"{side}_ws": F.when(is_there, start) for side, is_there in there.items()})
