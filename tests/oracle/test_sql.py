"""Flink's recorded SQL statements, run as they are through `operators.sql`, give Flink's recorded rows.

The rows of a case are one frame with the columns of Flink's table: `rt` is the event time, and `pt` the order of arrival. Late rows are
those of the operator: `__tm_watermark`, the watermark before a row, lets windows decide for each row, as in the engine. If a case
sends a changelog, its changes are applied first, because frames are static.

Interval joins of SQL differ from Flink's where rows are late and at times of 0 and below (`docs/explanation/flink.md`). Their rows are
compared for the cases without either, and their parameters for all cases.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import operators
from operators import Deduplicate, IntervalJoin
from operators.engine_columns import WATERMARK
from operators.sql.errors import SqlError
from operators.sql.plan import plan
from operators.sql.relations import Apply, walk
from tests.oracle.cases import SQL, load, parse
from tests.support.shared_data import ORACLE

pytestmark = pytest.mark.skipif(not ORACLE.is_dir(), reason=f"Flink's recorded answers are not there: {ORACLE}")
FOLDERS = ("sql_window_join", "window_topn", "topn", "dedup", "sql_interval_join")
DECLARED = """
CREATE TABLE {name} (
  id BIGINT, k STRING, sub STRING, v BIGINT, n BIGINT, ts BIGINT, rt TIMESTAMP(3), pt AS PROCTIME(), WATERMARK FOR rt AS rt
);
"""
COLUMNS = {"id": pa.int64(), "k": pa.string(), "sub": pa.string(), "v": pa.int64(), "n": pa.int64(), "ts": pa.int64()}
SCHEMA = pa.schema({**COLUMNS, "w": pa.int64(), "seq": pa.int64(), "arrival": pa.int64()})
DIFFERS = {"retract_range_norn": "expected_final_model"}
"""Flink's changelog of this case is inconsistent; the rows of the true Top-N are recorded with it."""
REFUSED = {"err_agg_varend": "a rank is compared with a bound"}
REFUSED_BY_FLINK_ALONE = {"err_rank_function", "err_dense_rank_function"}
"""Flink refuses these functions on a stream; Tidemark has them, and tests of its own for them."""


def cases() -> list[dict[str, Any]]:
    return [load(path) for folder in FOLDERS for path in sorted(Path(ORACLE, folder).glob("*.json"))]


def statement(case: Mapping[str, Any]) -> str:
    names = {side: f"{side}0" if "0," in case["sql"] else side for side in "LR"} if is_join(case) else {"": "T"}
    return "".join(DECLARED.format(name=name) for name in names.values()) + case["sql"]


def is_join(case: Mapping[str, Any]) -> bool:
    return case["operator"] in ("sql_window_join", SQL)


def operator_of(case: Mapping[str, Any]) -> Any:
    """The outermost operator of a case's statement."""
    [planned] = plan(statement(case)).plans
    return next(r for r in walk(planned.relation) if isinstance(r, Apply)).operator


def rows_of(case: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The rows of a case, each with the watermark before it."""
    watermark: int | None = None
    for step, item in enumerate(case["input"]):
        if item["t"] == "w":
            watermark = item["ts"]
        else:
            yield {**item, "w": watermark, "seq": step, "arrival": 0}


def current(rows: Iterator[dict[str, Any]], key: str | None) -> list[dict[str, Any]]:
    """The rows that a changelog leaves, in the order in which each took its value."""
    found: list[dict[str, Any]] = []
    for row in rows:
        kind = row.get("kind", "+I")
        same = [r for r in found if (r[key] == row[key] if key else all(r.get(c) == row.get(c) for c in COLUMNS))]
        if same and (kind in ("-U", "-D") or key):
            found.remove(same[0])
        if kind in ("+I", "+U"):
            found.append(row)
    return found


def frames(spark: SparkSession, case: Mapping[str, Any]) -> dict[str, DataFrame]:
    key = {"retract_pk": "id", "upsert": "id"}.get(case["params"].get("source", ""))
    rows = current(rows_of(case), key) if case["operator"] == "topn" else list(rows_of(case))
    if not is_join(case):
        return {"T": frame(spark, rows, operator_of(case))}
    suffix = "0" if "0," in case["sql"] else ""
    return {f"{side}{suffix}": frame(spark, [r for r in rows if r["side"] == side], operator_of(case)) for side in "LR"}


def frame(spark: SparkSession, rows: Sequence[Mapping[str, Any]], operator: Any) -> DataFrame:
    table = pa.Table.from_pylist([{c: row.get(c) for c in SCHEMA.names} for row in rows], SCHEMA)
    made = spark.createDataFrame(table).withColumns({"rt": F.timestamp_millis("ts"), WATERMARK: F.timestamp_millis("w")}).drop("w")
    is_filtered = isinstance(operator, Deduplicate) and operator.window is None
    on_time = made.where(~operator.late(F.col("rt"), F.col(WATERMARK))) if is_filtered else made
    return on_time if getattr(operator.reads, "with_watermark", False) else on_time.drop(WATERMARK)


def expected(case: Mapping[str, Any]) -> Counter[str]:
    """Flink's final rows; for a case without an end, only the rows of closed windows."""
    rows = case[DIFFERS.get(case["name"], "expected_final" if "expected_final" in case else "expected")]
    return Counter(text_of(row) for row in rows)


def text_of(row: Mapping[str, Any]) -> str:
    return json.dumps({c: v for c, v in row.items() if c not in ("step", "kind")}, sort_keys=True)


def found_in(spark: SparkSession, compared: Sequence[Mapping[str, Any]]) -> dict[str, Counter[str]]:
    """The rows of statements by case, with times in ms; one Spark job for several statements."""
    found: dict[str, Counter[str]] = {f"{c['operator']}/{c['name']}": Counter() for c in compared}
    for part in (compared[n : n + 12] for n in range(0, len(compared), 12)):
        made: list[DataFrame] = []
        for case in part:
            rows = operators.sql(statement(case), frames(spark, case))
            times = {c: F.unix_millis(c) for c, kind in rows.dtypes if kind == "timestamp"}
            if case.get("end_watermark") is False and "window_end" in rows.columns:
                last = max(item["ts"] for item in case["input"] if item["t"] == "w")
                rows = rows.where(F.unix_millis("window_end") - 1 <= last)
            text = F.to_json(F.struct(*[times.get(c, F.col(c)).alias(c) for c in rows.columns]), {"ignoreNullFields": "false"})
            made.append(rows.select(F.lit(f"{case['operator']}/{case['name']}").alias("case_id"), text.alias("row")))
        for row in reduce(DataFrame.union, made).collect():
            found[row.case_id][text_of(json.loads(row.row))] += 1
    return found


@pytest.mark.usefixtures("interpreted_plans")
@pytest.mark.spark
@pytest.mark.parametrize("every", [2, pytest.param(1, marks=pytest.mark.oracle_all)], ids=["half of them", "all of them"])
def test_the_statements_give_the_rows_of_flink(spark: SparkSession, every: int):
    """Other tests of this folder run many of the same cases through the operators."""
    known = [c for c in cases() if c["name"] not in REFUSED and c["name"] not in REFUSED_BY_FLINK_ALONE]
    compared = [c for c in known if c["operator"] != SQL or c["name"].startswith("clean_")][::every]
    found = found_in(spark, compared)
    wrong = {}
    for case in compared:
        name, wanted = f"{case['operator']}/{case['name']}", expected(case)
        if found[name] != wanted:
            wrong[name] = f"lacks {list(wanted - found[name])[:2]}, has in addition {list(found[name] - wanted)[:2]}"
    assert wrong == {}
    assert {case["operator"] for case in compared} == {*FOLDERS}
    assert len(compared) > 75 // every
    assert sum(rows.total() for rows in found.values()) > 3_000 // every


def test_the_bounds_of_all_interval_joins_are_those_of_flink():
    joins = [(path, load(path)) for path in sorted(Path(ORACLE, SQL).glob("*.json"))]
    for path, content in joins:
        params, join = parse(path, content).params, operator_of(content)
        assert isinstance(join, IntervalJoin)
        closed = (params.lower + params.lower_exclusive, params.upper - params.upper_exclusive)
        assert (join.how, join.interval.lower, join.interval.upper) == (params.how, *closed), path.name
        assert (join.residual is None) == (params.residual is None), path.name
    assert len(joins) > 30


def test_a_variable_end_of_the_ranks_of_an_aggregate_is_refused_as_in_flink():
    refused = [c for c in cases() if c["name"] in REFUSED]
    assert refused
    for case in refused:
        with pytest.raises(SqlError, match=REFUSED[case["name"]]):
            operator_of(case)
