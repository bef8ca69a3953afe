"""The legal values of an interval join's parameters; some depend on its kind."""

from collections.abc import Mapping
from typing import Literal, Protocol, get_args

from operators._support.join_columns import How
from operators.errors import OperatorError
from operators.nondeterministic import check_deterministic
from operators.parameters import check_column, check_flag, check_sql
from operators.triggers import EveryInterval, EveryStep, Trigger

LateRows = Literal["drop", "join"]
ResultTime = Literal["later", "left", "right"]
_TRIGGERS: Mapping[How, tuple[tuple[type, ...], str]] = {
    "semi": ((EveryStep,), "an earlier match of a row may still arrive, and make the row final before a later trigger shows it"),
    "anti": ((), "that a row has no match is known only when it is final"),
}
"""For `semi` and `anti`: the legal triggers, and why others are refused."""
_KINDS: Mapping[ResultTime, tuple[How, ...]] = {
    "later": get_args(How),
    "left": ("inner", "left", "semi", "anti"),
    "right": ("inner", "right"),
}
"""For each time of results, the kinds of joins whose results all have it."""


class _Join(Protocol):
    """The parameters of an interval join that are checked here."""

    @property
    def how(self) -> How: ...

    @property
    def residual(self) -> str | None: ...

    @property
    def late_rows(self) -> LateRows: ...

    @property
    def early(self) -> Trigger | None: ...

    @property
    def result_time(self) -> ResultTime: ...


def check_parameters(join: _Join) -> None:
    """Check the types of an interval join's parameters, and the parameters whose legal values are words or depend on `how`.

    Raises:
        OperatorError: a parameter has another type; `how` or `late_rows` is unknown; `residual` depends on more than the rows; a join of
            this kind has no such early results; or its results may lack the row whose time is the `result_time`.
    """
    for parameter, words in (("how", How), ("late_rows", LateRows)):
        if getattr(join, parameter) not in get_args(words):
            raise OperatorError.bad_value(parameter, getattr(join, parameter), ", ".join(get_args(words)))
    for parameter in ("left_time", "right_time"):
        check_column(parameter, getattr(join, parameter))
    for parameter in ("lower_exclusive", "upper_exclusive", "time_buckets"):
        check_flag(parameter, getattr(join, parameter))
    check_sql("residual", join.residual)
    check_deterministic("residual", join.residual or "")
    _check_kind(join.how, join.early, join.result_time)


def _check_kind(how: How, early: Trigger | None, result_time: ResultTime) -> None:
    """Raise `OperatorError` unless a join of this kind has such early results, and each result has the row of `result_time`."""
    triggers, reason = _TRIGGERS.get(how, ((EveryStep, EveryInterval), "a pair has two rows, and gets no more"))
    if early is not None and not isinstance(early, triggers):
        kinds = " or ".join([*[kind.__name__ for kind in triggers], f"None for how={how!r}"])
        raise OperatorError.bad_value("early", early, f"{kinds}: {reason}")
    if result_time not in get_args(ResultTime) or how not in _KINDS[result_time]:
        legal = ", ".join(repr(time) for time, kinds in _KINDS.items() if how in kinds)
        raise OperatorError.bad_value("result_time", result_time, f"for how={how!r}, the time of a row that every result has: {legal}")
