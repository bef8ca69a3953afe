"""The parameters of a Top-N, validated, and the strategies with which a step can compute it."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, get_args

from operators._support.ordering import Ordering
from operators._support.time_to_live import TimeToLive

Function = Literal["row_number", "rank", "dense_rank"]
Strategy = Literal["append", "update", "retract"]
"""The strategies, the cheapest first."""
_COST: dict[Strategy, str] = {
    "append": "keeps the first rows of each partition; a step reads its new rows and the rows that are kept",
    "update": "keeps the first rows of each partition by key; a step reads its new rows and the rows that are kept",
    "retract": "a step reads its new rows and the rows of their partitions that the engine keeps: those that were not replaced or deleted",
}
_COST_OF_ADDED = "a step reads its new rows and the first rows of their partitions, which the engine keeps"
_COST_OF_ALL = "a step reads every row of the partitions that its new rows belong to"


@dataclass(frozen=True)
class TopNQuery:
    """A Top-N with its parameters read.

    Args:
        partition: the columns of a partition.
        order: the order of the rows in a partition.
        key: the columns by which a row replaces another; empty if rows stay.
        first: the first rank to show.
        last: the last rank to show, or the column that holds it.
        function: how ranks are counted: `row_number`, `rank` or `dense_rank`.
        with_rank: whether the result has the rank.
        change: the column with a row's change kind; None if every row is an insert.
        is_promised: whether the user promises that a row that replaces another always comes before it in the order, and none is deleted.
        rises: why this is known of the input without a promise; empty if it is not known.
        ttl: how long a partition's rows count; None for no limit.
    """

    partition: tuple[str, ...]
    order: tuple[Ordering, ...]
    key: tuple[str, ...]
    first: int
    last: int | str
    function: Function
    with_rank: bool
    change: str | None
    is_promised: bool
    rises: str
    ttl: TimeToLive | None

    @property
    def is_monotonic(self) -> bool:
        """Whether a row that replaces another always comes before it in the order, and none is deleted."""
        return self.is_promised or bool(self.rises)

    @property
    def can_tie(self) -> bool:
        """With a `key`: whether two rows of a partition may be equal in the order, so that the one that arrived first comes first."""
        return not {*self.key} <= {*self.partition, *(o.column for o in self.order)}

    def strategies(self) -> Iterator[Strategy]:
        """The strategies that give the right result, the cheapest first."""
        return (strategy for strategy in get_args(Strategy) if self.reason_against(strategy) is None)

    def reason_against(self, strategy: Strategy) -> str | None:
        """Why a strategy could give a wrong result for this input; None if it cannot."""
        if strategy == "retract":
            return None
        return self._reason_against_kept_rows() or (
            self._reason_against_append() if strategy == "append" else self._reason_against_update()
        )

    def explain(self, strategy_used: Strategy, is_explicit: bool) -> str:
        """The strategy that is used and what it costs, then for each strategy that could give a wrong result a line with the reason."""
        reasons_against = [f"not {strategy}: {reason}" for strategy in get_args(Strategy) if (reason := self.reason_against(strategy))]
        input_reason = [f"rows only move up: {self.rises}"] if self.rises and strategy_used == "update" else []
        used = f"{strategy_used} (set by `strategy`)" if is_explicit else strategy_used
        return "\n".join([f"{used}: {self._cost(strategy_used)}", *input_reason, *reasons_against])

    def _cost(self, strategy: Strategy) -> str:
        if strategy != "retract":
            return _COST[strategy]
        if reason := self.why_all_rows():
            return f"{_COST_OF_ALL}, because {reason}"
        return _COST[strategy] if self.key or self.change else _COST_OF_ADDED

    @property
    def needs_first_row(self) -> bool:
        """Whether a step needs the first row of a partition even if it was replaced or deleted: for its rank end, or its time."""
        return self.ttl is not None or isinstance(self.last, str)

    def why_all_rows(self) -> str | None:
        """Why a step by `retract` needs every row of its partitions; None if the rows that were not replaced or deleted suffice."""
        if not self.needs_first_row:
            return None
        parameter = "`ttl`" if self.ttl is not None else "the column `rank_end`"
        if self.change and not self.key:
            return f"{parameter} needs rows that were deleted, which only a `unique_key` distinguishes from equal rows"
        if self.ttl is not None and self.key and not {*self.partition} <= {*self.key}:
            reason = "with a `ttl`, a step needs rows that left their partition, even those that were forgotten"
            return f"{reason}; put the columns of `by` into `unique_key`"
        return None

    def _reason_against_kept_rows(self) -> str | None:
        if self.ttl is not None:
            return "a partition's newest row, from which its `ttl` counts, may not be among those that are kept"
        if isinstance(self.last, str):
            return "a partition's rank end is that of its first row, which may not be among those that are kept"
        return "ranks from `rank_start` depend on the rows before it, which are not kept" if self.first > 1 else None

    def _reason_against_append(self) -> str | None:
        return "rows are replaced or retracted, and the rows that would take their ranks are not kept" if self.key or self.change else None

    def _reason_against_update(self) -> str | None:
        if not self.key:
            return "there is no `unique_key` to replace a row by"
        if not self.is_monotonic:
            return "a row may move behind a row that is not kept; set `monotonic` if that never happens"
        if self.function == "dense_rank":
            return "a row that moves up can empty a rank, and then rows that are not kept move up too"
        return None if {*self.partition} <= {*self.key} else "a row may leave its partition; put the columns of `by` into `unique_key`"
