"""The table `verdicts/<asset>` of recorded lateness decisions: its columns, and the metadata of its commits."""

from typing import Any

from pyspark.sql.types import StructType

from operators.engine_columns import ARRIVAL, SEQ

DECISION_SCHEMA = StructType().add("which", "integer").add(SEQ, "long").add(ARRIVAL, "long")
DECISION_SCHEMA = DECISION_SCHEMA.add("session", StructType().add("start", "long").add("end", "long"))
"""The columns of `verdicts/<asset>`: the index of the input, the row in it, and the session that the row joins."""
DECIDED = "judged"
"""The metadata key of the commits of `verdicts/<asset>`: the last decided batch, and the asset's generation if it is not 0."""


def seq_of(decided: Any) -> int:
    """The last batch whose lateness decisions are recorded, from the metadata of a commit; 0 for none."""
    return 0 if decided is None else decided["seq"] if isinstance(decided, dict) else decided


def generation_of(decided: Any) -> int:
    """The generation of the asset's table to which recorded decisions belong, from the metadata of a commit."""
    return decided["generation"] if isinstance(decided, dict) else 0
