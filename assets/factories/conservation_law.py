"""The check of the conservation law: every accepted row of a table's inputs is accounted for exactly once, and the results are right."""

from collections.abc import Collection, Mapping, Sequence
from datetime import date
from typing import Any

import dagster as dg

from assets.contracts import DerivedAsset
from assets.factories.daily_checks import log_days
from assets.factories.partitions import days_of_run
from assets.factories.sentences import count, list_text, sides_and_days
from assets.factories.work import Advanced
from assets.ports import TERMS, AccountPort
from operators.accounting import TracesInputs

LAW = "conservation_law"
LAW_BY_ROW = (
    "Every accepted row is exactly one of matched, unmatched, pending, late or filtered. The results equal those recomputed from the "
    "event logs."
)
LAW_BY_TIME = (
    "Every accepted row is exactly one of matched (finalized), unmatched, pending, late or filtered. The results equal those recomputed "
    "from the inputs."
)


def results_name_source_rows(derived: DerivedAsset, sources: Sequence[str]) -> bool:
    """Whether a table's results name the rows of sources from which they come, so that these are counted one by one."""
    return isinstance(derived.operator, TracesInputs) and {*derived.inputs} <= {*sources}


def law_check(advanced: Advanced) -> dg.AssetCheckResult:
    """The result of the check of the conservation law: a table's accounts, and the ledger's row counts compared with the logs' rows."""
    accounts = advanced.accounts
    violations = [a for a in accounts if not a.holds]
    return dg.AssetCheckResult(
        check_name=LAW,
        passed=advanced.holds,
        severity=dg.AssetCheckSeverity.ERROR,
        description=_law_sentence(violations, advanced.count_differences),
        metadata={
            "broken": dg.MetadataValue.json([_account_row(a) for a in violations[:10]]),
            "days": len({a.day for a in accounts}),
            **sums_of_terms(accounts),
        },
    )


def _law_sentence(violations: Sequence[AccountPort], differences: Mapping[tuple[str, int], tuple[int, int]]) -> str:
    """The sides and days that violate the law, and the batches whose numbers of rows in the ledger and in the log differ."""
    batches = [
        f"{source}, batch {seq} ({count(in_ledger, 'row')} in the ledger, {count(in_log, 'row')} in the log)"
        for (source, seq), (in_ledger, in_log) in differences.items()
    ]
    wrong_results = [a for a in violations if a.missing or a.extra]
    wrong_sums = [a for a in violations if a.accepted != a.matched + a.unmatched + a.pending + a.late + a.filtered]
    sentences = [f"the account does not add up: {sides_and_days(wrong_sums)}"] if wrong_sums else []
    sentences += [f"results are missing or superfluous: {sides_and_days(wrong_results)}"] if wrong_results else []
    sentences += [f"ledger and log differ: {list_text(batches)}"] if batches else []
    return "; ".join(sentences) or "every row is accounted for"


def log_law(
    context: dg.AssetExecutionContext, result: dg.AssetCheckResult, accounts: Sequence[AccountPort], violated: Collection[date]
) -> None:
    """Log the result of the law for each day of the run, and for each earlier day that failed: a run accounts for earlier days too."""
    first, last = days_of_run(context)
    days = sorted({a.day for a in accounts if first <= a.day <= last or a.day in violated})
    by_day = {
        str(day): (day not in violated, {"rows": dg.MetadataValue.json([_account_row(a) for a in accounts if a.day == day])})
        for day in days
    }
    log_days(context, result, by_day)


def _account_row(account: AccountPort) -> dict[str, Any]:
    return {"side": account.side, "day": str(account.day), **{term: getattr(account, term) for term in TERMS}}


def sums_of_terms(accounts: Sequence[AccountPort]) -> dict[str, int]:
    """The sums of the terms over all days as metadata that Dagster plots, named `<term> <side>`."""
    sides = sorted({a.side for a in accounts})
    return {f"{term} {side}": sum(getattr(a, term) for a in accounts if a.side == side) for side in sides for term in TERMS}
