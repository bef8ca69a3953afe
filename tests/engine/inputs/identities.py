"""The stored identities of every operator, and of tables in SQL: `python -m tests.engine.inputs.identities` records those of new cases.

`identities.json` is a record of what tables of users contain. Change an entry only if tables with it are to be refused. CHANGELOG.md must
then say so.
"""

import dataclasses
import inspect
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import operators
from assets.contracts import DerivedAsset, Preparation, Shape
from operators import (
    Aggregate,
    AsOfJoin,
    CoGroup,
    Consecutive,
    CountEvictor,
    CountWindowAggregate,
    Cumulative,
    Deduplicate,
    DeltaEvictor,
    EveryInterval,
    EveryRows,
    IntervalJoin,
    ProcessCountWindow,
    ProcessWindow,
    Select,
    Session,
    Sliding,
    TimeEvictor,
    TopK,
    TopN,
    Tumbling,
    WindowedAggregate,
    WindowJoin,
)
from operators.contract import ASIDE, Operator
from platform_defs.declared.sql_pipeline import read_sql
from platform_defs.engine.inputs.identity import identity_of

FILE = Path(__file__).with_name("identities.json")
_PREFIXES: dict[str, Any] = {"left_prefix": "l_", "right_prefix": "r_"}
_HOUR = Tumbling(size="1 hour", offset="-8 hours")
_COUNT = {"n": "count(*)"}
OPERATORS: dict[str, Operator] = {
    "Aggregate": Aggregate(by="k", aggregates={"n": "count(*)", "s": "sum(v)"}, ttl="1 day", ttl_by="processing", after_ttl="retract"),
    "AsOfJoin": AsOfJoin(on=("k", "j"), how="left", change="kind", max_age="7 days", allowed_lateness="5 minutes", **_PREFIXES),
    "AsOfJoin by arrival": AsOfJoin(on="k", as_of="arrival"),
    "CoGroup": CoGroup(
        on="k",
        window=Session(gap="30 minutes", longest="6 hours"),
        rows="array(named_struct('n', size(left)))",
        allowed_lateness="1 hour",
        evictor=TimeEvictor("10 minutes"),
    ),
    "CoGroup that purges": CoGroup(on="k", window=_HOUR, purging=EveryRows(10)),
    "Consecutive": Consecutive(of=WindowedAggregate(by="k", window=_HOUR, aggregates=_COUNT), then=TopK(k=3, order_by="n DESC")),
    "CountWindowAggregate": CountWindowAggregate(by="k", size=10, slide=2, aggregates=_COUNT, evictor=CountEvictor(3)),
    "CountWindowAggregate up to a row": CountWindowAggregate(by="k", aggregates=_COUNT, ends_with="v = 0"),
    "Deduplicate": Deduplicate(by="k", keep="last", order="arrival", ttl="1 hour", ttl_by="processing", after_ttl="retract"),
    "Deduplicate of windows": Deduplicate(
        by=("k", "j"), window=Cumulative(size="1 day", step="1 hour", offset="1 hour"), allowed_lateness="1 hour"
    ),
    "IntervalJoin": IntervalJoin(
        on="k",
        lower="-5 minutes",
        upper="10 minutes",
        lower_exclusive=True,
        upper_exclusive=True,
        how="left",
        residual="left.v < right.v",
        allowed_lateness="1 hour",
        **_PREFIXES,
    ),
    "IntervalJoin of late rows": IntervalJoin(on="k", lower="-1 hour", upper="1 hour", how="full", late_rows="join"),
    "IntervalJoin with the left time": IntervalJoin(on="k", lower=0, upper="1 hour", how="left", result_time="left"),
    "ProcessCountWindow": ProcessCountWindow(
        by="k", size=10, slide=2, rows="transform(elements, e -> named_struct('v', e.v))", evictor=DeltaEvictor("v", 10)
    ),
    "ProcessCountWindow up to a row": ProcessCountWindow(by="k", ends_with="v = 0"),
    "ProcessWindow": ProcessWindow(
        by="k", window=_HOUR, rows="transform(elements, e -> named_struct('v', e.v))", allowed_lateness="1 hour", evictor=CountEvictor(3)
    ),
    "ProcessWindow that purges": ProcessWindow(by="k", window=_HOUR, purging=EveryInterval("10 minutes")),
    "Select": Select(allowed_lateness="1 hour"),
    "TopK": TopK(k=3, order_by=("n DESC", "k"), by="g", window=_HOUR, allowed_lateness="1 hour"),
    "TopN": TopN(
        by="k", order_by="v DESC NULLS LAST", rank_end="v", function="rank", with_rank=False, change="kind", unique_key=("k", "v")
    ),
    "TopN of keys that expire": TopN(by="k", order_by="v", rank_start=2, rank_end=5, ttl="1 day", ttl_by="processing", after_ttl="retract"),
    "TopN of rising rows": TopN(by="k", order_by="v DESC", rank_end=1, unique_key="k", monotonic=True),
    "WindowJoin": WindowJoin(
        on="k",
        window=Sliding(size="1 hour", slide="10 minutes", offset="1 minute"),
        how="full",
        residual="left.v < right.v",
        allowed_lateness="1 hour",
        evictor=CountEvictor(3),
        **_PREFIXES,
    ),
    "WindowJoin that purges": WindowJoin(on="k", window=_HOUR, purging=EveryRows(10)),
    "WindowedAggregate": WindowedAggregate(
        by=("k", "j"), window=_HOUR, aggregates=_COUNT, allowed_lateness="1 hour", grouping_sets=(("k", "j"), ("k",), ())
    ),
    "WindowedAggregate that purges": WindowedAggregate(
        by="k", window=_HOUR, aggregates=_COUNT, evictor=CountEvictor(3), purging=EveryInterval("10 minutes")
    ),
}
"""Operators by a name. Each parameter that is part of an identity has a value that is not its default in at least one of them."""
PREPARED = DerivedAsset(
    name="t",
    inputs=("a", "b"),
    operator=IntervalJoin(on="k", lower=0, upper="1 hour"),
    prepare={"a": Preparation(where="v > 0", select="k, v"), "b": Preparation(select="k, v * 2 AS w")},
    shape=Shape(select="*, w - v AS more"),
    version="2",
)
SHAPED = DerivedAsset(
    name="t", inputs=("a",), operator=Aggregate(by="k", aggregates=_COUNT), shape=Shape(where="n > 1", select="*, n * 2 AS twice")
)
_FILES = "WITH ('connector' = 'filesystem', 'format' = 'json')"
SQL = f"""
CREATE TABLE s (k STRING, v INT, w BIGINT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND) {_FILES};
CREATE TABLE r (k STRING, x INT, rt TIMESTAMP(3), WATERMARK FOR rt AS rt - INTERVAL '5' SECOND) {_FILES};
CREATE TABLE versions (k STRING, rate INT, ut TIMESTAMP(3), WATERMARK FOR ut AS ut, PRIMARY KEY (k) NOT ENFORCED) {_FILES};
INSERT INTO selected SELECT k, v * 2 AS twice, ts FROM s WHERE v > 0;
INSERT INTO tumbled SELECT k, window_start, window_end, COUNT(*) AS n, SUM(v) AS total
FROM TUMBLE(TABLE s, DESCRIPTOR(ts), INTERVAL '10' MINUTES) GROUP BY k, window_start, window_end HAVING COUNT(*) > 1;
INSERT INTO hopped SELECT window_start, window_end, MAX(v) AS most
FROM HOP(TABLE s, DESCRIPTOR(ts), INTERVAL '5' MINUTES, INTERVAL '10' MINUTES) GROUP BY window_start, window_end;
INSERT INTO cumulated SELECT k, window_start, window_end, COUNT(*) FILTER (WHERE v > 0) AS n
FROM CUMULATE(TABLE s, DESCRIPTOR(ts), INTERVAL '1' HOUR, INTERVAL '1' DAY) GROUP BY GROUPING SETS ((k), ()), window_start, window_end;
INSERT INTO sessions SELECT k, window_start, window_end, COUNT(*) AS n
FROM SESSION(TABLE s PARTITION BY k, DESCRIPTOR(ts), INTERVAL '5' MINUTES) GROUP BY k, window_start, window_end;
INSERT INTO joined SELECT s.k, s.v, r.x FROM s LEFT JOIN r
ON s.k = r.k AND r.rt BETWEEN s.ts - INTERVAL '1' HOUR AND s.ts + INTERVAL '1' HOUR AND s.v < r.x;
INSERT INTO rated SELECT s.k, s.v * versions.rate AS amount FROM s JOIN versions FOR SYSTEM_TIME AS OF s.ts ON s.k = versions.k;
INSERT INTO first_rows SELECT k, v, ts FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY ts) AS n FROM s) WHERE n = 1;
INSERT INTO highest SELECT * FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY v DESC) AS n FROM s) WHERE n <= 3;
INSERT INTO sums SELECT k, COUNT(*) AS n, SUM(w) AS total, AVG(v) AS mean FROM s GROUP BY k;
INSERT INTO top_of_windows SELECT * FROM (
  SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end ORDER BY n DESC) AS rownum FROM (
    SELECT k, window_start, window_end, COUNT(*) AS n FROM TUMBLE(TABLE s, DESCRIPTOR(ts), INTERVAL '10' MINUTES)
    GROUP BY k, window_start, window_end)) WHERE rownum <= 3;
"""


def tables() -> dict[str, DerivedAsset]:
    """The tables whose identities are recorded, by name: those of operators, and those of SQL."""
    named = {
        name: DerivedAsset(name="t", inputs=tuple(f"input{n}" for n, _ in enumerate(operator.inputs)), operator=operator)
        for name, operator in OPERATORS.items()
    }
    return {**named, "prepared": PREPARED, "shaped": SHAPED} | {f"SQL: {table.name}": table for table in read_sql(SQL).tables}


def configured_classes() -> dict[str, type]:
    """The classes whose parameters are in identities: operators, windows, triggers, evictors, and how a table is prepared and shaped."""
    exported = {name: kind for name, kind in vars(operators).items() if inspect.isclass(kind) and kind.__module__.startswith("operators")}
    parts = ("operators.windows", "operators.triggers", "operators.evictors")
    is_part = {name for name, kind in exported.items() if kind.__module__ in parts or {"reads", "emits"} <= {*dir(kind)}}
    classes = {name: kind for name, kind in exported.items() if name in is_part and dataclasses.is_dataclass(kind)}
    found = {name: kind for name, kind in classes.items() if kind is not operators.TriggerContext}  # the engine makes it
    return {**found, "Preparation": Preparation, "Shape": Shape}


def defaults_of(kind: type) -> dict[str, str]:
    """The defaults of a class's parameters that identities have, as text; a parameter without a default is not in it."""
    fields = [field for field in dataclasses.fields(kind) if field.init and ASIDE not in field.metadata]
    return {field.name: repr(field.default) for field in fields if field.default is not dataclasses.MISSING}


def recorded() -> dict[str, dict[str, Any]]:
    """The record: `identities` by the names of `tables`, and `defaults` by class."""
    return json.loads(FILE.read_text("utf-8"))


def main() -> None:
    """Add what the record lacks. What it has stays as it is."""
    before = recorded() if FILE.exists() else {"defaults": {}, "identities": {}}
    identities = {name: json.loads(identity_of(table)) for name, table in tables().items()} | before["identities"]
    defaults = {name: defaults_of(kind) | before["defaults"].get(name, {}) for name, kind in configured_classes().items()}
    parts = {"defaults": before["defaults"] | defaults, "identities": identities}
    FILE.write_text("{\n" + ",\n".join(f'"{name}": {{\n{_lines(part)}\n}}' for name, part in parts.items()) + "\n}\n", "utf-8")


def _lines(part: Mapping[str, Any]) -> str:
    """A part of the record, with a line for each entry."""
    return ",\n".join(f" {json.dumps(name)}: {json.dumps(part[name], sort_keys=True)}" for name in sorted(part))


if __name__ == "__main__":
    main()
