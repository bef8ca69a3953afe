"""How complete a join must be, by side and severity."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from assets.contract_checks import ContractError

Share = float | Mapping[str, float]
"""A share from 0 to 1: of all sides, or by the name of an input."""


@dataclass(frozen=True, kw_only=True)
class Completeness:
    """The least shares of matched rows of a join, of each side and day. Late rows count as not matched.

    Args:
        warn_below: a day below this share of a side is a warning; one number, or one by the name of an input.
        error_below: a day below this share of a side is an error; one number, or one by the name of an input.

    Raises:
        ContractError: a share is not a number from 0 to 1.

    >>> Completeness(warn_below={"payments": 0.99}, error_below=0.5).severity("payments", 0.6)
    'warning'
    """

    warn_below: Share = 0.0
    error_below: Share = 0.0

    def __post_init__(self) -> None:
        for name in ("warn_below", "error_below"):
            limit = getattr(self, name)
            for share in limit.values() if isinstance(limit, Mapping) else [limit]:
                _check_share(name, share)

    @property
    def sides(self) -> set[str]:
        """The inputs that have shares of their own."""
        return {side for limit in (self.warn_below, self.error_below) if isinstance(limit, Mapping) for side in limit}

    def of_side(self, side: str) -> "Completeness":
        """The requirement for one side alone; no share is required of the others."""
        return Completeness(warn_below={side: _of_side(self.warn_below, side)}, error_below={side: _of_side(self.error_below, side)})

    def severity(self, side: str, share: float) -> str | None:
        """The severity of a side's share of matched rows: `error`, `warning`, or None if the share is sufficient."""
        if share < _of_side(self.error_below, side):
            return "error"
        return "warning" if share < _of_side(self.warn_below, side) else None

    def __str__(self) -> str:
        """The shares in words, for the description of a check."""
        limits = [
            f"{'all sides' if side is None else side} {kind} below {share * 100:.10g}%"
            for kind, limit in (("warn", self.warn_below), ("fail", self.error_below))
            for side, share in (limit.items() if isinstance(limit, Mapping) else [(None, limit)])
            if share > 0
        ]
        return "; ".join(limits) or "no share is required"


def completeness_of(parameter: str, limit: Any) -> Completeness:
    """Read the parameter of a pipeline: a share below which a day is a warning, or a `Completeness`.

    Raises:
        ContractError: it is neither.
    """
    if isinstance(limit, Completeness):
        return limit
    if isinstance(limit, Mapping):
        legal = "a share from 0 to 1, or `Completeness(warn_below={input: share})` for a share of each input"
        raise ContractError.bad_value(parameter, limit, legal)
    _check_share(parameter, limit)
    return Completeness(warn_below=limit)


def _of_side(limit: Share, side: str) -> float:
    return limit.get(side, 0.0) if isinstance(limit, Mapping) else limit


def _check_share(parameter: str, share: Any) -> None:
    if not isinstance(share, int | float) or isinstance(share, bool) or not 0 <= share <= 1:
        raise ContractError.bad_value(parameter, share, "a share from 0 to 1")
