"""Flink's window cases run through our operators: window joins, coGroup, deduplication, window Top-N, and consecutive windows.

The watermark of a row is the last one before it. Cases with equal parameters share a frame; `case_id` is part of every key and
group. The final content is compared; for a case without an end, as far as its last watermark.

For a row within the allowed lateness, Flink emits the whole content of a window again, and retracts nothing. We emit the
differences. So the final content is the last content that Flink emitted for each key and window; for sessions, without those that
a later session contains.

Our second window accepts every correction of the first. Where Flink's second window does not, the expected ranks are computed from the
last content of Flink's first window.
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

from operators import CoGroup, Cumulative, Deduplicate, Session, Sliding, TopK, Tumbling, WindowedAggregate, WindowJoin
from operators.engine_columns import NEW, SESSION, WATERMARK
from operators.windows import Aligned, AnyWindow
from tests.oracle.cases import CaseError, order_by
from tests.oracle.compare import CaseResult
from tests.support.json_rows import dicts_of

DEDUP, WINDOW_TOPN, CONSECUTIVE = "dedup", "window_topn", "consecutive_windows"
WINDOW_JOIN, SQL_WINDOW_JOIN = "window_join", "sql_window_join"
KNOWN = (DEDUP, WINDOW_TOPN, CONSECUTIVE, WINDOW_JOIN, SQL_WINDOW_JOIN)
_SCHEMA = pa.schema(
    {"case_id": pa.string(), "side": pa.string(), "id": pa.int64(), "k": pa.string(), "sub": pa.string(), "v": pa.int64(), "ts": pa.int64()}
    | {"w": pa.int64(), "seq": pa.int64(), "arrival": pa.int64()}
)
_SCHEMA_WITH_SESSIONS = pa.schema([*_SCHEMA, (SESSION, pa.struct({"start": pa.int64(), "end": pa.int64()})), (NEW, pa.bool_())])
_FRAMES_OF_A_QUERY = 12
_SUMS = {"total": "sum(v)", "cnt": "count(*)"}

REFIRED = "Flink emits a window's whole content again for a late row, and we emit the differences; its last content is compared"
NOT_CORRECTED = (
    "Flink's second window did not accept a correction of the first; ours does, and is compared with the ranks of the first's content"
)

Row = tuple[Any, ...]
_Decision = dict[int, dict[str, int] | None]
"""The recorded session of each row, by its `seq`, after a row behind its watermark has arrived; None if that row is late."""
_Decisions = dict[tuple[str, int], _Decision]
"""The decisions by the case and the `seq` of the row that is behind its watermark."""


@dataclass(frozen=True, eq=False)
class WindowCase:
    """One recorded case of a supported operator.

    Args:
        content: the file's content.
    """

    content: Mapping[str, Any]

    @property
    def name(self) -> str:
        """Operator and name."""
        return f"{self.content['operator']}/{self.content['name']}"

    @property
    def params(self) -> Mapping[str, Any]:
        """The operator's parameters."""
        return self.content["params"]

    @property
    def expected(self) -> list[Mapping[str, Any]]:
        """Flink's final rows."""
        return self.content.get("expected_final", self.content["expected"])

    @cached_property
    def columns(self) -> list[str]:
        """The columns of Flink's rows, except the step; none if Flink has no rows."""
        return [c for row in self.expected[:1] for c in row if c not in ("step", "kind")]

    @property
    def lateness(self) -> int:
        """The first stage's allowed lateness in ms."""
        return _stages(self.params)[0].get("allowed_lateness", 0)

    @property
    def accepts_corrections(self) -> bool:
        """Whether Flink's second window accepted every correction of the first, or there is none."""
        [*_, last] = _stages(self.params)
        longer = last.get("allowed_lateness", 0) >= self.lateness and last.get("per_key", "latest") == "latest"
        return longer or not self.lateness

    @property
    def in_sessions(self) -> bool:
        """Whether the windows are sessions."""
        return _is_session(self.params)

    @cached_property
    def wanted(self) -> Counter[Row]:
        """Flink's final rows as a multiset."""
        final = self.final if self.accepts_corrections else ranked(self.first_stage, self.params["stage2"])
        return Counter(tuple(_plain(row[c]) for c in self.columns) for row in final)

    @property
    def final(self) -> list[Mapping[str, Any]]:
        """The last value that Flink emitted for each key and window."""
        if self.content["operator"] == CONSECUTIVE and self.lateness:
            return newest_ranks(self.expected)
        if self.content["operator"] != WINDOW_JOIN or not self.lateness:
            return self.expected
        return self._last_firings()

    @property
    def first_stage(self) -> list[Mapping[str, Any]]:
        """The last value that Flink's first window emitted for each key and window."""
        return newest(self.content["expected_stage1"], "k", "we")

    def _last_firings(self) -> list[Mapping[str, Any]]:
        """The rows of a join or coGroup, by firing, except those replaced by a later firing of the same window or a larger session."""
        keys = {(item["side"], item["id"]): item["k"] for item in self.content["input"] if item["t"] == "e"}
        fired: dict[tuple[Any, ...], tuple[set[Any], list[Mapping[str, Any]]]] = {}
        for row in self.expected:
            names = ids(row)
            held, rows = fired.setdefault((row["step"], keys[next(iter(names))], row["result_ts"]), (set(), []))
            held |= names
            rows.append(row)
        final: list[Mapping[str, Any]] = []
        for (step, key, ts), (held, rows) in fired.items():
            later = [(t, others) for (s, k, t), (others, _) in fired.items() if s > step and k == key]
            if not any(held <= others if self.in_sessions else t == ts for t, others in later):
                final += rows
        return final

    @property
    def last_mark(self) -> int | None:
        """The last watermark of an input without end; None if everything was closed."""
        if self.content.get("end_watermark", True):
            return None
        return max(item["ts"] for item in self.content["input"] if item["t"] == "w")

    def rows(self) -> Iterator[dict[str, Any]]:
        """The rows, each with the watermark before it."""
        mark: int | None = None
        for step, item in enumerate(self.content["input"]):
            if item["t"] == "w":
                mark = item["ts"]
            else:
                known = {c: item.get(c) for c in ("side", "id", "k", "sub", "v", "ts")}
                yield {"case_id": self.name, **known, "w": mark, "seq": step, "arrival": 0}


def gather(folder: Path) -> list[WindowCase]:
    """The cases below a folder whose operators are supported."""
    found = [parse(json.loads(path.read_text(encoding="utf-8"))) for path in sorted(folder.rglob("*.json"))]
    return [c for c in found if c.content["operator"] in KNOWN and not c.content.get("error")]


def parse(content: Mapping[str, Any]) -> WindowCase:
    """A case.

    Raises:
        CaseError: a field is missing or has an illegal value.
    """
    case = WindowCase(content)
    try:
        if content["operator"] in KNOWN and not content.get("error"):
            _ = case.wanted, list(case.rows())
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise CaseError(f"cannot be read: {type(error).__name__}: {error}") from error
    return case


def compare_cases(spark: SparkSession, cases: Sequence[WindowCase]) -> list[CaseResult]:
    """Run cases, and compare their results with Flink's final content."""
    found = run(spark, cases)
    return [compare(case, found[case.name]) for case in cases]


def compare(case: WindowCase, found: Counter[Row]) -> CaseResult:
    """Compare the rows that were found for a case with Flink's final content."""
    lacks, more = case.wanted - found, found - case.wanted
    why = [f"{label} {rows.total()}, such as {next(iter(rows))}" for label, rows in (("lacks", lacks), ("has in addition", more)) if rows]
    sent = len(case.expected)
    rules = Counter({NOT_CORRECTED: sent} if not case.accepts_corrections else {REFIRED: sent - case.wanted.total()})
    direct = case.wanted.total() - lacks.total() if case.accepts_corrections else 0
    return CaseResult(case.name, "failed" if why else "passed", tuple(why), sent, direct, 0, +rules, clean=not +rules)


def ids(row: Mapping[str, Any]) -> set[tuple[str, int]]:
    """The input rows of a result row of a join or coGroup."""
    lists = {side: row.get(f"{name}_ids", [row.get(f"{name}_id")]) for side, name in (("L", "left"), ("R", "right"))}
    return {(side, i) for side, several in lists.items() for i in several if i is not None}


def newest(rows: Sequence[Mapping[str, Any]], *key: str) -> list[Mapping[str, Any]]:
    """The rows of each key from the last step with that key."""
    last = {tuple(row[c] for c in key): row["step"] for row in sorted(rows, key=lambda r: r["step"])}
    return [row for row in rows if row["step"] == last[tuple(row[c] for c in key)]]


def newest_ranks(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The ranks of each window from its last firing, by Flink's order of emission.

    A window can fire several times in a step. Each firing begins with rank 1.
    """
    last = dict[int, list[Mapping[str, Any]]]()
    for row in rows:
        if row["rank"] == 1:
            last[row["window_end"]] = []
        last[row["window_end"]].append(row)
    return [row for ranks in last.values() for row in ranks]


def ranked(totals: Sequence[Mapping[str, Any]], stage: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The ranks of the first window's totals in the second window: by total, then key, then start, then count."""
    size, offset = stage["window"]["size"], stage["window"].get("offset", 0)
    found: dict[int, list[Mapping[str, Any]]] = {}
    for row in totals:
        found.setdefault(row["result_ts"] - (row["result_ts"] - offset) % size, []).append(row)
    made: list[Mapping[str, Any]] = []
    for start, rows in found.items():
        rows.sort(key=lambda r: (-r["total"], r["k"], r["ws"], -r["cnt"]))
        bounds = {"window_start": start, "window_end": start + size, "result_ts": start + size - 1}
        named = [{"key": r["k"], "src_window_start": r["ws"], "total": r["total"], "cnt": r["cnt"]} for r in rows[: stage["k"]]]
        made += [{"rank": n, **bounds, **row} for n, row in enumerate(named, 1)]
    return made


def _stages(params: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [params[s] for s in ("stage1", "stage2") if s in params] or [params]


def _is_session(stage: Mapping[str, Any]) -> bool:
    return stage.get("window", {}).get("type") == "session"


def window(spec: Mapping[str, Any]) -> AnyWindow:
    """A window in the format of the cases."""
    offset = spec.get("offset", 0)
    match spec["type"]:
        case "session":
            return Session(gap=spec["gap"])
        case "tumbling":
            return Tumbling(size=spec["size"], offset=offset)
        case "sliding":
            return Sliding(size=spec["size"], slide=spec["slide"], offset=offset)
        case _:
            return Cumulative(size=spec["size"], step=spec["step"], offset=offset)


def _aligned(spec: Mapping[str, Any]) -> Aligned:
    found = window(spec)
    assert not isinstance(found, Session)
    return found


def run(spark: SparkSession, cases: Sequence[WindowCase]) -> dict[str, Counter[Row]]:
    """The results of our operators by case; one frame for each distinct set of parameters, and one Spark job for several frames."""
    groups: dict[str, list[WindowCase]] = {}
    for case in cases:
        groups.setdefault(json.dumps([case.content["operator"], case.params], sort_keys=True), []).append(case)
    of_groups = {name: max(group, key=lambda case: len(case.columns)) for name, group in groups.items()}  # with results if any has
    made = {name: _result_columns(of_groups[name], _flink_rows(group[0], _input(spark, group))) for name, group in groups.items()}
    found, marks = {case.name: Counter[Row]() for case in cases}, {case.name: case.last_mark for case in cases}
    for name, rows in dicts_of(made, _FRAMES_OF_A_QUERY).items():
        for values in rows:
            mark = marks[values["case_id"]]
            if mark is None or "window_end" not in values or values["window_end"] - 1 <= mark:
                found[values["case_id"]][tuple(_plain(values[c]) for c in of_groups[name].columns)] += 1
    return found


def _input(spark: SparkSession, group: Sequence[WindowCase]) -> DataFrame:
    if group[0].in_sessions:
        return _with_lateness_decisions(spark, group)
    return _frame(spark, [row for case in group for row in case.rows()])


def _result_columns(case: WindowCase, result: DataFrame) -> DataFrame:
    """The columns that are compared, and those that decide which rows are compared."""
    return result.select(*dict.fromkeys(["case_id", *case.columns, *({"window_end"} & {*result.columns})]))


def _frame(spark: SparkSession, rows: Sequence[Mapping[str, Any]], schema: pa.Schema = _SCHEMA) -> DataFrame:
    frame = spark.createDataFrame(pa.Table.from_pylist([*rows], schema))
    return frame.select("*", F.timestamp_millis("ts").alias("event_time"), F.timestamp_millis("w").alias(WATERMARK)).drop("w")


def _with_lateness_decisions(spark: SparkSession, cases: Sequence[WindowCase]) -> DataFrame:
    """The on-time rows of session cases with their recorded sessions; lateness is decided row by row, in order of arrival.

    A decision depends on earlier decisions. One query makes all of them from assumed ones, and is repeated until it would read the same
    rows again.
    """
    decided = _Decisions()
    for _ in range(max(len([*case.rows()]) for case in cases) + 2):
        found = _decide(spark, cases, decided)
        if _apply_decisions(cases, found)[1] == _apply_decisions(cases, decided)[1]:
            return _frame(spark, _accepted_rows(cases, found), _SCHEMA_WITH_SESSIONS).drop(NEW)
        decided = found
    raise AssertionError("the decisions do not converge, so one depends on a later row or on another case")


def _accepted_rows(cases: Sequence[WindowCase], decisions: _Decisions) -> list[dict[str, Any]]:
    """The rows that are not late, after a check that only the newest row of a decision is late."""
    for (case, seq), decision in decisions.items():
        assert {row for row, session in decision.items() if session is None} <= {seq}, case
    return _apply_decisions(cases, decisions)[0]


def _decide(spark: SparkSession, cases: Sequence[WindowCase], assumed: _Decisions) -> _Decisions:
    """The decisions of our operator for each row that is behind its watermark.

    A query has one watermark, 0. So each of these rows is decided in a copy of the rows up to it, with times relative to its watermark.
    Moved times change no decision, because no session is so long that it is cut.
    """
    sessions = window(cases[0].params["window"])
    assert isinstance(sessions, Session)
    operator = CoGroup(on=("case_id", "k"), window=sessions, allowed_lateness=cases[0].lateness)
    behind, copies = [*_apply_decisions(cases, assumed)[1].items()], list[dict[str, Any]]()
    for number, (_, rows) in enumerate(behind):
        newest, mark, times = rows[-1], rows[-1]["w"], [row["ts"] for row in rows]
        assert max(times) - min(times) + sessions.gap_ms < sessions.longest_ms
        for row in rows:
            session = row.get(SESSION) and {end: at - mark for end, at in row[SESSION].items()}
            moved = {"case_id": str(number), "seq": number, "arrival": row["seq"], "ts": row["ts"] - mark}
            copies.append(row | moved | {SESSION: session, NEW: row is newest})
    found: _Decisions = {key: {} for key, _ in behind}
    if copies:
        for row in operator.lateness_decisions(0, *_by_side(_frame(spark, copies, _SCHEMA_WITH_SESSIONS))).collect():
            key, rows = behind[row["seq"]]
            session, mark = row[SESSION], rows[-1]["w"]
            found[key][row["arrival"]] = session and {end: at + mark for end, at in session.asDict().items()}
    return found


def _apply_decisions(
    cases: Sequence[WindowCase], decisions: _Decisions
) -> tuple[list[dict[str, Any]], dict[tuple[str, int], list[dict[str, Any]]]]:
    """The rows that are not late; and for each row that is behind its watermark, the rows of its key up to it."""
    accepted, with_earlier = list[dict[str, Any]](), dict[tuple[str, int], list[dict[str, Any]]]()
    for case in cases:
        known = dict[int, dict[str, Any]]()
        for row in case.rows():
            known[row["seq"]] = row
            if row["w"] is None or row["ts"] > row["w"]:
                continue
            key = case.name, row["seq"]
            with_earlier[key] = [other for other in known.values() if other["k"] == row["k"]]
            for seq, session in decisions.get(key, {}).items():
                if session is None:
                    known.pop(row["seq"], None)
                elif seq in known:
                    known[seq] = known[seq] | {SESSION: session}
        accepted += known.values()
    return accepted, with_earlier


def _flink_rows(case: WindowCase, rows: DataFrame) -> DataFrame:
    """The result with Flink's names, times in ms."""
    how = {
        DEDUP: _deduplicated,
        WINDOW_TOPN: _top_n,
        CONSECUTIVE: _consecutive,
        WINDOW_JOIN: _joined_or_grouped,
        SQL_WINDOW_JOIN: _joined_by_sql,
    }
    made = how[case.content["operator"]](case.params, rows)
    in_ms = {c: F.unix_millis(c) for c, kind in made.dtypes if kind == "timestamp"}
    return made.select(*[in_ms.get(c, F.col(c)).alias(c) for c in made.columns])


def names(text: str) -> list[str]:
    """The columns of a comma-separated list."""
    return [name.strip() for name in text.split(",") if name.strip()]


def _deduplicated(params: Mapping[str, Any], rows: DataFrame) -> DataFrame:
    operator = Deduplicate(
        by=["case_id", *names(params["partition_by"])],
        keep=params["keep"],
        order="event_time" if params["time"] == "rowtime" else "arrival",
        window=_aligned(params["window"]) if "window" in params else None,
    )
    return operator(rows.where(~operator.late(F.col("event_time"), F.col(WATERMARK))))


def _top_n(params: Mapping[str, Any], rows: DataFrame) -> DataFrame:
    within, by = _aligned(params["window"]), ["case_id", *names(params["partition_by"])]
    order = order_by(params)
    if params["source"] == "window_agg":
        rows = WindowedAggregate(by=["case_id", "k"], window=within, aggregates=_SUMS)(rows)
        top = TopK(k=params["rank_end"], order_by=order, by=by)
    else:
        top = TopK(k=params["rank_end"], order_by=order, by=by, window=within)
    return top(rows).where(F.col("rank") >= params["rank_start"]).withColumnRenamed("rank", "rn")


def _consecutive(params: Mapping[str, Any], rows: DataFrame) -> DataFrame:
    """Stage 1 sums by key, with null as 0; stage 2 ranks its results in other windows."""
    first, second = _stages(params)
    sums = {"total": "sum(coalesce(v, 0))", "cnt": "count(*)"}
    lateness = first.get("allowed_lateness", 0)
    totals = WindowedAggregate(by=["case_id", "k"], window=window(first["window"]), aggregates=sums, allowed_lateness=lateness)(rows)
    order = ["total DESC", "k", "source_window_start", "cnt DESC"]
    top = TopK(k=second["k"], order_by=order, by="case_id", window=_aligned(second["window"]), time="result_time")
    named = {"k": "key", "source_window_start": "src_window_start", "result_time": "result_ts"}
    return top(totals).withColumnsRenamed(named)


def _plain(value: Any) -> Any:
    """A value in hashable form; the rows of a group have no order in Flink's answers."""
    return tuple(sorted(value)) if isinstance(value, list) else value


def _by_side(rows: DataFrame) -> tuple[DataFrame, DataFrame]:
    left, right = (rows.where(F.col("side") == side).drop("side", "sub") for side in "LR")
    return left, right


def _joined_or_grouped(params: Mapping[str, Any], rows: DataFrame) -> DataFrame:
    """DataStream's window join and coGroup; an outer join is derived from the groups, as in Flink's `CoGroupFunction`."""
    within, mode, on = window(params["window"]), params["mode"], ("case_id", "k")
    late: Mapping[str, Any] = {"allowed_lateness": params.get("allowed_lateness", 0)}
    if mode == "join_inner":
        return WindowJoin(on=on, window=within, **late)(*_by_side(rows)).withColumnRenamed("result_time", "result_ts")
    grouped = CoGroup(on=on, window=within, **late)(*_by_side(rows)).withColumnsRenamed({"k": "key", "result_time": "result_ts"})
    ids = {f"{side}_ids": F.transform(side, lambda row: row["id"]) for side in ("left", "right")}
    if mode == "cogroup":
        return grouped.withColumns(ids).drop("left", "right")
    keeps = {side: mode in (f"cogroup_{side}", "cogroup_full") for side in ("left", "right")}
    pairs = "transform(left, l -> transform(right, r -> named_struct('left_id', l.id, 'right_id', r.id)))"
    unmatched = {
        "left": "transform(left, l -> named_struct('left_id', l.id, 'right_id', CAST(NULL AS BIGINT)))",
        "right": "transform(right, r -> named_struct('left_id', CAST(NULL AS BIGINT), 'right_id', r.id))",
    }
    nothing = "CAST(array() AS array<struct<left_id:bigint,right_id:bigint>>)"
    left = unmatched["left"] if keeps["left"] else nothing
    right = unmatched["right"] if keeps["right"] else nothing
    made = f"CASE WHEN size(right) = 0 THEN {left} WHEN size(left) = 0 THEN {right} ELSE flatten({pairs}) END"
    return CoGroup(on=on, window=within, rows=made, **late)(*_by_side(rows)).withColumnRenamed("result_time", "result_ts")


def _joined_by_sql(params: Mapping[str, Any], rows: DataFrame) -> DataFrame:
    within, how = window(params["window"]), params["join_type"].lower()
    residual = params.get("residual")
    condition = None if residual is None else residual.replace("L.", "left_").replace("R.", "right_")
    sides = [side.withColumn("k_", F.col("k")) for side in _by_side(rows)]
    made = WindowJoin(on=("case_id", "k"), window=within, how=how, residual=condition)(*sides)
    named = {"left_k_": "left_k", "right_k_": "right_k"} if how not in ("semi", "anti") else {"id": "left_id", "k_": "left_k"}
    renamed = made.withColumnsRenamed(named)
    start, has_rows = F.col("window_start"), {s: F.col(f"{s}_id").isNotNull() for s in ("left", "right") if f"{s}_id" in renamed.columns}
    return renamed.withColumns({f"{side}_ws": F.when(has_row, start) for side, has_row in has_rows.items()})
