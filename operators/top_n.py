"""Top-N: the first rows of each partition by an order, updated as rows are added, replaced and deleted."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import get_args

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from operators._support.ordering import Ordering, canonical_order
from operators._support.time_to_live import AfterTtl, TimeToLive
from operators._support.top_n_execution import (
    check_rows,
    count_other_rank_ends,
    rank_again,
    rank_all,
    rows_still_needed,
    unranked_partitions,
)
from operators._support.top_n_plan import Function, Strategy, TopNQuery
from operators._support.top_n_promise import keys_moved_back, keys_moving_back
from operators.columns import RANK, check_distinct, names
from operators.contract import ASIDE, CANONICAL, FORMER_NAME, NEVER_LATE
from operators.engine_columns import ARRIVAL, SEQ, drop_engine_columns
from operators.errors import OperatorError, StreamingError, is_count
from operators.parameters import accepts_former_names, check_column, check_columns, check_flag, check_orders, is_name
from operators.steps import ByKey, Kept, NewRows, Upsert
from operators.timing import Duration, TimeKind


@accepts_former_names
@dataclass(frozen=True, kw_only=True)
class TopN:
    """The rows of each partition with `rank_start <= rank <= rank_end`, kept up to date, with a changelog. There are no windows.

    The ranks are those of SQL's `ROW_NUMBER() OVER (PARTITION BY by ORDER BY order_by)` over all current rows.

    The order is total: of rows that are equal by `order_by`, the one that arrived first comes first (by `seq` and `arrival`, which are
    columns of the result), and an update moves a row to the end of its ties. `rank` and `dense_rank` give ties one rank, so that a
    partition can show more than N rows. A null is an ordinary partition. Event time is not used, so no row is late.

    The input's rows have one of three meanings:

    - Without `unique_key` and `change`, rows are added and stay forever.
    - With `unique_key` alone, a row replaces the row with its key.
    - With `change`, each row has a change kind in Flink's terms: `+I`, `-U`, `+U` or `-D`. A row with any other kind is ignored: let a
      row rule of the source reject those. A `-U` or `-D` takes back the row with its `unique_key`. Without `unique_key` it takes back
      the oldest row that is equal in every column except `event_time`, `seq` and `arrival` (and `commit_version` and `committed_at`,
      which describe the commit of a change data feed). If there is no such row, the `-U` or `-D` is ignored.

    With `ttl`, a partition expires if it gets no new row for longer than `ttl`: when it gets a row again, its older rows no longer count.
    `after_ttl` decides what happens to the rows of an expired partition: they stay until its next row, or the engine removes them with
    the first step after the expiry. `ttl` is not available if the input is an upserted table of the engine; over a table of final
    results, a step reads every row of the partitions of its new rows.

    The semantics are those of Flink SQL's Top-N; `rank` and `dense_rank`, which Flink refuses on streams, are those of SQL.

    Args:
        order_by: columns, each optionally followed by `ASC` or `DESC` and by `NULLS FIRST` or `NULLS LAST`. By default nulls are the
            smallest values.
        rank_end: the last rank to show, at least 1, or the column that holds it: the value in the first row of a partition is the
            partition's forever (if the input is an upserted table, the value in the oldest current row). A partition whose value is null,
            zero or less shows nothing; `partitions_without_ranks` lists those partitions.
        by: the columns of a partition; empty for one ranking of all rows.
        rank_start: the first rank to show.
        function: how ranks are counted: `row_number`, `rank` or `dense_rank`.
        with_rank: whether the result has the column `rank`. Without this column, a row that only moves to another rank is no change.
        unique_key: the columns by which a row replaces another.
        change: the column with a row's change kind.
        monotonic: promise that a row that replaces another always comes before it in the order, and that no row is deleted. Only with
            `unique_key`. A step that finds the promise violated is refused, and says how many keys violate it. The promise is not needed
            for a count, a maximum, or a sum of values that a row rule keeps from being negative, if the input is an `Aggregate` of the
            pipeline: see `rises`. A call with its former name, `improving`, still works and warns.
        ttl: how long the rows of a partition count after its newest row; None for no limit.
        ttl_by: whether `ttl` is `event` time, by the watermark, or `processing` time, by the ledger's clock.
        after_ttl: whether to `keep` or to `retract` the rows of an expired partition.
        strategy: how a step computes the result: `append`, `update` or `retract`; None for the cheapest strategy that is right for the
            input. `explain()` says which one that is, and why other strategies could give a wrong result.
        rises: why rows are known to move up only, as for `monotonic`; empty if that is not known. The pipeline sets `rises` if the input
            guarantees it, as for a count with `DESC`. A step in which a row moves back nevertheless is computed by `retract`.

    Raises:
        OperatorError: a parameter, a column or a streaming frame is not usable; the text says what is legal.

    >>> TopN(by="category", order_by="revenue DESC", rank_end=10).strategy_used
    'append'
    """

    order_by: str | Sequence[str] = field(metadata={CANONICAL: canonical_order})
    rank_end: int | str | None = None
    by: str | Sequence[str] = ()
    rank_start: int = 1
    function: Function = "row_number"
    with_rank: bool = True
    unique_key: str | Sequence[str] = ()
    change: str | None = None
    monotonic: bool = field(default=False, metadata={FORMER_NAME: "improving"})
    ttl: Duration | None = None
    ttl_by: TimeKind = "event"
    after_ttl: AfterTtl = "keep"
    strategy: Strategy | None = field(default=None, metadata={ASIDE: True})
    rises: str = field(default="", metadata={ASIDE: True})

    def __post_init__(self) -> None:
        self._check_names()
        if not is_count(self.rank_end) and not is_name(self.rank_end):
            legal = "a whole number of at least 1, and at most 10**18, or the column that holds it, whose name has no dot and no backtick"
            raise OperatorError.bad_value("rank_end", self.rank_end, legal)
        if not is_count(self.rank_start) or (isinstance(self.rank_end, int) and self.rank_start > self.rank_end):
            raise OperatorError.bad_value("rank_start", self.rank_start, "a whole number from 1 to `rank_end`, and at most 10**18")
        if self.function not in get_args(Function):
            raise OperatorError.bad_value("function", self.function, ", ".join(get_args(Function)))
        if not isinstance(self.rises, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise OperatorError.bad_value("rises", self.rises, "text that says why rows move up only, or '' if that is not known")
        if self.monotonic and not self.key:
            raise OperatorError.bad_value("monotonic", self.monotonic, "true with a `unique_key`, by which a row replaces another")
        _ = self._ttl
        self._check_strategy()

    def _check_names(self) -> None:
        """Raise `OperatorError` unless the columns and the flags have legal types, and the columns' names do not exclude each other."""
        check_orders("order_by", self.order_by)
        check_columns("by", self.by)
        check_columns("unique_key", self.unique_key)
        check_column("change", self.change, is_optional=True)
        check_flag("with_rank", self.with_rank)
        check_flag("monotonic", self.monotonic)
        others = {column.lower() for column in (*self.partition, *self.key, *(o.column for o in self.order))}
        others |= {self.rank_end.lower()} if isinstance(self.rank_end, str) else set()
        if self.change is not None and self.change.lower() in others:
            legal = "a column that is neither in `by`, `unique_key` nor `order_by`, nor `rank_end`"
            raise OperatorError.bad_value("change", self.change, legal)
        if self.with_rank:
            check_distinct([*others, RANK])

    def _check_strategy(self) -> None:
        if self.strategy is None:
            return
        if self.strategy not in get_args(Strategy):
            raise OperatorError.bad_value("strategy", self.strategy, ", ".join(get_args(Strategy)))
        if reason := self.query.reason_against(self.strategy):
            raise OperatorError.bad_value("strategy", self.strategy, f"{', '.join(self.query.strategies())}: {reason}")

    @cached_property
    def query(self) -> TopNQuery:
        """The parameters, parsed."""
        return TopNQuery(
            partition=self.partition,
            order=self.order,
            key=self.key,
            first=self.rank_start,
            last=self.rank_end or 0,
            function=self.function,
            with_rank=self.with_rank,
            change=self.change,
            is_promised=self.monotonic,
            rises=self.rises,
            ttl=self._ttl,
        )

    @cached_property
    def _ttl(self) -> TimeToLive | None:
        return TimeToLive.read(self.ttl, self.ttl_by, self.after_ttl, key=self.partition)

    @cached_property
    def order(self) -> tuple[Ordering, ...]:
        """The columns of `order_by`, parsed."""
        return tuple(Ordering.read(text, "order_by") for text in names(self.order_by))

    @property
    def partition(self) -> tuple[str, ...]:
        """The columns of a partition."""
        return names(self.by)

    @property
    def key(self) -> tuple[str, ...]:
        """The columns by which a row replaces another; empty if rows stay."""
        return names(self.unique_key)

    @property
    def inputs(self) -> tuple[str]:
        """The names of the inputs."""
        return ("rows",)

    def result_columns(self, *inputs: Sequence[str]) -> tuple[str, ...]:
        """The names of the result's columns (see `NamesColumns`)."""
        return (*[c for c in inputs[0] if c != self.change], *([RANK] if self.with_rank else []))

    @property
    def emits(self) -> Upsert:
        """Upserts by partition and rank, if the rank is shown and no two rows share one; else by the row's own key."""
        if self.with_rank and self.function == "row_number":
            return Upsert((*self.partition, RANK))
        return Upsert(self.key or (SEQ, ARRIVAL))

    @property
    def reads(self) -> NewRows | ByKey:
        """The rows of new batches, and what they are merged with: rows of the table, or kept rows or all rows of their partitions."""
        if self.strategy_used != "retract":
            return NewRows(key=self.partition, change=self.change)
        can_change_partition = not {*self.partition} <= {*self.key}
        row_key = self.key if can_change_partition else ()
        keeps = self.query.why_all_rows() is None
        if self._ttl:
            return self._ttl.reads(self.partition, row_key=row_key, change=self.change, keeps=keeps)
        return ByKey(self.partition, row_key=row_key, change=self.change, keeps=Kept() if keeps else None)

    @cached_property
    def strategy_used(self) -> Strategy:
        """How a step computes the result: `strategy`, or the cheapest that is right for the input."""
        return self.strategy or next(self.query.strategies())

    def explain(self) -> str:
        """How a step computes the result, and why other strategies could give a wrong result, in a few lines."""
        return self.query.explain(self.strategy_used, is_explicit=self.strategy is not None)

    def late(self, event_time: Column, watermark: Column) -> Column:
        """No row is late."""
        return F.lit(False)

    def late_before(self, watermark: int) -> int:
        """No row is late (see `BoundsLateness`)."""
        return NEVER_LATE

    def __call__(self, *frames: DataFrame) -> DataFrame:
        """Rank a frame.

        Args:
            frames: the rows, static. `seq` and `arrival` are their arrival order; without them ties are ordered by the other columns.

        Returns:
            The columns of the frame without `change`, and `rank` (int) if `with_rank`.
        """
        [rows] = frames
        self._check(rows)
        return rank_all(self.query, rows)

    def fold(self, current: DataFrame, *frames: DataFrame) -> DataFrame:
        """The result for the partitions of new rows, from the rows that were kept and the new rows."""
        [rows] = frames
        return rank_again(self.query, current, rows)

    def still_needed(self, rows: DataFrame, oldest: int | None) -> DataFrame:
        """The rows from which, with later rows, the result is computed (see `KeepsRows`)."""
        return rows_still_needed(self.query, rows, oldest)

    def keys_moving_back(self, current: DataFrame, *frames: DataFrame) -> DataFrame:
        """The keys of new rows that break the promise `monotonic`, so that `fold` fails (see `Promised`)."""
        [rows] = frames
        return keys_moving_back(self.query, current, rows)

    def keys_moved_back(self, *frames: DataFrame) -> DataFrame:
        """The keys (of `unique_key`) with a row that came after the row that it replaced, or that was deleted; each key once.

        `monotonic` promises that there is no such key. A ranking is wrong only if the row was a kept row.
        """
        [rows] = frames
        self._check(rows)
        return keys_moved_back(self.query, rows)

    def partitions_without_ranks(self, *frames: DataFrame) -> DataFrame:
        """The partitions that show nothing because `rank_end` of their first row is null, zero or less; and that `rank_end`."""
        [rows] = frames
        self._check(rows)
        return unranked_partitions(self.query, rows)

    def other_rank_ends(self, *frames: DataFrame) -> DataFrame:
        """The rows whose `rank_end` differs from their partition's, which is that of its first row.

        Flink counts these rows in its metric `topn.invalidTopSize`. Their own `rank_end` has no effect.

        Returns:
            The columns of `by`, and `rows` (bigint, the number of such rows), for each partition with such a row.
        """
        [rows] = frames
        self._check(rows)
        return count_other_rank_ends(self.query, rows)

    def _check(self, rows: DataFrame) -> None:
        if rows.isStreaming:
            reason = "Spark ranks the rows of a streaming frame by time only"
            raise StreamingError.refused("TopN", reason, "let the engine run it, or rank each micro-batch in `foreachBatch`")
        check_rows(self.query, drop_engine_columns(rows))
