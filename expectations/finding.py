"""The result of one expectation, and the name of its check."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from great_expectations import ExpectationSuite
from great_expectations.expectations.expectation import Expectation

from assets.contract_checks import ContractError
from assets.factories.sentences import count

Row = Mapping[str, Any]
_NAME = re.compile(r"[A-Za-z0-9_]+")


@dataclass(frozen=True, kw_only=True)
class Finding:
    """The result of one expectation.

    Args:
        passed: whether the data is as expected.
        evaluated: the number of evaluated rows; None for an expectation that counts no rows.
        unexpected: the number of these rows that are not as expected.
        percent: their share, in percent, of the rows without nulls; for an expectation that values are not null, of all evaluated rows.
        observed: the value that an expectation on the whole table observed.
        sample: some of the unexpected rows.
        error: why the expectation could not be evaluated; None if it was evaluated.
    """

    passed: bool
    evaluated: int | None = None
    unexpected: int = 0
    percent: float = 0.0
    observed: Any = None
    sample: Sequence[Row] = field(default=(), repr=False)
    error: str | None = None

    @property
    def description(self) -> str:
        """The result in a few words, such as `1 of 4 rows fails`. Alerts send it, so it quotes no values of rows."""
        if self.error:
            return "could not be evaluated; the metadata has the error"
        if self.evaluated is None:
            return "the metadata has the observed value"
        if self.evaluated == 0:
            return "no rows to check"
        return f"{self.unexpected:,} of {count(self.evaluated, 'row')} {'fails' if 1 in (self.unexpected, self.evaluated) else 'fail'}"


def check_name(expectation: Expectation) -> str:
    """The name of an expectation's check: `meta["check"]`, else its type and columns, with `_` for characters illegal in Dagster."""
    if expectation.meta and (name := expectation.meta.get("check")) is not None:
        return str(name)
    config = expectation.configuration
    columns = [config.kwargs[key] for key in ("column", "column_A", "column_B") if key in config.kwargs]
    return re.sub(r"[^A-Za-z0-9_]", "_", "_".join([config.type, *columns, *config.kwargs.get("column_list", [])]))


def expectations_by_name(suite: ExpectationSuite) -> dict[str, Expectation]:
    """The expectations of a suite, by the name of their check.

    Raises:
        ContractError: two of them have the same name, of which Dagster would show only one; or Dagster does not accept a name.
    """
    by_name = dict[str, Expectation]()
    for expectation in suite.expectations:
        name = check_name(expectation)
        if not _NAME.fullmatch(name):
            raise ContractError(f"suite {suite.name!r}: the name of the check is {name!r}; legal: letters a to z or A to Z, digits and '_'")
        if name in by_name:
            raise ContractError(
                f"suite {suite.name!r}: the check {name!r} is that of two expectations; legal: a name for each. Give one of them another "
                "name, with `meta: {check: NAME}`"
            )
        by_name[name] = expectation
    return by_name
