"""Top-N: in generated cases the leaderboard equals a naive model, and the changelog is the difference."""

import random
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema

from operators import ByKey, ColumnError, OperatorError, TopN, difference
from operators._support.ordering import Ordering
from tests.operators.frames import frame
from tests.support.json_rows import dicts_of
from tests.support.top_n_model import Row, TopNModel, size_of_difference

BATCHES = 3
SCHEMA = pa.schema(
    {
        "case_id": pa.int32(),
        "k": pa.string(),
        "id": pa.int32(),
        "v": pa.int32(),
        "w": pa.string(),
        "n": pa.int32(),
        "seq": pa.int64(),
        "arrival": pa.int64(),
        "change": pa.string(),
    }
)
Rows = list[Row]


def _row(choose: random.Random, **own: Any) -> Row:
    made = {"k": choose.choice(["a", "b", None]), "id": choose.randrange(6), "v": choose.choice([None, 1, 2, 2, 3]), "change": "+I"}
    return {**made, "w": choose.choice(["x", "y", None]), "n": choose.choice([1, 2, 3, 0, -1, None]), **own}


def _appended(choose: random.Random) -> list[Rows]:
    return [[_row(choose) for _ in range(choose.randrange(5))] for _ in range(BATCHES)]


def _rising(choose: random.Random) -> list[Rows]:
    """The value of a key never decreases."""
    known: dict[tuple[str | None, int], int] = {}
    batches: list[Rows] = []
    for _ in range(BATCHES):
        rows = [_row(choose) for _ in range(choose.randrange(5))]
        for row in rows:
            row["v"] = known[row["k"], row["id"]] = known.get((row["k"], row["id"]), 0) + choose.randrange(1, 3)
        batches.append([{**row, "w": "x"} for row in rows])
    return batches


def _changed(choose: random.Random, keyed: bool) -> list[Rows]:
    """Inserts, updates that may change the partition, deletes, and inserts of deleted rows."""
    current: Rows = []
    batches: list[Rows] = []
    for _ in range(BATCHES):
        rows: Rows = []
        for _ in range(choose.randrange(5)):
            free = {*range(6)} - {r["id"] for r in current}
            if not current or (choose.random() < 0.5 and free):
                new = _row(choose, **({"id": choose.choice(sorted(free))} if keyed else {}))
                current.append(new)
                rows.append({**new, "change": "+I"})
                continue
            old = current.pop(choose.randrange(len(current)))
            if choose.random() < 0.4:
                rows.append({**old, "change": "-D"})
                continue
            new = _row(choose, id=old["id"])
            current.append(new)
            rows += [{**old, "change": "-U"}, {**new, "change": "+U"}]
        batches.append(rows)
    return batches


@dataclass(frozen=True)
class Spec:
    """An operator, and its kind of input."""

    id: str
    make: Callable[[random.Random], list[Rows]]
    top: dict[str, Any]
    order_by: tuple[str, ...] = ("v DESC",)
    by: tuple[str, ...] = ("k",)
    key: tuple[str, ...] = ()
    has_changes: bool = False
    strategy: str = "retract"

    def operator(self) -> TopN:
        """The operator over many cases in one frame."""
        key = ("case_id", *self.key) if self.key else ()
        has_changes = {"change": "change"} if self.has_changes else {}
        return TopN(by=("case_id", *self.by), order_by=self.order_by, unique_key=key, **has_changes, **self.top)

    def model(self) -> TopNModel:
        """The naive model of one case."""
        order = [(o.column, o.descending, o.nulls_first) for o in (Ordering.read(text, "") for text in self.order_by)]
        top = {"rank_start": 1, "function": "row_number", **self.top}
        return TopNModel(order, top["rank_end"], top["rank_start"], top["function"], self.by, self.key, self.has_changes)


def _keyed_changes(choose: random.Random) -> list[Rows]:
    return _changed(choose, keyed=True)


def _changes_in_place(choose: random.Random) -> list[Rows]:
    """No row leaves its partition."""
    return [[{**row, "k": ("a", "b", None)[row["id"] % 3]} for row in rows] for rows in _keyed_changes(choose)]


def _unkeyed_changes(choose: random.Random) -> list[Rows]:
    return _changed(choose, keyed=False)


def _unpaired_changes(choose: random.Random) -> list[Rows]:
    """Few values, added and removed at random: some rows are removed before they are added."""
    kinds, batches = ("+I", "+I", "+U", "-D", "-U"), range(BATCHES)
    few = [{"k": "a", "id": n % 2, "v": n // 2, "w": "x", "n": 1} for n in range(4)]
    return [[{**choose.choice(few), "change": choose.choice(kinds)} for _ in range(choose.randrange(7))] for _ in batches]


SPECS = [
    Spec("append", _appended, {"rank_end": 2}, strategy="append"),
    Spec("append, first of all, nulls last", _appended, {"rank_end": 1}, ("v ASC NULLS LAST", "w DESC"), by=(), strategy="append"),
    Spec("append, nulls first", _appended, {"rank_end": 3, "with_rank": False}, ("v DESC NULLS FIRST", "w"), strategy="append"),
    Spec("append, rank", _appended, {"rank_end": 2, "function": "rank"}, strategy="append"),
    Spec("append, dense rank", _appended, {"rank_end": 2, "function": "dense_rank", "with_rank": False}, strategy="append"),
    Spec("append, range", _appended, {"rank_end": 3, "rank_start": 2}),
    Spec("append, end of the first row", _appended, {"rank_end": "n"}),
    Spec("append, end of the first row, no rank", _appended, {"rank_end": "n", "with_rank": False, "rank_start": 2}),
    Spec("rising", _rising, {"rank_end": 2, "monotonic": True}, key=("k", "id"), strategy="update"),
    Spec("rising, no rank", _rising, {"rank_end": 2, "monotonic": True, "with_rank": False}, key=("k", "id"), strategy="update"),
    Spec("rising, dense rank", _rising, {"rank_end": 2, "monotonic": True, "function": "dense_rank"}, key=("k", "id")),
    Spec("rising, rank", _rising, {"rank_end": 2, "monotonic": True, "function": "rank"}, key=("k", "id"), strategy="update"),
    Spec("upserts", _appended, {"rank_end": 2}, key=("id",)),
    Spec("upserts, no rank", _appended, {"rank_end": 2, "with_rank": False}, ("v", "w"), key=("id",)),
    Spec("upserts, range, rank", _appended, {"rank_end": 3, "rank_start": 2, "function": "rank"}, key=("id",)),
    Spec("changes by key", _keyed_changes, {"rank_end": 2}, key=("id",), has_changes=True),
    Spec("changes by key, no rank", _keyed_changes, {"rank_end": 2, "with_rank": False}, key=("id",), has_changes=True),
    Spec("changes by key, range", _keyed_changes, {"rank_end": 3, "rank_start": 2}, ("v NULLS LAST", "w"), key=("id",), has_changes=True),
    Spec("upserts, end of the first row", _appended, {"rank_end": "n"}, key=("k", "id")),
    Spec("changes by key, end of the first row", _changes_in_place, {"rank_end": "n"}, key=("k", "id"), has_changes=True),
    Spec("changes", _unkeyed_changes, {"rank_end": 2}, has_changes=True),
    Spec("changes, range, no rank", _unkeyed_changes, {"rank_end": 3, "rank_start": 2, "with_rank": False}, has_changes=True),
    Spec("changes, rank", _unkeyed_changes, {"rank_end": 2, "function": "rank"}, ("v DESC", "w"), has_changes=True),
    Spec("changes, some of nothing", _unpaired_changes, {"rank_end": 3}, has_changes=True),
    Spec("changes, dense rank, all", _unkeyed_changes, {"rank_end": 2, "function": "dense_rank"}, by=(), has_changes=True),
]
MORE_SPECS = [
    Spec("append, no rank", _appended, {"rank_end": 2, "with_rank": False}, strategy="append"),
    Spec("append, first of all", _appended, {"rank_end": 1}, ("v ASC", "w DESC"), by=(), strategy="append"),
    Spec("append, nulls last", _appended, {"rank_end": 3}, ("v ASC NULLS LAST",), strategy="append"),
    Spec("append, range, no rank", _appended, {"rank_end": 3, "rank_start": 2, "with_rank": False}),
    Spec("changes, no rank", _unkeyed_changes, {"rank_end": 2, "with_rank": False}, has_changes=True),
]
"""More combinations of parameters, for soak."""


def _cases(spec: Spec, number: int) -> list[list[Rows]]:
    """The rows of every case batch by batch: `arrival` counts over all of them."""
    arrivals, batches = count(), [[] for _ in range(BATCHES)]
    for case_id in range(number):
        for seq, rows in enumerate(spec.make(random.Random(f"{spec.id} {case_id}")), 1):
            batches[seq - 1].append([{**row, "case_id": case_id, "seq": seq, "arrival": next(arrivals)} for row in rows])
    return batches


def _frame(spark: SparkSession, rows: Rows, has_changes: bool) -> DataFrame:
    made = spark.createDataFrame(pa.Table.from_pylist(rows, SCHEMA))
    return made if has_changes else made.drop("change")


def _table(rows: list[tuple[Any, ...]], columns: list[str], key: tuple[str, ...], of: tuple[str, str, int]) -> dict[Any, Any]:
    """A keyed table; each key once. `of` names the table if a key is repeated."""
    at = [columns.index(c) for c in key]
    found = {tuple(row[n] for n in at): row for row in rows}
    assert len(found) == len(rows), of
    return found


class _Run:
    """The cases of a spec, batch by batch: the frames that Spark computes, and the table that the model has."""

    def __init__(self, spark: SparkSession, spec: Spec, cases: int, *, in_each_batch: bool) -> None:
        self._spark, self.spec, self._cases, self._in_each_batch = spark, spec, _cases(spec, cases), in_each_batch
        self._models, self._operator = [spec.model() for _ in range(cases)], spec.operator()
        self._all_rows, self._kept, self._current = Rows(), Rows(), self._operator(_frame(spark, [], spec.has_changes))
        self.columns, self.before = self._current.columns, dict[Any, Any]()
        self.changes, self.sizes = dict[str, DataFrame](), dict[str, Counter[str]]()
        assert self._operator.strategy_used == spec.strategy

    def frames(self, number: int) -> dict[str, DataFrame]:
        """The table after a batch: from all rows, and from the table before it or the rows that were kept; and the rows to be kept.

        The table is computed from all rows after the last batch, and only if `in_each_batch` also after those before it.
        """
        operator, has_changes, is_last = self._operator, self.spec.has_changes, number == BATCHES - 1
        new = [row for rows in self._cases[number] for row in rows]
        for row in new:
            self._models[row["case_id"]].apply(row)
        self._all_rows += new
        frames = {"all_rows": operator(_frame(self._spark, self._all_rows, has_changes))} if is_last or self._in_each_batch else {}
        if operator.strategy_used != "retract":
            return frames | {"merged": operator.fold(self._current, _frame(self._spark, new, has_changes))}
        if not isinstance(operator.reads, ByKey) or not operator.reads.keeps:
            return frames
        kept_and_new = _frame(self._spark, self._kept + new, has_changes)
        kept = {"kept": operator(kept_and_new)} if number else {}  # before the first batch, there are none
        return frames | kept | ({} if is_last else {"needed": operator.still_needed(kept_and_new, None)})

    def check(self, number: int, found: dict[str, Rows]) -> None:
        """Compare the table after a batch with the model."""
        key, columns = self._operator.emits.key, self.columns
        if "needed" in found:
            self._kept = [{**dict.fromkeys(SCHEMA.names), **row} for row in found.pop("needed")]
        ranked = [(*[row[c] for c in columns if c != "rank"], rank) for model in self._models for row, rank in model.ranks()]
        wanted = _table([_table_values(row, columns) for row in ranked], columns, key, (self.spec.id, "model", number))
        for name, rows in found.items():
            of = (self.spec.id, name, number)
            assert _table([tuple(row[c] for c in columns) for row in rows], columns, key, of) == wanted, of
        self.sizes[str(number)] = size_of_difference(self.before, wanted)
        # Spark would start Python processes for a list of rows
        after = frame(self._spark, wanted.values(), to_arrow_schema(self._current.schema))
        self.changes[str(number)] = difference(self._current, after, key=key).select("change")
        self.before, self._current = wanted, after

    def check_kept_rows(self) -> None:
        """Some rows are kept, and some are not, if rows may have to be ranked again. The last table has rows of many cases."""
        assert len(self.before) > len(self._models) // 2, self.spec.id
        rows_before_last_batch = len(self._all_rows) - sum(map(len, self._cases[-1]))
        assert (0 < len(self._kept) < rows_before_last_batch) == (self._operator.strategy_used == "retract"), self.spec.id


@pytest.mark.parametrize("cases", [100, pytest.param(420, marks=pytest.mark.soak)])
@pytest.mark.parametrize("kind", dict.fromkeys(spec.id.split(",")[0] for spec in SPECS))
def test_the_leaderboard_equals_the_model_and_the_changelog_its_difference(spark: SparkSession, kind: str, cases: int) -> None:
    """One query has the tables of all specs of a kind of input after a batch, and one all changes.

    Of 100 cases, the table is computed from all rows after the last batch only, from the former table after each batch, and from kept rows
    after each batch but the first.
    """
    specs = SPECS if cases == 100 else SPECS + MORE_SPECS
    runs = [_Run(spark, spec, cases, in_each_batch=cases > 100) for spec in specs if spec.id.split(",")[0] == kind]
    for number in range(BATCHES):
        frames = {(run.spec.id, name): rows for run in runs for name, rows in run.frames(number).items()}
        found = dicts_of(frames)
        for run in runs:
            run.check(number, {name: rows for (spec, name), rows in found.items() if spec == run.spec.id})
    changes = dicts_of({(run.spec.id, number): rows for run in runs for number, rows in run.changes.items()})
    sizes = {(run.spec.id, number): size for run in runs for number, size in run.sizes.items()}
    assert {at: Counter(row["change"] for row in rows) for at, rows in changes.items()} == sizes
    for run in runs:
        run.check_kept_rows()


def _table_values(row: tuple[Any, ...], columns: list[str]) -> tuple[Any, ...]:
    """The values of a ranked row in the table: without its rank, which is last, if the table has no such column."""
    return row if "rank" in columns else row[:-1]


def test_the_former_name_of_monotonic_still_works_with_a_warning() -> None:
    spec: dict[str, Any] = {"by": "k", "order_by": "v DESC", "rank_end": 1, "unique_key": ("k", "id")}
    with pytest.warns(DeprecationWarning, match="the parameter `improving` of TopN is now `monotonic`; rename it"):
        former = TopN(**spec, improving=True)
    assert former == TopN(**spec, monotonic=True)
    assert replace(former, rank_end=2).monotonic


@pytest.mark.parametrize(
    ("spec", "used", "why"),
    [
        ({}, "append", []),
        ({"rank_start": 2}, "retract", ["not append: ranks from `rank_start` depend on the rows before it"]),
        ({"rank_end": "n"}, "retract", ["not append: a partition's rank end is that of its first row"]),
        ({"unique_key": ("k", "id"), "monotonic": True}, "update", ["not append: rows are replaced or retracted"]),
        ({"unique_key": "id", "monotonic": True}, "retract", ["not update: a row may leave its partition; put the columns of `by`"]),
        ({"unique_key": ("k", "id")}, "retract", ["not update: a row may move behind a row that is not kept; set `monotonic`"]),
        (
            {"unique_key": ("k", "id"), "monotonic": True, "function": "dense_rank"},
            "retract",
            ["not update: a row that moves up can empty a rank"],
        ),
        ({"ttl": "1 hour"}, "retract", ["not append: a partition's newest row, from which its `ttl` counts"]),
        ({"change": "c", "unique_key": "id"}, "retract", ["not append: rows are replaced or retracted"]),
        ({"strategy": "retract"}, "retract", []),
    ],
)
def test_the_strategy_follows_from_the_properties_of_the_input(spec: dict[str, Any], used: str, why: list[str]) -> None:
    top = TopN(**{"by": "k", "order_by": "v DESC", "rank_end": 3, **spec})
    assert top.strategy_used == used
    lines = top.explain().splitlines()
    assert lines[0].startswith(f"{used} (set by `strategy`): " if "strategy" in spec else f"{used}: ")
    assert all(any(line.startswith(w) for line in lines[1:]) for w in why)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"rank_end": 0}, "`rank_end` is 0; legal: a whole number of at least 1, and at most 10**18, or the column that holds it"),
        ({"rank_end": None}, "`rank_end` is None"),
        ({"rank_end": 2.5}, "`rank_end` is 2.5"),
        ({"rank_start": 1.5}, "`rank_start` is 1.5"),
        ({"rank_start": 4}, "`rank_start` is 4; legal: a whole number from 1 to `rank_end`, and at most 10**18"),
        ({"order_by": ()}, "`order_by` is (); legal: at least one column"),
        ({"function": "ntile"}, "`function` is 'ntile'; legal: row_number, rank, dense_rank"),
        ({"monotonic": True}, "`monotonic` is True; legal: true with a `unique_key`, by which"),
        ({"ttl": "0 ms"}, "`ttl` is '0 ms'; legal: a duration of more than zero, or None for no limit"),
        ({"ttl": "1 day", "ttl_by": "wall"}, "`ttl_by` is 'wall'; legal: event, processing"),
        ({"after_ttl": "retract"}, "`after_ttl` is 'retract'; legal: keep; or retract, with a `ttl` and a key (`by`) that expires"),
        ({"ttl": "1 day", "after_ttl": "drop"}, "`after_ttl` is 'drop'; legal: keep"),
        ({"ttl": "1 day", "strategy": "append"}, "legal: retract: a partition's newest row, from which its `ttl` counts"),
        ({"strategy": "sort"}, "`strategy` is 'sort'; legal: append, update, retract"),
        ({"strategy": "append", "rank_start": 2}, "`strategy` is 'append'; legal: retract: ranks from `rank_start` depend"),
        ({"strategy": "append", "unique_key": "id"}, "legal: retract: rows are replaced or retracted, and the rows that would"),
        ({"strategy": "update"}, "`strategy` is 'update'; legal: append, retract: there is no `unique_key` to replace a row by"),
    ],
)
def test_an_illegal_parameter_is_refused_with_the_reason(spec: dict[str, Any], message: str) -> None:
    with pytest.raises(OperatorError, match=re.escape(message)):
        TopN(**{"by": "k", "order_by": "v DESC", "rank_end": 3, **spec})


def test_a_missing_rank_end_is_refused() -> None:
    with pytest.raises(OperatorError, match="`rank_end` is None; legal: a whole number of at least 1"):
        TopN(by="k", order_by="v DESC")


def test_a_row_of_an_unknown_change_kind_is_ignored(spark: SparkSession) -> None:
    rows = spark.sql("SELECT * FROM VALUES (1, '+I', 1, 0), (1, 'insert', 1, 1), (1, null, 1, 2), (2, '-D', 1, 3) AS t(v, c, seq, arrival)")
    assert [r.v for r in TopN(order_by="v", rank_end=5, change="c")(rows).collect()] == [1]
    assert [r.v for r in TopN(order_by="v", rank_end=5, change="c", unique_key="v")(rows).collect()] == [1]
    first = rows.withColumns({"n": F.expr("if(c = '+I', 3, 0)"), "seq": F.expr("if(c = 'insert', 0, 1)")})
    assert [r.v for r in TopN(order_by="v", rank_end="n", change="c")(first).collect()] == [1]


def test_a_retraction_removes_a_row_that_counts_and_not_an_expired_one(spark: SparkSession) -> None:
    rows = spark.sql(
        "SELECT 'a' AS k, 5 AS v, c, seq, arrival, timestamp_seconds(at) AS event_time FROM VALUES "
        "('+I', 1, 0, 0), ('+I', 1, 1, 3600), ('+I', 1, 2, 3600), ('-D', 1, 3, 3600) AS t(c, seq, arrival, at)"
    )
    top = TopN(by="k", order_by="v", rank_end=5, change="c", ttl="10 minutes")
    assert [row.v for row in top(rows).collect()] == [5]
    assert top(rows.where("arrival <> 1")).collect() == []


def test_illegal_frames_are_refused_and_partitions_without_ranks_are_listed(spark: SparkSession) -> None:
    rows = spark.sql("SELECT * FROM VALUES ('a', 1, 0), ('b', 1, null), ('c', 1, 2), ('d', 1, -4) AS t(k, v, n)")
    with pytest.raises(ColumnError, match="`rank_end` names the column 'k' of type string; legal: a whole number"):
        TopN(by="k", order_by="v", rank_end="k")(rows)
    with pytest.raises(ColumnError, match="`rank_end` names the column 'm', which the frame does not have"):
        TopN(by="k", order_by="v", rank_end="m")(rows)
    top = TopN(by="k", order_by="v", rank_end="n")
    assert [(r.k, r["rank"]) for r in top(rows).collect()] == [("c", 1)]
    assert sorted((r.k, r.rank_end) for r in top.partitions_without_ranks(rows).collect()) == [("a", 0), ("b", None), ("d", -4)]
