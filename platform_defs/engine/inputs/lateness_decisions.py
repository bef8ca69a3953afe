"""The table `verdicts/<asset>` of recorded lateness decisions: its columns, the metadata of its commits, and the rows with decisions."""

from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from assets.contracts import DerivedAsset
from operators.columns import temporary
from operators.engine_columns import ARRIVAL, SEQ, SESSION
from platform_defs.engine.inputs.prepared_rows import LATE
from platform_defs.engine.inputs.progress import stored_progress
from platform_defs.engine.lake.tables import Lake

_SESSION_SCHEMA = StructType().add("start", "long").add("end", "long")
DECISION_SCHEMA = StructType().add("which", "integer").add(SEQ, "long").add(ARRIVAL, "long").add("session", _SESSION_SCHEMA)
"""The columns of `verdicts/<asset>`: the index of the input, the row in it, and the session that the row joins; null for a late row."""
DECIDED = "judged"
"""The metadata key of the commits of `verdicts/<asset>`: the last decided batch, and the asset's generation if it is not 0."""
_DECIDED = temporary("decided")


def rows_with_decisions(rows: DataFrame, decisions: DataFrame, index: int) -> DataFrame:
    """Rows of input `index` with `SESSION`, the recorded session, and `LATE`. A row without a decision has no session, and is not late."""
    session, is_decided = F.col("session").alias(SESSION), F.lit(True).alias(_DECIDED)
    recorded = decisions.where(F.col("which") == index).select(SEQ, ARRIVAL, session, is_decided)
    late = F.coalesce(F.col(_DECIDED), F.lit(False)) & F.col(SESSION).isNull()
    return rows.join(recorded, [SEQ, ARRIVAL], "left").select(*rows.columns, SESSION, late.alias(LATE))


def seq_of(decided: Any) -> int:
    """The last batch whose lateness decisions are recorded, from the value under `DECIDED`; 0 if there is none."""
    if decided is None:
        return 0
    return decided["seq"] if isinstance(decided, dict) else decided


def generation_of(decided: Any) -> int:
    """The generation of the asset's table to which recorded decisions belong, from the value under `DECIDED`."""
    return decided["generation"] if isinstance(decided, dict) else 0


def has_decisions(lake: Lake, asset: DerivedAsset) -> bool:
    """Whether lateness decisions are recorded for the present generation of an asset's table."""
    newest = lake.newest_commit(asset.decisions, DECIDED)
    return newest is not None and generation_of(newest.value) == stored_progress(lake, asset).generation
