"""Flink's Top-N cases run through our operators, micro-batch by micro-batch.

Each case is cut into micro-batches. After each of them the leaderboard is compared with the result of Flink's changelog up to that
row, and our changes are compared with the exact difference between two leaderboards. Cases with equal parameters share a frame;
`case_id` is part of every key and partition.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema

from operators import Aggregate, OperatorError, TopN, difference
from operators.changelog import CHANGE, INSERT
from operators.columns import are_rows_equal
from tests.oracle.cases import CaseError, order_by
from tests.oracle.compare import CaseResult
from tests.oracle.windowed import names
from tests.support.json_rows import dicts_of
from tests.support.top_n_model import ADDED_KINDS, TopNModel

TOPN = "topn"
_FRAMES_OF_A_QUERY = 64
_KEY_OF_TOTALS = ("case_id", "k", "sub")
_SCHEMA = pa.schema(
    {"case_id": pa.string(), "id": pa.int64(), "k": pa.string(), "sub": pa.string(), "v": pa.int64(), "n": pa.int64(), "ts": pa.int64()}
    | {"kind": pa.string(), "seq": pa.int64(), "arrival": pa.int64()}
)
_MONOTONIC = {("agg_count", "DESC"), ("agg_max", "DESC"), ("agg_min", "ASC")}
INCONSISTENT = "Flink's changelog is inconsistent here (a range without row numbers over input with deletes); compared with the true Top-N"
REFUSED = "Flink refuses the function on a stream; compared with the naive model instead"

Row = tuple[Any, ...]


@dataclass(frozen=True, eq=False)
class TopNCase:
    """One recorded case.

    Args:
        content: the file's content.
        batches: the number of micro-batches of its rows.
    """

    content: Mapping[str, Any]
    batches: int = 6

    @property
    def name(self) -> str:
        """Operator and name."""
        return f"{TOPN}/{self.content['name']}"

    @property
    def params(self) -> Mapping[str, Any]:
        """The operator's parameters."""
        return self.content["params"]

    @property
    def error(self) -> str | None:
        """Flink's error, if it did not answer."""
        return self.content.get("error")

    @cached_property
    def columns(self) -> list[str]:
        """The columns of Flink's rows, with `rn` if it is selected."""
        values = ["k", "sub", "total"] if self.params["source"].startswith("agg_") else ["id", "k", "v", "n"]
        return [*values, *(["rn"] if self.params["with_row_number"] else [])]

    @cached_property
    def rows(self) -> list[dict[str, Any]]:
        """The input in the order of arrival, each row with its micro-batch."""
        events = [item for item in self.content["input"] if item["t"] == "e"]
        columns = {c for c in _SCHEMA.names if c not in ("case_id", "seq", "arrival", "kind")}
        return [
            {"case_id": self.name, **{c: row.get(c) for c in columns}, "kind": row.get("kind", INSERT)}
            | {"seq": 1 + n * self.batches // len(events), "arrival": n, "step": step}
            for n, (step, row) in enumerate((s, i) for s, i in enumerate(self.content["input"]) if i["t"] == "e")
        ]

    def wanted(self, batch: int) -> Counter[Row] | None:
        """The leaderboard after a micro-batch; None if Flink's changelog does not determine it."""
        if self.error:
            return self._by_model(batch)
        if self.content.get("flink_bug"):
            return _counted(self.content["expected_final_model"], self.columns) if batch == self.batches else None
        last = max(row["step"] for row in self.rows if row["seq"] <= batch)
        current = Counter[Row]()
        for change in self.content["expected"]:
            if change["step"] <= last or batch == self.batches:
                current[tuple(change[c] for c in self.columns)] += 1 if change["kind"] in ADDED_KINDS else -1
        return +current

    def _by_model(self, batch: int) -> Counter[Row]:
        order = [(column, direction == "DESC", direction == "ASC") for column, direction in self.params["order_by"]]
        by, function = names(self.params["partition_by"]), self.params["function"].lower()
        model = TopNModel(order, self.params["rank_end"], self.params["rank_start"], function, tuple(by), (), False)
        for row in self.rows:
            if row["seq"] <= batch:
                model.apply(row)
        return Counter(tuple({**row, "rn": rank}[c] for c in self.columns) for row, rank in model.ranks())


def _counted(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> Counter[Row]:
    return Counter(tuple(row[c] for c in columns) for row in rows)


def parse(content: Mapping[str, Any]) -> TopNCase:
    """A case.

    Raises:
        CaseError: a field is missing or has an illegal value.
    """
    case = TopNCase(content)
    try:
        _ = case.name, [case.wanted(batch) for batch in (1, case.batches) if "function" in case.params or not case.error]
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise CaseError(f"cannot be read: {type(error).__name__}: {error}") from error
    return case


@dataclass
class Group:
    """Cases with equal parameters, and their current results.

    Args:
        cases: the cases.
        current: the leaderboards after the last micro-batch; None before the first.
        totals: the rows of the upstream aggregate after the last micro-batch; None before the first, or if there is no aggregate.
    """

    cases: Sequence[TopNCase]
    current: DataFrame | None = None
    totals: DataFrame | None = None

    @cached_property
    def top(self) -> TopN:
        """The operator."""
        params = self.cases[0].params
        source, by = params["source"], ("case_id", *names(params["partition_by"]))
        keyed = {"retract_pk": ("case_id", "id"), "upsert": ("case_id", "id")}.get(source, ())
        keyed = _KEY_OF_TOTALS if source.startswith("agg_") else keyed
        monotonic = (source, params["order_by"][0][1]) in _MONOTONIC and params["rank_start"] == 1 and {*by} <= {*keyed}
        return TopN(
            by=by,
            order_by=order_by(params),
            rank_start=params["rank_start"],
            rank_end=params.get("rank_end_column") or params["rank_end"],
            function=params.get("function", "row_number").lower(),
            with_rank=params["with_row_number"],
            unique_key=keyed,
            change=None if source == "append" else "kind",
            monotonic=monotonic,
        )

    @cached_property
    def sums(self) -> Aggregate | None:
        """The upstream aggregate, if there is one."""
        source = self.cases[0].params["source"]
        call = {"agg_sum": "sum(v)", "agg_count": "count(*)", "agg_max": "max(v)", "agg_min": "min(v)"}.get(source)
        return Aggregate(by=_KEY_OF_TOTALS, aggregates={"total": call}) if call else None

    def plan_totals(self, spark: SparkSession, batch: int) -> DataFrame | None:
        """The totals of the upstream aggregate after a micro-batch, from those before it; None if there is no aggregate."""
        if self.sums is None:
            return None
        new = self._frame(spark, batch, batch)
        return self.sums(new) if self.totals is None else _merged(self.totals, new, self.sums)

    def plan(self, spark: SparkSession, batch: int, totals: DataFrame | None) -> DataFrame:
        """The leaderboard after a micro-batch, from that before it.

        Args:
            spark: the session.
            batch: the number of the micro-batch.
            totals: the frame of `plan_totals`. Its rows should be computed: the plan reads them several times.
        """
        if totals is None:
            new, every = self._frame(spark, batch, batch), self._frame(spark, 1, batch)
        else:
            changes = difference(totals.limit(0) if self.totals is None else self.totals, totals, key=_KEY_OF_TOTALS)
            new = changes.where(F.col(CHANGE) != "-U").withColumnRenamed(CHANGE, "kind")
            every = totals.withColumn("kind", F.lit(INSERT))
        if self.top.change is None:
            new, every = new.drop("kind"), every.drop("kind")
        if self.top.strategy_used == "retract" or self.current is None:
            return self.top(every)
        return _merged(self.current, new, self.top)

    def proceed(self, after: DataFrame, totals: DataFrame | None) -> DataFrame:
        """The changes to the leaderboard, from the computed frames of `plan` and `plan_totals` after a micro-batch."""
        current = after.limit(0) if self.current is None else self.current
        self.current, self.totals = after, totals
        return difference(current, after.select(*current.columns), key=self.top.emits.key)

    def _frame(self, spark: SparkSession, first: int, last: int) -> DataFrame:
        rows = [{c: r[c] for c in _SCHEMA.names} for case in self.cases for r in case.rows if first <= r["seq"] <= last]
        return spark.createDataFrame(pa.Table.from_pylist(rows, _SCHEMA))


def _merged(current: DataFrame, new: DataFrame, operator: TopN | Aggregate) -> DataFrame:
    """Merge as the engine does: the rows that new rows may change are recomputed, all others are kept."""
    partition = operator.partition if isinstance(operator, TopN) else operator.key
    keys = new.select(*partition).distinct()
    same = are_rows_equal("h", "k", partition)
    changed, others = (current.alias("h").join(keys.alias("k"), same, how) for how in ("left_semi", "left_anti"))
    return others.unionByName(operator.fold(changed, new))


def compare_cases(spark: SparkSession, cases: Sequence[TopNCase]) -> list[CaseResult]:
    """Run cases, and compare their results after every micro-batch. One query has the changes of many micro-batches."""
    refused = {case.name: _refused(spark, case) for case in cases if case.error and "function" not in case.params}
    by_params: dict[str, list[TopNCase]] = {}
    for case in cases:
        if case.name not in refused:
            by_params.setdefault(json.dumps(case.params, sort_keys=True), []).append(case)
    groups, found = [Group(alike) for alike in by_params.values()], dict[tuple[str, int, bool], list[dict[str, Any]]]()
    changes = dict[tuple[int, int], DataFrame]()
    for batch in range(1, max((case.batches for case in cases), default=0) + 1):
        totals = _computed(spark, {n: frame for n, g in enumerate(groups) if (frame := g.plan_totals(spark, batch)) is not None})
        planned = {n: group.plan(spark, batch, totals.get(n)) for n, group in enumerate(groups)}
        for n, rows in dicts_of(planned).items():
            changes[batch, n] = groups[n].proceed(_frame(spark, planned[n], rows), totals.get(n))
            for row in rows:
                found.setdefault((row["case_id"], batch, False), []).append(_with_rn(row))
    for (batch, _), rows in dicts_of(changes, _FRAMES_OF_A_QUERY).items():
        for row in rows:
            found.setdefault((row["case_id"], batch, True), []).append(_with_rn(row))
    by_name = {case.name: group for group in groups for case in group.cases}
    return [refused[c.name] if c.name in refused else _case_result(c, by_name[c.name].top, found) for c in cases]


def _computed(spark: SparkSession, planned: Mapping[int, DataFrame]) -> dict[int, DataFrame]:
    """Frames with the rows of planned ones, computed by one query."""
    return {n: _frame(spark, planned[n], rows) for n, rows in dicts_of(planned).items()}


def _frame(spark: SparkSession, planned: DataFrame, rows: Sequence[Mapping[str, Any]]) -> DataFrame:
    """A frame with the computed rows of a planned one."""
    return spark.createDataFrame(pa.Table.from_pylist([*rows], to_arrow_schema(planned.schema)))


def _with_rn(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row in which the rank has Flink's name."""
    return {"rn" if column == "rank" else column: value for column, value in row.items()}


def _case_result(case: TopNCase, top: TopN, found: Mapping[tuple[str, int, bool], list[dict[str, Any]]]) -> CaseResult:
    why, direct, before = list[str](), 0, dict[Row, Row]()
    key = ["rn" if c == "rank" else c for c in top.emits.key]
    for batch in range(1, case.batches + 1):
        rows, changes = found.get((case.name, batch, False), []), found.get((case.name, batch, True), [])
        wanted, ours = case.wanted(batch), _counted(rows, case.columns)
        if wanted is not None:
            direct += (wanted & ours).total()
            why += [
                f"after micro-batch {batch} {label} {differences.total()}, such as {next(iter(differences))}"
                for label, differences in (("lacks", wanted - ours), ("has in addition", ours - wanted))
                if differences
            ]
        after = {_key(row, key): _whole(row) for row in rows}
        why += [f"after micro-batch {batch} the changes {problem}" for problem in _wrong_changes(before, after, changes, key)]
        before = after
    rules = Counter({INCONSISTENT: len(case.content["expected"])} if case.content.get("flink_bug") else {REFUSED: 1} if case.error else {})
    shown = sum((case.wanted(batch) or Counter[Row]()).total() for batch in range(1, case.batches + 1))
    return CaseResult(case.name, "failed" if why else "passed", tuple(why), shown, direct, 0, rules, clean=not rules)


def _key(row: Mapping[str, Any], key: Sequence[str]) -> Row:
    return tuple(row[c] for c in key)


def _whole(row: Mapping[str, Any]) -> Row:
    return tuple(sorted((c, v) for c, v in row.items() if c != CHANGE))


def _wrong_changes(
    before: Mapping[Row, Row], after: Mapping[Row, Row], changes: Sequence[Mapping[str, Any]], key: Sequence[str]
) -> list[str]:
    """The errors in changes, which must be the exact difference of two leaderboards."""
    wanted = Counter[tuple[str, Row]]()
    for name in before.keys() | after.keys():
        old, new = before.get(name), after.get(name)
        if old != new:
            kinds = {"-D": old} if new is None else {"+I": new} if old is None else {"-U": old, "+U": new}
            wanted.update((kind, row) for kind, row in kinds.items() if row is not None)
    found = Counter((change[CHANGE], _whole(change)) for change in changes)
    return [f"{label} {rows.total()}" for label, rows in (("lack", wanted - found), ("are superfluous in", found - wanted)) if rows]


def _refused(spark: SparkSession, case: TopNCase) -> CaseResult:
    """A case that Flink refuses must be refused here."""
    try:
        group = Group([case])
        group.plan(spark, 1, group.plan_totals(spark, 1))
    except OperatorError:
        return CaseResult(case.name, "passed", reasons=Counter({"Flink and we refuse it": 1}))
    return CaseResult(case.name, "failed", (f"Flink refuses it ({case.error}), and we do not",))
