"""Checks that the columns which an operator's parameters name exist in its inputs, before any row is read."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, cast

from assets.contract_checks import ContractError
from assets.expressions import check_bare_names, check_columns_exist, check_expression, check_named_columns
from assets.names import fold_case
from assets.operator_parameters import first_operator
from operators.aggregate import Aggregate
from operators.as_of_join import AsOfJoin
from operators.cogroup import CoGroup
from operators.columns import FINAL_AT, RESULT_TIME, names
from operators.consecutive import Consecutive
from operators.contract import NamesColumns, Operator
from operators.count_windows import CountWindowAggregate
from operators.deduplicate import Deduplicate
from operators.engine_columns import EVENT_TIME
from operators.errors import ColumnError, OperatorError
from operators.evictors import DeltaEvictor, Evictor
from operators.interval_join import IntervalJoin
from operators.process_count_window import ProcessCountWindow
from operators.process_window import ProcessWindow
from operators.top_k import TopK
from operators.top_n import TopN
from operators.window_join import WindowJoin
from operators.windowed_aggregate import WindowedAggregate

# in an operator of a user, a parameter of the same name may mean anything
_OF_ONE_INPUT = Aggregate | CountWindowAggregate | Deduplicate | ProcessCountWindow | ProcessWindow | TopK | TopN | WindowedAggregate
_OF_TWO_INPUTS = AsOfJoin | CoGroup | IntervalJoin | WindowJoin


def check_columns_of_input(operator: Operator, columns: Sequence[str], owner: str, engine_columns: Sequence[str]) -> None:
    """Raise if one of Tidemark's operators of one input reads a column that the input does not have.

    Parameters that name columns must use their exact names. In SQL, names ignore case.

    Args:
        operator: the operator.
        columns: the input's columns, as prepared.
        owner: whose columns these are, for the error.
        engine_columns: columns that the engine adds to them.

    Raises:
        ContractError: the error names the parameter, the name, the columns and the most similar one.
    """
    if isinstance(operator, Consecutive):
        check_columns_of_input(operator.of, columns, owner, engine_columns)
        _check_second(operator, [*columns, *engine_columns])
        return
    if not isinstance(operator, _OF_ONE_INPUT):
        return
    untyped = cast(Any, operator)
    for parameter, named in _named_columns(untyped).items():
        check_named_columns(parameter, named, columns, owner, engine_columns)
    _check_delta(getattr(untyped, "evictor", None), [()], [[*columns, *engine_columns]], [owner])
    expressions = [("aggregates", sql) for sql in getattr(untyped, "aggregates", {}).values()]
    expressions += [("ends_with", sql) for sql in filter(None, [getattr(untyped, "ends_with", None)])]
    for parameter, expression in expressions:
        check_expression(parameter, expression, columns, owner, engine_columns)
        check_bare_names(parameter, expression, [*columns, *engine_columns])


def check_columns_of_sides(operator: Operator, columns: Sequence[Sequence[str]], owners: Sequence[str]) -> None:
    """Raise if one of Tidemark's operators of two inputs reads a column that these inputs do not have.

    Args:
        operator: the operator.
        columns: the columns of each side, as prepared, with those that the engine adds.
        owners: whose columns these are, for the error.

    Raises:
        ContractError: the error names the parameter, the name, the columns and the most similar one.
    """
    first = first_operator(operator)
    if isinstance(first, _OF_TWO_INPUTS):
        for side_columns, owner in zip(columns, owners, strict=True):
            check_named_columns("on", names(first.on), side_columns, owner)
    if isinstance(first, AsOfJoin) and first.change is not None:
        check_named_columns("change", [first.change], columns[1], owners[1])
    if isinstance(first, IntervalJoin | WindowJoin) and first.residual is not None:
        with suppress(ColumnError):  # the names of the result collide, which its own check reports
            joined = [name for name in first.names.result_columns(*columns) if name not in first.names.added]
            check_expression("residual", first.residual, joined, f"the pairs of {owners[0]} and {owners[1]}")
            check_bare_names("residual", first.residual, joined)
    if isinstance(first, CoGroup | WindowJoin):
        _check_delta(first.evictor, [(side,) for side in first.inputs], columns, owners)
    if isinstance(operator, Consecutive):
        _check_second(operator, *columns)


def _named_columns(operator: Any) -> dict[str, Sequence[str]]:
    """The columns that each parameter of an operator names."""
    order, rank_end, change = (getattr(operator, name, None) for name in ("order", "rank_end", "change"))
    return {
        "by": names(getattr(operator, "by", ())),
        "order_by": [o.column for o in order] if isinstance(order, tuple) else [],
        "unique_key": names(getattr(operator, "unique_key", ())),
        "rank_end": [rank_end] if isinstance(rank_end, str) else [],
        "change": [change] if change else [],
    }


def _check_delta(
    evictor: Evictor | None, structs: Sequence[tuple[str, ...]], columns: Sequence[Sequence[str]], owners: Sequence[str]
) -> None:
    """Raise if a `DeltaEvictor` reads a field that a row does not have.

    Args:
        evictor: the evictor, if any.
        structs: for each input, the path of its columns in `row` and `last`.
        columns: the columns of each input.
        owners: whose columns these are, for the error.
    """
    if not isinstance(evictor, DeltaEvictor):
        return
    for path in evictor.fields_read:
        for struct, input_columns, owner in zip(structs, columns, owners, strict=True):
            names_read = path[len(struct) : len(struct) + 1] if tuple(map(fold_case, path[: len(struct)])) == struct else ()
            check_columns_exist("delta", names_read, input_columns, owner, expression=evictor.delta)


def _check_second(operator: Consecutive, *columns: Sequence[str]) -> None:
    """Raise if the second operator reads a column that the results of the first do not have, as far as these are known."""
    try:
        results = operator.of.result_columns(*columns) if isinstance(operator.of, NamesColumns) else None
    except OperatorError as error:
        raise ContractError(str(error)) from error
    if results is None:
        return
    columns_read = [EVENT_TIME if name == RESULT_TIME else name for name in results if name != FINAL_AT]
    check_columns_of_input(operator.then, columns_read, f"the results of {type(operator.of).__name__}", ())
