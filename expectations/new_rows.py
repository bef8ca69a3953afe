"""Checks of an event log that look at new rows only: the rows of ledger batches after the last batch whose rows passed.

Rows of a log never change, so a check of single rows needs to see each row once. The evaluation of such a check records the last batch
up to which all rows have passed, and Dagster's event log keeps it. All rows are checked again if the log was created again or restored
from a backup, if the expectation changed, if retention has removed the recorded batch from the ledger, if none of the last runs of the
check has evaluated it, or in a run with the tag `FULL`.
"""

import json
from collections.abc import Sequence
from typing import Any

import dagster as dg
from great_expectations.expectations.expectation import Expectation
from pyspark.sql.types import StructType

from assets.ports import LogPort
from expectations.counting import column_types, counting
from expectations.finding import check_name
from operators.engine_columns import SEQ

FULL = "tidemark/full_checks"
"""The tag of a run that checks all rows."""
CHECKED = "checked_batches"
"""The metadata key of an evaluation: the log, the expectation, and the last batch up to which all rows have passed, with its time."""
_MOST_RUNS = 20
"""How many runs are searched for the last evaluation; a run that failed before the evaluation has none."""


def select_row_checks(expectations: Sequence[Expectation], schema: StructType) -> list[Expectation]:
    """Select the expectations that hold for a whole log if they hold for each of its batches.

    These are expectations of single rows that no row may violate, and of uniqueness within a batch.
    """
    types = column_types(schema)
    countings = [(e, counting(e, types)) for e in expectations]
    return [e for e, c in countings if c is not None and c.mostly == 1 and (not c.key or SEQ in c.key)]


def passed_record(expectation: Expectation, log: LogPort, last_seq: int) -> dg.JsonMetadataValue:
    """Make the record that the rows of a log have passed an expectation up to batch `last_seq`; 0 if no batch is known to have passed."""
    return dg.MetadataValue.json(
        {"log": log.id, "expectation": expectation_values(expectation), "to": last_seq, "time": log.time_of(last_seq)}
    )


def passed_batches(instance: dg.DagsterInstance, key: dg.AssetKey, expectations: Sequence[Expectation], log: LogPort) -> dict[str, int]:
    """Read the last batch up to which the rows of a log have passed, by check name; 0 if none has.

    Args:
        instance: the instance whose event log has the evaluations.
        key: the asset of the checks.
        expectations: the expectations.
        log: the log.
    """
    records = {check_name(e): (e, last_recorded(instance, dg.AssetCheckKey(key, check_name(e)), CHECKED) or {}) for e in expectations}
    return {
        name: record["to"] if record and record == passed_record(e, log, record["to"]).value else 0 for name, (e, record) in records.items()
    }


def last_recorded(instance: dg.DagsterInstance, key: dg.AssetCheckKey, name: str) -> dict[str, Any] | None:
    """A JSON object in the metadata of a check's last evaluation; None if there is none."""
    records = instance.event_log_storage.get_asset_check_execution_history(key, limit=_MOST_RUNS)
    evaluations = [r.evaluation for r in records if isinstance(r.evaluation, dg.AssetCheckEvaluation)]  # a run that began has another event
    recorded = evaluations[0].metadata.get(name) if evaluations else None
    value = recorded.value if isinstance(recorded, dg.JsonMetadataValue) else None
    return value if isinstance(value, dict) else None


def expectation_values(expectation: Expectation) -> dict[str, Any]:
    """The type and parameters of an expectation, as JSON values; dates, times and decimals are texts."""
    config = expectation.configuration
    return json.loads(json.dumps({"type": config.type, **config.kwargs}, default=str))
