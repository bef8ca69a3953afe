"""The check of a join's completeness: compares the share of matched rows of each side and day with the share that the pipeline requires."""

from collections.abc import Sequence
from typing import Any

import dagster as dg

from assets.completeness import Completeness
from assets.contracts import DerivedAsset
from assets.factories.sentences import list_text
from assets.ports import MatchesPort
from operators.accounting import ReportsMatches

COMPLETENESS = "join_completeness"
_SEVERITIES = {"warning": dg.AssetCheckSeverity.WARN, "error": dg.AssetCheckSeverity.ERROR}


def is_join(derived: DerivedAsset) -> bool:
    """Whether a table's operator reports which rows of its inputs match."""
    return isinstance(derived.operator, ReportsMatches)


def completeness_spec(derived: DerivedAsset, required: Completeness) -> dg.AssetCheckSpec:
    """The definition of the check of a join's completeness."""
    description = f"For each side and day, the share of matched rows among the finalized and late rows: {required}."
    return dg.AssetCheckSpec(COMPLETENESS, asset=derived.name, description=description)


def completeness_result(matches: Sequence[MatchesPort], required: Completeness) -> dg.AssetCheckResult:
    """The result of the check for a whole run.

    The check fails if the share of a side on a day is too low: as an error if a share is below `error_below`, else as a warning. The
    metadata have the share of each side over all days, the worst side and day, the first ten sides and days that fail (`poor`), and a
    table with the share of each side and day (`trend`).

    Args:
        matches: the matched, unmatched and late rows of each side and day.
        required: the shares that the pipeline requires.
    """
    poor = poor_days(matches, required)
    severities = {required.severity(match.side, match.completeness) for match in poor}
    worst = min(matches, key=lambda match: match.completeness, default=None)
    return dg.AssetCheckResult(
        check_name=COMPLETENESS,
        passed=not poor,
        severity=_SEVERITIES["error" if "error" in severities else "warning"],
        description=_too_few_matched(poor) if poor else "no side has too few matched rows on any day",
        metadata={
            "worst": _match_words(worst) if worst else "no rows",
            "poor": dg.MetadataValue.json([_match_row(match) for match in poor[:10]]),
            "trend": _trend(matches),
            **shares(matches),
        },
    )


def poor_days(matches: Sequence[MatchesPort], required: Completeness) -> list[MatchesPort]:
    """The sides and days whose share of matched rows is too low, for a warning or an error."""
    return [match for match in matches if required.severity(match.side, match.completeness)]


def shares(matches: Sequence[MatchesPort]) -> dict[str, float]:
    """Metadata that Dagster plots: for each side, the share of matched rows over all of its days, from 0 to 1; 1 if it has no rows."""
    shares_by_side = dict[str, float]()
    for side in sorted({match.side for match in matches}):
        of_side = [match for match in matches if match.side == side]
        matched, rows = sum(match.matched for match in of_side), sum(map(_rows_of, of_side))
        shares_by_side[f"completeness {side}"] = _rounded_down(matched, rows)
    return shares_by_side


def rows_of_day(matches: Sequence[MatchesPort]) -> dict[str, Any]:
    """The metadata of the check's result for one day: the numbers of rows of each side, and the shares."""
    return {"rows": dg.MetadataValue.json([_match_row(match) for match in matches]), **shares(matches)}


def _too_few_matched(poor: Sequence[MatchesPort]) -> str:
    return f"too few rows are matched: {list_text([_match_words(match) for match in poor])}"


def _match_words(match: MatchesPort) -> str:
    late = f", {match.late:,} of them late" if match.late else ""
    rows = _rows_of(match)
    return f"{match.side} on {match.day} ({_rounded_down(match.matched, rows, 1_000):.1%} of {rows:,}{late})"


def _rows_of(match: MatchesPort) -> int:
    """The number of finalized and late rows of a side and day."""
    return match.matched + match.unmatched + match.late


def _rounded_down(matched: int, rows: int, parts: int = 10_000) -> float:
    """A share from 0 to 1, rounded down to a multiple of 1 / `parts`, so that a share below 1 is not shown as 1; 1 without rows."""
    return matched * parts // rows / parts if rows else 1.0


def _trend(matches: Sequence[MatchesPort]) -> dg.TableMetadataValue:
    columns = [dg.TableColumn(name, kind) for name, kind in (("day", "date"), ("side", "string"), ("completeness", "float"))]
    counts = [dg.TableColumn(term, "int") for term in ("matched", "unmatched", "late")]
    by_day = sorted(matches, key=lambda match: (match.day, match.side))
    records = [dg.TableRecord(_match_row(match)) for match in by_day]
    return dg.MetadataValue.table(records, dg.TableSchema([*columns, *counts]))


def _match_row(match: MatchesPort) -> dict[str, Any]:
    counts = {"matched": match.matched, "unmatched": match.unmatched, "late": match.late}
    completeness = _rounded_down(match.matched, _rows_of(match))
    return {"day": str(match.day), "side": match.side, "completeness": completeness, **counts}
