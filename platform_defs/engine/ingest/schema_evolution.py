"""How an event log's columns grow: what a contract that adds new columns stands for, batch by batch."""

import re
from collections.abc import Sequence

from pyspark.sql import SparkSession
from pyspark.sql.types import StructField

from assets.contracts import ENGINE_COLUMNS, SourceContract
from platform_defs.engine.formats.files import File
from platform_defs.engine.formats.new_columns import Brought, new_columns
from platform_defs.engine.inputs.schemas import log_schema
from platform_defs.engine.lake.tables import Lake

MOST_ADDED = 100  # keys that are data would be columns without end


def widened(spark: SparkSession, lake: Lake, contract: SourceContract, files: Sequence[File]) -> SourceContract:
    """The contract as it stands for these files.

    Where new columns are added: with those that the log has gained, and those that the files bring and a table can
    hold. Rows with others are kept out.
    """
    if contract.new_columns != "add":
        return contract
    known = contract.widened(_gained(lake, contract))
    brought = [StructField(c.name, c.type) for c in new_columns(spark, known, files) if _is_legal(c.name)]
    room = MOST_ADDED - (len(known.struct) - len(contract.struct))
    return known.widened(brought[:room])


def refused(spark: SparkSession, contract: SourceContract, files: Sequence[File]) -> list[Brought]:
    """The new columns that files bring, where the contract refuses them."""
    return new_columns(spark, contract, files) if contract.new_columns == "refuse" else []


def _gained(lake: Lake, contract: SourceContract) -> list[StructField]:
    declared = {f.name.lower() for f in log_schema(contract).fields}
    return [f for f in lake.schema(contract.log).fields if f.name.lower() not in declared]


def _is_legal(name: str) -> bool:
    """Whether every table format and every SQL takes the name, and the engine does not use it."""
    return re.fullmatch(r"[^\W\d_]\w{0,127}", name) is not None and name.lower() not in ENGINE_COLUMNS
