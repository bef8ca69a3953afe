"""The aggregate without windows: one row for each key, of all its rows so far, replaced as more come."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import DoubleType, FloatType

from operators._support.determinism import check_deterministic
from operators._support.partial_aggregates import counts_every_row, merged, merging
from operators.columns import check_distinct, check_present, names, temporary
from operators.contract import ARRIVAL, SEQ, Entries, Touched, Upsert
from operators.errors import OperatorError, StreamingError

_BEFORE, _NOW, _NTH = temporary("before"), temporary("now"), temporary("nth")


@dataclass(frozen=True, kw_only=True)
class Aggregate:
    """For each key: Spark aggregates over all of its rows that have come, whatever their times; a changing result.

    The result is kept by key, with a changelog: a key's first row inserts, a later one that changes an aggregate updates. Time plays
    no part: no row is late. A null is an ordinary key.

    `seq` and `arrival` of a result name the row by which the key took its present values, so that a Top-N of it can keep ties in the
    order in which they came about. A row that changes no aggregate (a smaller value, to a maximum) leaves them; where an
    aggregate is none that can be merged, they name the newest row of the key.

    An aggregate whose value depends on the order in which Spark meets rows (`first`, `last`, `any_value`, an unsorted `collect_list`), on
    chance or on the clock is refused; `min_by(v, struct(seq, arrival))` is the value that came first.

    The semantics are those of Flink SQL's `GROUP BY` on a stream.
    A step reads its new rows and the results of their keys, if every aggregate is a single call of `count`, `sum`, `min`, `max`,
    `bool_and`, `bool_or`, `bit_and`, `bit_or` or `bit_xor`; with any other, every row of the keys that its new rows hold.

    Args:
        by: the key columns, at least one.
        aggregates: the result's columns, as SQL: `{"orders": "count(*)", "revenue": "sum(price * quantity)"}`.

    Raises:
        OperatorError: a parameter, a column or a streaming frame is not usable; the text says what is legal.

    >>> Aggregate(by="seller_id", aggregates={"revenue": "sum(price)"}).emits.key
    ('seller_id',)
    """

    by: str | Sequence[str]
    aggregates: Mapping[str, str]

    def __post_init__(self) -> None:
        if not self.key:
            raise OperatorError.bad_value("by", self.by, "at least one column; for a total of all rows, one that is the same in each")
        if not self.aggregates:
            raise OperatorError.bad_value("aggregates", self.aggregates, "at least one, such as {'rows': 'count(*)'}")
        check_deterministic(self.aggregates)
        check_distinct([*self.key, *self.aggregates, SEQ, ARRIVAL])

    @cached_property
    def key(self) -> tuple[str, ...]:
        """The key columns."""
        return names(self.by)

    @property
    def inputs(self) -> tuple[str]:
        """The names of the inputs."""
        return ("rows",)

    def result_columns(self, *inputs: Sequence[str]) -> tuple[str, ...]:
        """The names of the result's columns (see `NamesColumns`)."""
        return (*self.key, *self.aggregates, SEQ, ARRIVAL)

    @property
    def emits(self) -> Upsert:
        """One row a key."""
        return Upsert(self.key)

    @property
    def reads(self) -> Entries | Touched:
        """New entries, merged into the results; or all rows of the keys that new entries hold."""
        return Entries() if self._merges else Touched(self.key)

    def late(self, event_time: Column, watermark: Column) -> Column:
        """Never."""
        return F.lit(False)

    def __call__(self, *frames: DataFrame) -> DataFrame:
        """Aggregate a frame.

        Args:
            frames: the rows, static.

        Returns:
            The key columns, the aggregates by their own types, and `seq` and `arrival` (bigint) where the rows have them.
        """
        [rows] = frames
        self._check(rows)
        if self._placed(rows) and not self._newest_counts:
            return self._last(self._each(rows))
        return self._grouped(rows, [F.expr(sql).alias(name) for name, sql in self.aggregates.items()])

    def fold(self, current: DataFrame, *frames: DataFrame) -> DataFrame:
        """The results of the touched keys, from those before and the new entries' rows."""
        [rows] = frames
        self._check(rows)
        if self._placed(rows) and not self._newest_counts:
            return self._last(current.unionByName(self._each(rows)))
        both = current.unionByName(self(rows))
        return self._grouped(both, self._typed(both, merged(self.aggregates)))

    def _grouped(self, rows: DataFrame, values: Sequence[Column]) -> DataFrame:
        """One row a key, with the newest place where the rows have one."""
        place = [F.max(F.struct(SEQ, ARRIVAL)).alias(_NOW)] if self._placed(rows) else []
        found = rows.groupBy(*self.key).agg(*values, *place)
        return self._exact(found.select(*self.key, *self.aggregates, *([f"{_NOW}.*"] if place else [])))

    @property
    def _merges(self) -> bool:
        return all(merging(sql) for sql in self.aggregates.values())

    @property
    def _newest_counts(self) -> bool:
        """Whether a result is named by the newest row of its key."""
        return not self._merges or any(counts_every_row(sql) for sql in self.aggregates.values())

    @staticmethod
    def _placed(rows: DataFrame) -> bool:
        return {SEQ, ARRIVAL} <= {*rows.columns}

    def _each(self, rows: DataFrame) -> DataFrame:
        """What each row would make alone."""
        alone = Window.partitionBy(*self.key).orderBy(SEQ, ARRIVAL).rowsBetween(Window.currentRow, Window.currentRow)
        return rows.select(*self.key, *[F.expr(sql).over(alone).alias(name) for name, sql in self.aggregates.items()], SEQ, ARRIVAL)

    def _last(self, each: DataFrame) -> DataFrame:
        """Merge what is there in the order in which it came; the values at the end, and the place of the last that changed one."""
        came = Window.partitionBy(*self.key).orderBy(SEQ, ARRIVAL)
        so_far = came.rowsBetween(Window.unboundedPreceding, Window.currentRow)
        sums = [value.over(so_far) for value in merged(self.aggregates)]
        running = each.select(*self.key, *self._typed(each, sums), SEQ, ARRIVAL).withColumn(_NOW, F.struct(*self.aggregates))
        told = running.withColumns({_BEFORE: F.lag(_NOW).over(came), _NTH: F.row_number().over(came)})
        changed = (F.col(_NTH) == 1) | ~F.col(_NOW).eqNullSafe(F.col(_BEFORE))
        values = [F.max_by(name, F.struct(SEQ, ARRIVAL)).alias(name) for name in self.aggregates]
        place = F.max(F.when(changed, F.struct(SEQ, ARRIVAL))).alias(_NOW)
        return self._exact(told.groupBy(*self.key).agg(*values, place).select(*self.key, *self.aggregates, f"{_NOW}.*"))

    def _exact(self, found: DataFrame) -> DataFrame:
        for name, sql in self.aggregates.items():
            if merging(sql) == "sum" and isinstance(found.schema[name].dataType, DoubleType | FloatType):
                raise OperatorError.bad_value(
                    "aggregates", sql, "sums of exact numbers: one of floats depends on their order; cast to a decimal"
                )
        return found

    def _typed(self, rows: DataFrame, values: Sequence[Column]) -> list[Column]:
        """A merged value has the type of its parts, as Spark's sum of a decimal has not."""
        return [value.cast(rows.schema[name].dataType).alias(name) for name, value in zip(self.aggregates, values, strict=True)]

    def _check(self, rows: DataFrame) -> None:
        if rows.isStreaming:
            why = "its own state would never end"
            raise StreamingError.refused("Aggregate", why, "let the engine run it, or give `WindowedAggregate` a window")
        check_present(rows, self.key, "by")
