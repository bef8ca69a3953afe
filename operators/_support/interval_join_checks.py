"""The legal values of an interval join's parameters; some depend on its kind."""

from collections.abc import Mapping
from typing import Literal, get_args

from operators.errors import OperatorError
from operators.nondeterministic import check_deterministic
from operators.triggers import EveryInterval, EveryStep, Trigger

How = Literal["inner", "left", "right", "full", "semi", "anti"]
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


def check_parameters(how: How, residual: str | None, late_rows: LateRows, early: Trigger | None, result_time: ResultTime) -> None:
    """Check the extra condition of an interval join, and the parameters that are one of several words, or that depend on its kind.

    Raises:
        OperatorError: the condition depends on more than the rows, the kind or the rule for late rows is unknown, a join of this kind has
            no such early results, or a result of it may lack the row of this time.
    """
    for parameter, value, words in (("how", how, How), ("late_rows", late_rows, LateRows)):
        if value not in get_args(words):
            raise OperatorError.bad_value(parameter, value, ", ".join(get_args(words)))
    check_deterministic("residual", residual or "")
    triggers, reason = _TRIGGERS.get(how, ((EveryStep, EveryInterval), "a pair has two rows, and gets no more"))
    if early and not isinstance(early, triggers):
        kinds = " or ".join([*[kind.__name__ for kind in triggers], f"None for how={how!r}"])
        raise OperatorError.bad_value("early", early, f"{kinds}: {reason}")
    if how not in _KINDS.get(result_time, ()):
        legal = ", ".join(repr(time) for time, kinds in _KINDS.items() if how in kinds)
        raise OperatorError.bad_value("result_time", result_time, f"for how={how!r}, the time of a row that every result has: {legal}")
