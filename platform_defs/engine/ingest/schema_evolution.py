"""Schema evolution of event logs: the columns that a contract with `new_columns` `add` has in each batch."""

import re
from collections.abc import Sequence

from pyspark.sql import SparkSession
from pyspark.sql.types import StructField

from assets.contracts import ENGINE_COLUMNS, SourceContract
from assets.names import is_storable
from platform_defs.engine.formats.files import File
from platform_defs.engine.formats.new_columns import NewColumn, new_columns
from platform_defs.engine.inputs.schemas import log_schema
from platform_defs.engine.lake.tables import Lake

MOST_ADDED = 100  # a limit, in case the keys of JSON objects are data


def with_new_columns(spark: SparkSession, lake: Lake, contract: SourceContract, files: Sequence[File]) -> SourceContract:
    """The contract that applies to these files.

    If the contract adds new columns, the result also has the columns that earlier batches added to the log, and the legal new columns of
    these files, at most `MOST_ADDED` added columns in all. Rows with other new columns are quarantined.
    """
    if contract.new_columns != "add":
        return contract
    contract_of_log = contract.with_added_columns(_columns_added_to_log(lake, contract))
    added = [StructField(c.name, c.type) for c in new_columns(spark, contract_of_log, files) if _is_legal(c.name) and is_storable(c.type)]
    room = max(0, MOST_ADDED - (len(contract_of_log.struct) - len(contract.struct)))
    return contract_of_log.with_added_columns(added[:room])


def refused_columns(spark: SparkSession, contract: SourceContract, files: Sequence[File]) -> list[NewColumn]:
    """The new columns of files, if the contract refuses new columns; else none."""
    return new_columns(spark, contract, files) if contract.new_columns == "refuse" else []


def _columns_added_to_log(lake: Lake, contract: SourceContract) -> list[StructField]:
    declared = {f.name.lower() for f in log_schema(contract).fields}
    return [f for f in lake.schema(contract.log).fields if f.name.lower() not in declared]


def _is_legal(name: str) -> bool:
    """Whether all table formats and SQL dialects accept the name, and the engine does not use it."""
    return re.fullmatch(r"[^\W\d_]\w{0,127}", name) is not None and name.lower() not in ENGINE_COLUMNS
