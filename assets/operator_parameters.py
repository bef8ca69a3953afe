"""Parameters of Tidemark's operators on which the checks of a table depend. In an operator of a user, the same name may mean anything."""

from operators.aggregate import Aggregate
from operators.as_of_join import AsOfJoin
from operators.cogroup import CoGroup
from operators.consecutive import Consecutive
from operators.contract import Operator
from operators.deduplicate import Deduplicate
from operators.engine_columns import ARRIVAL
from operators.interval_join import IntervalJoin
from operators.process_window import ProcessWindow
from operators.top_k import TopK
from operators.top_n import TopN
from operators.window_join import WindowJoin
from operators.windowed_aggregate import WindowedAggregate


def first_operator(operator: Operator) -> Operator:
    """The operator that reads the inputs: for `Consecutive`, that is `of`."""
    return operator.of if isinstance(operator, Consecutive) else operator


def event_times(operator: Operator) -> dict[str, str]:
    """The column that each event-time parameter of an operator of closed ranges names; empty for other operators."""
    if not operator.reads.closes_ranges:
        return {}
    match first_operator(operator):
        case Deduplicate(time=time) | ProcessWindow(time=time) | TopK(time=time) | WindowedAggregate(time=time):
            return {"time": time}
        case AsOfJoin() | CoGroup() | IntervalJoin() | WindowJoin() as join:
            return {"left_time": join.left_time, "right_time": join.right_time}
        case _:
            return {}


def has_ttl(operator: Operator) -> bool:
    """Whether keys have a time to live (TTL). If an operator keeps the rows of expired keys, only its parameter `ttl` shows it."""
    return operator.reads.ttl is not None or (isinstance(operator, Aggregate | Deduplicate | TopN) and operator.ttl is not None)


def is_by_arrival(operator: Operator) -> bool:
    """Whether the operator that reads the input is a `Deduplicate` by the order of arrival."""
    first = first_operator(operator)
    return isinstance(first, Deduplicate) and first.order == ARRIVAL


def is_purging(operator: Operator) -> bool:
    """Whether an operator adds several results of a window, at different times."""
    return isinstance(operator, CoGroup | ProcessWindow | WindowJoin | WindowedAggregate) and operator.purging is not None
