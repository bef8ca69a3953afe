"""Checks the conservation law after a step, before the next one."""

import logging
from contextlib import suppress

from platform_defs.engine.accounting.accounts import Accounts
from platform_defs.engine.accounting.one_step import LawError
from platform_defs.engine.advance.advance import Step
from platform_defs.engine.operations.failures import describe_error

_log = logging.getLogger(__name__)


def check_step(accounts: Accounts, asset: str, step: Step) -> None:
    """Account for the rows that a step finalized. If the law does not hold, also record the account of the days that the step changed.

    Raises:
        LawError: the conservation law does not hold. It is raised even if the account of these days cannot be computed or recorded.
    """
    violations = [account for account in accounts.step(asset, step) if not account.holds]
    if not violations:
        return
    try:
        with suppress(LawError):
            accounts.check(asset, step)  # records the violation, so that a supervised stream stays off
    except Exception as error:
        _log.warning("%s breaks the conservation law, and its account could not be recorded: %s", asset, describe_error(error))
    raise LawError.of_step(asset, violations)
