"""The check of a join's completeness: the shares of matched rows, by side and day, against the least shares of the pipeline."""

from collections.abc import Sequence
from typing import Any

import dagster as dg

from assets.completeness import Completeness
from assets.contracts import DerivedAsset
from assets.factories.sentences import listed
from assets.ports import MatchesPort
from operators.contract import ReportsMatches

COMPLETENESS = "join_completeness"
_SEVERITIES = {"warning": dg.AssetCheckSeverity.WARN, "error": dg.AssetCheckSeverity.ERROR}


def is_join(derived: DerivedAsset) -> bool:
    """Whether a table's operator reports which rows of its inputs match."""
    return isinstance(derived.operator, ReportsMatches)


def completeness_spec(derived: DerivedAsset, required: Completeness) -> dg.AssetCheckSpec:
    """The check of a join's completeness."""
    words = f"The share of matched rows among those of each side and day that are finalized or late: {required}."
    return dg.AssetCheckSpec(COMPLETENESS, asset=derived.name, description=words)


def completeness_result(matches: Sequence[MatchesPort], required: Completeness) -> dg.AssetCheckResult:
    """The result over all sides and days of a run.

    It is an error if a share is below one that is required as an error, else a warning. Its metadata have the share of each side over all
    days, the worst side and day, the sides and days that fail, and the trend: the share of each day and side.
    """
    poor = poor_days(matches, required)
    kinds = {required.severity(found.side, found.completeness) for found in poor}
    worst = min(matches, key=lambda found: found.completeness, default=None)
    return dg.AssetCheckResult(
        check_name=COMPLETENESS,
        passed=not poor,
        severity=_SEVERITIES["error" if "error" in kinds else "warning"],
        description=_sentence(poor) if poor else "no side has too few matched rows on any day",
        metadata={
            "worst": _named(worst) if worst else "no rows",
            "poor": dg.MetadataValue.json([_row(found) for found in poor[:10]]),
            "trend": _trend(matches),
            **shares(matches),
        },
    )


def poor_days(matches: Sequence[MatchesPort], required: Completeness) -> list[MatchesPort]:
    """The sides and days with too few matched rows."""
    return [found for found in matches if required.severity(found.side, found.completeness)]


def shares(matches: Sequence[MatchesPort]) -> dict[str, float]:
    """The share of matched rows of each side over all of its days, as metadata that Dagster plots."""
    found = dict[str, float]()
    for side in sorted({one.side for one in matches}):
        own = [one for one in matches if one.side == side]
        matched, rows = sum(one.matched for one in own), sum(one.matched + one.unmatched + one.late for one in own)
        found[f"completeness {side}"] = round(matched / rows, 4) if rows else 1.0
    return found


def rows_of_day(matches: Sequence[MatchesPort]) -> dict[str, Any]:
    """The metadata of a day's result: its rows, and the shares."""
    return {"rows": dg.MetadataValue.json([_row(found) for found in matches]), **shares(matches)}


def _sentence(poor: Sequence[MatchesPort]) -> str:
    return f"too few rows are matched: {listed([_named(found) for found in poor])}"


def _named(found: MatchesPort) -> str:
    late = f", {found.late:,} of them late" if found.late else ""
    rows = found.matched + found.unmatched + found.late
    return f"{found.side} on {found.day} ({found.completeness:.1%} of {rows:,}{late})"


def _trend(matches: Sequence[MatchesPort]) -> dg.TableMetadataValue:
    columns = [dg.TableColumn(name, kind) for name, kind in (("day", "date"), ("side", "string"), ("completeness", "float"))]
    counts = [dg.TableColumn(term, "int") for term in ("matched", "unmatched", "late")]
    ordered = sorted(matches, key=lambda found: (found.day, found.side))
    records = [dg.TableRecord({name: _row(found)[name] for name in (c.name for c in [*columns, *counts])}) for found in ordered]
    return dg.MetadataValue.table(records, dg.TableSchema([*columns, *counts]))


def _row(found: MatchesPort) -> dict[str, Any]:
    counts = {"matched": found.matched, "unmatched": found.unmatched, "late": found.late}
    return {"day": str(found.day), "side": found.side, "completeness": round(found.completeness, 4), **counts}
