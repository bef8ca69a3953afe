"""The days whose account a step changes."""

from datetime import date

from assets.days import day_of
from platform_defs.engine.accounting.day_accounts import longest_wait
from platform_defs.engine.advance.advance import Advance, Step

Days = tuple[date, date]


def days_of_step(advance: Advance, step: Step) -> Days | None:
    """The first and the last day (of event time) that a step changes in the account.

    These are the days with rows that the step finalized, with rows whose results it corrected, and with new rows of sources. Days on which
    only rows of input tables are new are not among them.

    Args:
        advance: the asset.
        step: a committed step of it.

    Returns:
        The two days; None for all days, which the first step of a table, or any step of an upserted table, may change.
    """
    closed_to, closed_to_after = step.before.closed_to, step.after.closed_to
    if advance.asset.operator.emits.upserts or closed_to is None or closed_to_after is None:
        return None
    wait = longest_wait(advance.asset)
    times = [closed_to + 1 - wait, closed_to_after]
    for number, first, last in step.after.corrected:
        times += [first - wait, last] if number > step.before.step else []
    for name in advance.asset.inputs:
        if name in advance.workspace.sources:
            batches = advance.workspace.ledger.source(name).batches_with_rows(step.before.seq, step.after.seq)
            times += batches["first_event_time"].to_pylist() + batches["last_event_time"].to_pylist()
    return day_of(min(times)), day_of(max(times))
