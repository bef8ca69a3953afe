"""The reports of a stream since its last summary."""

from collections import defaultdict
from dataclasses import dataclass, field
from datetime import date
from typing import Any

from assets.factories.sentences import count
from platform_defs.engine.accounting.day_accounts import DayAccount
from platform_defs.engine.advance.advance import Step
from platform_defs.engine.operations.publish_to_topic import Published


@dataclass
class IntervalReports:
    """The reports of an interval.

    Args:
        batches: the number of ledger batches.
        rows: by source, its rows of the ledger.
        steps: by table, its steps.
        accounts: by table, its newest account of each side and day.
        lags: by table, its lag in seconds, which is known when its materialization is logged.
        topics: by table, what was published to its topic.
    """

    batches: int = 0
    rows: dict[str, list[Any]] = field(default_factory=lambda: defaultdict(list))
    steps: dict[str, list[Step]] = field(default_factory=lambda: defaultdict(list))
    accounts: dict[str, dict[tuple[str, date], DayAccount]] = field(default_factory=lambda: defaultdict(dict))
    lags: dict[str, float] = field(default_factory=dict)
    topics: dict[str, Published] = field(default_factory=dict)

    @property
    def is_empty(self) -> bool:
        """Whether the interval has no batch, step, account or published record."""
        return not (self.batches or self.steps or self.accounts or self.topics)

    @property
    def parts(self) -> list[str]:
        """The parts of a summary."""
        accepted = sum(row.accepted for rows in self.rows.values() for row in rows)
        row_counts = [f"{name} {sum(s.rows for s in steps):,}" for name, steps in self.steps.items() if any(s.rows for s in steps)]
        clauses = [f"{count(self.batches, 'batch')} with {count(accepted, 'accepted row')}"] if self.batches else []
        clauses += [f"rows written: {', '.join(row_counts)}"] if row_counts else []
        records = [f"{name} {published.records:,}" for name, published in self.topics.items()]
        clauses += [f"records published: {', '.join(records)}"] if records else []
        clauses += [f"the conservation law holds: {', '.join(self.accounts)}"] if self.accounts else []
        lagging = {name: lag for name, lag in self.lags.items() if lag > 0}
        if lagging:
            most = max(lagging, key=lambda name: lagging[name])
            clauses.append(f"longest lag: {most}, {lagging[most]:.1f} s")
        return clauses
