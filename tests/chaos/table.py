"""The table of fault points and outcomes in `docs/explanation/reliability.md`, between its markers."""

import re
from pathlib import Path

from platform_defs.engine.faults import POINTS
from tests.chaos.plan import TIMER, Planner

PAGE = Path(__file__).resolve().parents[2] / "docs" / "explanation" / "reliability.md"
BEGIN, END = "<!-- chaos: begin -->", "<!-- chaos: end -->"


def table(planner: Planner, summary: str, failed: int) -> str:
    """A sentence about the run, then a row for each point."""
    outcome = "the lake of an undisturbed run, row for row; the law holds" if not failed else f"{failed} trials differ"
    rows = [_row(point, meaning, planner, outcome) for point, meaning in (*POINTS.items(), (TIMER, "any moment, by the clock"))]
    head = ["| point | state | kills | killed in | after recovery |", "|---|---|--:|---|---|"]
    return "\n".join([summary, "", *head, *rows])


def _row(point: str, meaning: str, planner: Planner, outcome: str) -> str:
    where = ", ".join(f"{action} {count}" for action, count in sorted(planner.by_action[point].items()))
    kills = planner.kills_by_point[point]
    return f"| `{point}` | {meaning} | {kills} | {where} | {outcome if kills else 'not killed in this run'} |"


def write(text: str) -> None:
    """Replace the table in `docs/explanation/reliability.md`."""
    page = PAGE.read_text(encoding="utf-8")
    fresh = re.sub(f"{BEGIN}.*{END}", lambda _: f"{BEGIN}\n{text}\n{END}", page, flags=re.DOTALL)
    PAGE.write_text(fresh, encoding="utf-8")
