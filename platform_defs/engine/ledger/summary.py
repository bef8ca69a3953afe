"""A summary of a ledger's oldest batches: what later work needs to know of them, in one row for each source.

A summary of the batches up to S replaces their rows by rows with the `seq` S. The columns of these rows are defined by `SourceBatch`.
Everything else is in one JSON document, repeated in each row. The times and watermarks of batches before S are no longer stored;
maintenance summarizes only batches whose times and watermarks no later work reads (see `operations.ledger_retention`).
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

LateRange = tuple[int | None, int | None, int]
"""A range of results that may be late, as `watermarks.LateResults`: `after`, `upto` and `watermark`."""


@dataclass(frozen=True)
class SourceSummary:
    """What the ledger's columns do not record of a source's summarized batches.

    Args:
        accepted: the number of accepted rows.
        accepted_in: the newest batch with accepted rows; None if there is none.
        rejected_in: the newest batch with quarantined rows; None if there is none.
        active_in: the newest batch that read rows, or that set a watermark; None if there is none.
        active_at: the wall clock at that batch.
        idle_rule: the rule by which the source is idle after the batches; see `SourceHistory.idle_rule`.
        idle_since: the first batch that records the source as idle by the present rule; None if there is none.
    """

    accepted: int = 0
    accepted_in: int | None = None
    rejected_in: int | None = None
    active_in: int | None = None
    active_at: int | None = None
    idle_rule: int = 0
    idle_since: int | None = None


@dataclass(frozen=True)
class Summary:
    """What is known of the batches up to `upto`, in addition to the columns of the rows that replace their rows.

    Args:
        upto: the last of the batches.
        began: the wall clock at the first batch.
        sources: the sources, by name.
        watermarks: the watermarks of operators after the batches, by the inputs for which they wait (see `watermark_key`). They cannot be
            computed from the inputs' own watermarks: an input that was idle may now be behind the operator's watermark.
        late: the results of tables that became final in these batches and may be late for a reader, by the inputs of the reader and the
            table (see `result_rows.late_results`).
    """

    upto: int
    began: int
    sources: Mapping[str, SourceSummary]
    watermarks: Mapping[str, int | None] = field(default_factory=dict)
    late: Mapping[str, tuple[LateRange, ...]] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str) -> "Summary":
        """A summary from its JSON text. Values that a later version of Tidemark adds are not read.

        Raises:
            ValueError: the text is no summary.
        """
        try:
            stored: dict[str, Any] = json.loads(text)
            field_names = SourceSummary.__dataclass_fields__
            sources = {
                name: SourceSummary(**{field_name: value for field_name, value in values.items() if field_name in field_names})
                for name, values in stored["sources"].items()
            }
            late = {key: tuple((after, upto, watermark) for after, upto, watermark in ranges) for key, ranges in stored["late"].items()}
            return cls(int(stored["upto"]), int(stored["began"]), sources, stored["watermarks"], late)
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"no summary of a ledger: {error!r}") from error

    @property
    def as_json(self) -> str:
        """The summary as JSON."""
        return json.dumps(asdict(self), sort_keys=True)
