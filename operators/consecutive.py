"""Consecutive windows as one operator: a second operator over the results of the first, without a table between them."""

from dataclasses import dataclass
from typing import cast

from pyspark.sql import Column, DataFrame

from operators._support.windowed_operator import WindowedOperator
from operators.accounting import ReportsFinality, finalized_by_time
from operators.columns import FINAL_AT, RESULT_TIME
from operators.contract import Early, Operator, late_before
from operators.engine_columns import EVENT_TIME
from operators.errors import OperatorError, is_instance
from operators.steps import Append, ByTimeRange


@dataclass(frozen=True, kw_only=True)
class Consecutive:
    """The result of `then` over the results of `of`: for example the Top-K of each window of an aggregate.

    The windows of the first operator are complete when they close, so a step passes their results on at once. To keep the results of the
    first operator as well, make two tables, of which the second reads the first; the second table then has the same rows. A row is late
    if it is late for the first operator. A row within the first operator's allowed lateness corrects the results of both.

    The semantics are those of Flink's consecutive windows, `windowAll` after `keyBy().window()`.

    Args:
        of: an operator that reads closed ranges of its inputs and whose results are final at their `result_time` (no sessions), without
            early results or purging.
        then: an operator with one input, the results of a windowed operator over the same windows, such as `TopK` without a window.
            Neither operator is a `Consecutive`.

    Raises:
        OperatorError: an operator is not usable here; the text says what is legal.

    >>> from operators import TopK, Tumbling, WindowedAggregate
    >>> count = WindowedAggregate(by="item_id", window=Tumbling(size="10 s"), aggregates={"clicks": "count(*)"})
    >>> Consecutive(of=count, then=TopK(k=10, order_by="clicks DESC")).reads.lookback
    (10000,)
    """

    of: Operator
    then: Operator

    def __post_init__(self) -> None:
        for parameter, operator in (("of", self.of), ("then", self.then)):
            if not is_instance(operator, Operator):
                raise OperatorError.bad_value(parameter, operator, "an operator, such as WindowedAggregate(...)")
            if isinstance(operator, Consecutive):
                legal = "an operator that is no `Consecutive`; to chain three operators, make a table of the first two that the third reads"
                raise OperatorError.bad_value(parameter, operator, legal)
        is_early = isinstance(self.of, Early) and self.of.early is not None
        is_purging = isinstance(self.of, WindowedOperator) and self.of.purging is not None
        if not self.of.reads.closes_ranges or self.of.reads.watermark_delay or is_early or is_purging:
            legal = (
                "an operator of closed ranges, without early results or purging, whose results are final at `result_time` (not sessions)"
            )
            raise OperatorError.bad_value("of", self.of, legal)
        if not self.then.reads.results or self.then.emits.upserts:
            legal = "an operator over the windows that its rows have, such as TopK without `window`"
            raise OperatorError.bad_value("then", self.then, legal)

    @property
    def inputs(self) -> tuple[str, ...]:
        """The names of the inputs: those of the first operator."""
        return self.of.inputs

    @property
    def reads(self) -> ByTimeRange:
        """What the first operator reads."""
        return cast(ByTimeRange, self.of.reads)

    @property
    def emits(self) -> Append:
        """What the second operator emits."""
        return cast(Append, self.then.emits)

    def late(self, event_time: Column, watermark: Column) -> Column:
        """Whether a row is late for the first operator."""
        return self.of.late(event_time, watermark)

    def late_before(self, watermark: int) -> int | None:
        """The bound of the first operator (see `BoundsLateness`); None if it has none."""
        return late_before(self.of, watermark)

    def __call__(self, *frames: DataFrame) -> DataFrame:
        """Run one operator after the other. The second gets the results of the first with `result_time` as `event_time`.

        Args:
            frames: the rows of each input of the first operator, static.

        Returns:
            The columns that the second operator returns.
        """
        results = self.of(*frames)
        return self.then(results.drop(FINAL_AT).withColumnRenamed(RESULT_TIME, EVENT_TIME))

    def finalized_at(self, *frames: DataFrame) -> DataFrame:
        """When the last window of a row is final, by the first operator (see `ReportsFinality`)."""
        if not isinstance(self.of, ReportsFinality):
            raise OperatorError(f"{type(self.of).__name__} does not report when its rows are finalized")
        return self.of.finalized_at(*frames)

    def finalized_by_time(self, which: int, event_time: Column) -> Column | None:
        """When the first operator finalizes a row with an event time (see `FinalizesByTime`); None if it gives no expression."""
        return finalized_by_time(self.of, which, event_time)
