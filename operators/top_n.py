"""Top-N: the first rows of each partition by an order, kept current as rows come, change and go."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, get_args

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import IntegralType

from operators._support.ordering import Ordering
from operators.changelog import COMMIT_VERSION, COMMITTED_AT, DELETE, INSERT, UPDATE_AFTER, UPDATE_BEFORE
from operators.columns import check_distinct, check_present, check_time, comparable, names, same_rows, temporary
from operators.contract import ARRIVAL, ASIDE, CAME_AT, EVENT_TIME, SEQ, Entries, TimeKind, Touched, Upsert, places, plain
from operators.errors import ColumnError, OperatorError, StreamingError, is_count
from operators.timing import Duration, length_ms
from operators.top_k import RANK

Function = Literal["row_number", "rank", "dense_rank"]
Strategy = Literal["append", "update", "retract"]
_END, _NTH, _HELD, _LAST, _PLACE = (temporary(name) for name in ("end", "nth", "held", "last", "rank"))
_AT, _BEGINS, _LIFE, _LASTS = (temporary(name) for name in ("at", "begins", "life", "lasts"))


@dataclass(frozen=True, kw_only=True)
class TopN:
    """Of each partition the rows with `rank_start <= rank <= rank_end`, kept current, with a changelog; no window bounds them.

    The ranks are those of SQL's `ROW_NUMBER() OVER (PARTITION BY by ORDER BY order_by)` over all rows that are there.

    The order is total: of rows that `order_by` leaves equal the one that came first is first (`seq`, `arrival`, which the result
    keeps), and a row that was updated goes to the end of its ties. `rank` and `dense_rank` give ties one rank, so that more
    rows than N may be there. A null is an ordinary partition. Time plays no part: no row is late.

    What comes in is, without `unique_key` and `change`, rows that stay for ever. With `unique_key` alone a row replaces the one that
    its key had. With `change` each row says what it is, in Flink's words: `+I`, `-U`, `+U` or `-D` (one that says anything else
    counts for nothing: let a row rule of the source keep those out); a row taken back is the one of its `unique_key`, or without
    one, of the rows there that are equal in every column but `event_time` (and `commit_version` and `committed_at`, by which a change
    data feed tells of the commit), the one that came first. Where there is none to take back, nothing is.

    With `ttl` a partition's rows fall apart into lives wherever no row's time lies for longer than that, and its last life alone is
    ranked. What becomes of the rows of a partition whose time is over is `after_ttl`: they stay until a row begins its next life, or
    leave, in the engine, with the first step after that. Over a table that is followed there is no such time.

    The semantics are those of Flink SQL's Top-N; `rank` and `dense_rank`, which it refuses on streams, are SQL's.

    Args:
        order_by: columns, each with `ASC` or `DESC` and `NULLS FIRST` or `NULLS LAST` at will; nulls are the smallest value unless
            said otherwise.
        rank_end: the last rank to keep, at least 1, or the column that holds it: a partition takes that of its first row (of a
            table that is followed, the oldest that is there), for ever; one with null, zero or less keeps nothing (`unranked` lists these).
        by: the columns of a partition; none for one ranking of all.
        rank_start: the first rank to show.
        function: how ranks are counted.
        with_rank: whether the result has the column `rank`. Without it a row that only moves is no change.
        unique_key: columns by which a row replaces another.
        change: the column that tells what a row is.
        improving: promise that a row that replaces another always comes before it in the order, as a count does under `DESC`,
            and that none is deleted; only with `unique_key`.
        ttl: how long a partition lives after its newest row; None for ever.
        ttl_by: in `event` time, by the watermark; or in `processing` time, by the ledger's clock.
        after_ttl: `keep` or `retract` its rows then.
        strategy: pins how a step computes; None to let what is known of the input decide (see `explain`).

    Raises:
        OperatorError: a parameter, a column or a streaming frame is not usable; the text says what is legal.

    >>> TopN(by="category", order_by="revenue DESC", rank_end=10).strategy_used
    'append'
    """

    order_by: str | Sequence[str]
    rank_end: int | str | None = None
    by: str | Sequence[str] = ()
    rank_start: int = 1
    function: Function = "row_number"
    with_rank: bool = True
    unique_key: str | Sequence[str] = ()
    change: str | None = None
    improving: bool = False
    ttl: Duration | None = None
    ttl_by: TimeKind = "event"
    after_ttl: Literal["keep", "retract"] = "keep"
    strategy: Strategy | None = field(default=None, metadata={ASIDE: True})

    def __post_init__(self) -> None:
        if not self.order:
            raise OperatorError.bad_value("order_by", self.order_by, "at least one column, such as 'revenue DESC'")
        if not (is_count(self.rank_end) or (isinstance(self.rank_end, str) and self.rank_end)):
            raise OperatorError.bad_value("rank_end", self.rank_end, "a whole number of at least 1, or the column that holds it")
        if not is_count(self.rank_start) or (isinstance(self.rank_end, int) and self.rank_start > self.rank_end):
            raise OperatorError.bad_value("rank_start", self.rank_start, "a whole number from 1 to `rank_end`")
        if self.function not in get_args(Function):
            raise OperatorError.bad_value("function", self.function, ", ".join(get_args(Function)))
        if self.improving and not self.key:
            raise OperatorError.bad_value("improving", self.improving, "true with a `unique_key`, by which a row replaces another")
        self._check_ttl()
        self._check_strategy()

    def _check_ttl(self) -> None:
        if self.ttl is not None and not self.ttl_ms:
            raise OperatorError.bad_value("ttl", self.ttl, "longer than no time, or None for ever")
        if self.ttl_by not in get_args(TimeKind):
            raise OperatorError.bad_value("ttl_by", self.ttl_by, ", ".join(get_args(TimeKind)))
        can_leave = self.ttl and self.partition
        if self.after_ttl not in ("keep", "retract") or (self.after_ttl == "retract" and not can_leave):
            raise OperatorError.bad_value("after_ttl", self.after_ttl, "keep; or retract, with a `ttl` and partitions (`by`) to leave")

    @cached_property
    def ttl_ms(self) -> int:
        """The time to live in ms; 0 for ever."""
        return 0 if self.ttl is None else length_ms(self.ttl, "ttl")

    def _check_strategy(self) -> None:
        if self.strategy is None:
            return
        if self.strategy not in get_args(Strategy):
            raise OperatorError.bad_value("strategy", self.strategy, ", ".join(get_args(Strategy)))
        why = self._why_not(self.strategy)
        if why:
            legal = ", ".join(s for s in get_args(Strategy) if not self._why_not(s))
            raise OperatorError.bad_value("strategy", self.strategy, f"{legal}: {why}")

    @cached_property
    def order(self) -> tuple[Ordering, ...]:
        """What `order_by` says."""
        return tuple(Ordering.read(text, "order_by") for text in names(self.order_by))

    @property
    def partition(self) -> tuple[str, ...]:
        """The columns of a partition."""
        return names(self.by)

    @property
    def key(self) -> tuple[str, ...]:
        """The columns by which a row replaces another; none where rows stay."""
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
        """A rank of a partition is one row where no two rows share one and it is shown; else a row is known by its own key."""
        if self.with_rank and self.function == "row_number":
            return Upsert((*self.partition, RANK))
        return Upsert(self.key or (SEQ, ARRIVAL))

    @property
    def reads(self) -> Entries | Touched:
        """New entries, folded into the rows that are kept; or all rows of the partitions that new entries touch."""
        if self.strategy_used != "retract":
            return Entries(touches=self.partition, change=self.change)
        moves = not {*self.partition} <= {*self.key}
        lives = self.ttl_ms if self.after_ttl == "retract" else None
        kind = self.ttl_by if self.ttl else "event"
        return Touched(self.partition, through=self.key if moves else (), change=self.change, lives=lives, lives_by=kind)

    @cached_property
    def strategy_used(self) -> Strategy:
        """How a step computes: `strategy`, or the cheapest that is right for the input."""
        return self.strategy or next(s for s in get_args(Strategy) if not self._why_not(s))

    def _why_not(self, strategy: str) -> str | None:
        """Why a strategy could be wrong for the input; None where it is right."""
        if strategy == "retract":
            return None
        if self.ttl is not None:
            return "a partition's newest row, from which its `ttl` counts, may not be among those that are kept"
        if isinstance(self.rank_end, str):
            return "a partition's rank end is its first row's, which the rows that are kept may not hold"
        if self.rank_start > 1:
            return "a range needs the rows before it too, and only those in it are kept"
        if strategy == "append":
            return "rows are replaced or taken back, and the next best are not kept" if self.key or self.change else None
        return self._why_not_update()

    def _why_not_update(self) -> str | None:
        if not self.key:
            return "there is no `unique_key` to replace a row by"
        if not self.improving:
            return "a row may fall behind one that is not kept; promise `improving` where none does"
        if self.function == "dense_rank":
            return "a row that leaves a rank empty lifts rows that are not kept"
        return None if {*self.partition} <= {*self.key} else "a row may leave its partition; put the columns of `by` into `unique_key`"

    def explain(self) -> str:
        """How a step computes, and why not otherwise, in a few lines."""
        cost = {
            "append": "keeps the first rows of each partition; a step reads its new rows and those that are kept",
            "update": "keeps the first rows of each partition by key; a step reads its new rows and those that are kept",
            "retract": "a step reads every row of the partitions that its new rows touch",
        }
        others = [f"not {s}: {why}" for s in get_args(Strategy) if (why := self._why_not(s))]
        pinned = " (pinned)" if self.strategy else ""
        return "\n".join([f"{self.strategy_used}{pinned}: {cost[self.strategy_used]}", *others])

    def late(self, event_time: Column, watermark: Column) -> Column:
        """Never."""
        return F.lit(False)

    def __call__(self, *frames: DataFrame) -> DataFrame:
        """Rank a frame.

        Args:
            frames: the rows, static; `seq` and `arrival` tell in what order they came, without them the order of ties is that of
                the other columns.

        Returns:
            The columns of the frame but `change`, and `rank` (int) where it is asked for.
        """
        [rows] = frames
        self._check(plain(rows))
        rows = self._told(rows)
        living = self._lives(rows) if self.ttl else rows
        life = (*self.partition, _LIFE) if self.ttl else self.partition
        first = Window.partitionBy(*life).orderBy(*places(plain(rows))).rowsBetween(Window.unboundedPreceding, Window.currentRow)
        ended = living.withColumn(_END, F.first(self.rank_end).over(first)) if isinstance(self.rank_end, str) else living
        there = self._there(ended)
        return self._ranked(there.where(F.col(_LASTS)).drop(_LIFE, _LASTS) if self.ttl else there)

    def _lives(self, rows: DataFrame) -> DataFrame:
        """Each row's life, counted from 0 in each partition, and whether that is the partition's last."""
        if self.ttl_by == "processing" and CAME_AT not in rows.columns:
            raise OperatorError.bad_value(
                "ttl_by", self.ttl_by, "event: a frame does not tell when its rows came; or let the engine run it"
            )
        time = F.unix_millis(EVENT_TIME if self.ttl_by == "event" else CAME_AT)
        in_time = Window.partitionBy(*self.partition).orderBy(_AT)
        begins = F.coalesce((F.col(_AT) - F.lag(_AT).over(in_time) > self.ttl_ms).cast("int"), F.lit(0))
        born = plain(rows.withColumn(_AT, time)).withColumn(_BEGINS, begins)
        so_far = in_time.rowsBetween(Window.unboundedPreceding, Window.currentRow)
        counted = born.withColumn(_LIFE, F.sum(_BEGINS).over(so_far)).drop(_BEGINS, _AT)
        return counted.withColumn(_LASTS, F.col(_LIFE) == F.max(_LIFE).over(Window.partitionBy(*self.partition)))

    def fold(self, current: DataFrame, *frames: DataFrame) -> DataFrame:
        """The rows of the touched partitions, from those that were kept and the new entries'."""
        [rows] = frames
        new = self._there(self._told(rows))
        kept = current.drop(RANK) if self.with_rank else current
        stays = kept.alias("f").join(new.select(*self.key).alias("k"), same_rows("f", "k", self.key), "left_anti") if self.key else kept
        return self._ranked(stays.unionByName(new))

    def unranked(self, *frames: DataFrame) -> DataFrame:
        """The partitions that keep nothing, since the rank end of their first row is null, zero or less: its columns, and `rank_end`."""
        [rows] = frames
        self._check(plain(rows))
        rows = self._told(rows)
        rows = self._lives(rows).where(F.col(_LASTS)).drop(_LIFE, _LASTS) if self.ttl else rows
        if not isinstance(self.rank_end, str):
            return rows.limit(0).select(*self.partition, F.lit(None).cast("int").alias("rank_end"))
        first = F.min_by(F.struct(F.col(self.rank_end).alias(_END)), F.struct(*places(rows)))[_END].alias(_END)
        ends = rows.groupBy(*self.partition).agg(first).where(F.coalesce(F.col(_END), F.lit(0)) < 1)
        return ends.select(*self.partition, F.col(_END).alias("rank_end"))

    def _told(self, rows: DataFrame) -> DataFrame:
        """The rows that count: those that say what they are, and where none is deleted no more than those that come."""
        told = (INSERT, UPDATE_AFTER) if self.improving else (INSERT, UPDATE_BEFORE, UPDATE_AFTER, DELETE)
        return rows.where(F.col(self.change).isin(*told)) if self.change else rows

    def _there(self, rows: DataFrame) -> DataFrame:
        """The rows that are there once all of them have come."""
        if self.key:
            newest = Window.partitionBy(*self.key).orderBy(*[place.desc_nulls_last() for place in _places(rows)])
            last = rows.withColumn(_LAST, F.row_number().over(newest)).where(F.col(_LAST) == 1).drop(_LAST)
            return last.where(F.col(self.change).isin(INSERT, UPDATE_AFTER)).drop(self.change) if self.change else last
        return self._not_taken_back(rows, self.change) if self.change else rows

    def _not_taken_back(self, rows: DataFrame, change: str) -> DataFrame:
        """Of equal rows, as many of the oldest go as were taken back while one was there.

        With n the rows that came less those taken back, up to each of them, the last n less the smallest n below zero are there.
        """
        beside = (SEQ, ARRIVAL, EVENT_TIME, COMMIT_VERSION, COMMITTED_AT, change, _END, _LIFE, _LASTS)
        equal = Window.partitionBy(*[comparable(F.col(f"`{f.name}`"), f.dataType) for f in rows.schema.fields if f.name not in beside])
        comes = F.col(change).isin(INSERT, UPDATE_AFTER)
        in_order = equal.orderBy(*_places(rows))
        so_far = F.sum(F.when(comes, 1).otherwise(-1)).over(in_order.rowsBetween(Window.unboundedPreceding, Window.currentRow))
        held = F.last(_HELD).over(in_order.rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing))
        counted = rows.withColumn(_HELD, so_far).withColumn(_HELD, held - F.least(F.lit(0), F.min(_HELD).over(equal))).where(comes)
        newest = F.count("*").over(equal) - F.row_number().over(in_order)
        return counted.withColumn(_NTH, newest).where(F.col(_NTH) < F.col(_HELD)).drop(_NTH, _HELD, change)

    def _ranked(self, rows: DataFrame) -> DataFrame:
        order = [o.by() for o in self.order]
        ties = [place.asc_nulls_first() for place in _places(rows)] if self.function == "row_number" else []
        within = Window.partitionBy(*self.partition).orderBy(*order, *ties)
        counted = {"row_number": F.row_number, "rank": F.rank, "dense_rank": F.dense_rank}[self.function]()
        end = F.col(_END) if isinstance(self.rank_end, str) else F.lit(self.rank_end)
        ranked = rows.withColumn(_PLACE, counted.over(within)).where((F.col(_PLACE) <= end) & (F.col(_PLACE) >= self.rank_start)).drop(_END)
        return ranked.withColumnRenamed(_PLACE, RANK) if self.with_rank else ranked.drop(_PLACE)

    def _check(self, rows: DataFrame) -> None:
        if rows.isStreaming:
            why = "Spark ranks no streaming frame by anything but time"
            raise StreamingError.refused("TopN", why, "let the engine run it, or rank each micro-batch in `foreachBatch`")
        check_present(rows, [o.column for o in self.order], "order_by")
        check_present(rows, self.partition, "by")
        check_present(rows, self.key, "unique_key")
        check_present(rows, [self.change] if self.change else [], "change")
        if isinstance(self.rank_end, str):
            check_present(rows, [self.rank_end], "rank_end")
            found = rows.schema[self.rank_end].dataType
            if not isinstance(found, IntegralType):
                raise ColumnError.not_whole("rank_end", self.rank_end, found.simpleString())
        if self.ttl and self.ttl_by == "event":
            check_time(rows, EVENT_TIME, "ttl")
        check_distinct([*rows.columns, *([RANK] if self.with_rank else [])])


def _places(rows: DataFrame) -> list[Column]:
    """What tells rows apart, by their own columns."""
    return places(rows.drop(_END, _LIFE, _LASTS))
