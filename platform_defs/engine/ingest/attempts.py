"""Identifies an attempt at a micro-batch in commit metadata, so that a later try, after a kill, recognizes the rows of an earlier one."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from pyspark.sql.types import StructType

from assets.contracts import SourceContract
from platform_defs.engine.formats.files import File
from platform_defs.engine.formats.reader import READER_VERSION

GOOD = "good"
"""The key in an attempt's metadata for the number of rows that pass their contract. Two tries with equal numbers have the same rows.

The numbers can differ, because the wall clock of a try decides which rows are too far in the future: more rows pass in a later try.
"""


def attempt_of(seq: int, contract: SourceContract, files: Sequence[File], now: int) -> dict[str, Any]:
    """The commit metadata of an attempt: a hash of everything that its rows depend on, except the wall clock (see `GOOD`).

    Args:
        seq: the batch number.
        contract: the source's contract; all of its fields are hashed.
        files: the files, each with its fault.
        now: the batch's time in epoch ms, which is the event time of sources that use processing time. It is not hashed for other sources.
    """
    hashed_input = [
        READER_VERSION,
        _fields_of(contract),
        [(f.offset, f.fault, *([f.topics.reading] if f.topics else [])) for f in files],
    ]
    identity = json.dumps([*hashed_input, now] if contract.by_ingest_time else hashed_input)
    return {"seq": seq, "input": hashlib.sha256(identity.encode()).hexdigest()[:16]}


def is_same_input(attempt: Mapping[str, Any], earlier: Mapping[str, Any] | None) -> bool:
    """Whether two attempts are tries of the same batch with the same input; their rows are the same if their `GOOD` is equal too."""
    return earlier is not None and (attempt["seq"], attempt["input"]) == (earlier["seq"], earlier["input"])


def _fields_of(contract: SourceContract) -> dict[str, str]:
    described = {f.name: repr(getattr(contract, f.name)) for f in fields(contract)}
    schema: StructType = contract.struct
    return described | {"schema": schema.json(), "options": repr(sorted(contract.options.items()))}
