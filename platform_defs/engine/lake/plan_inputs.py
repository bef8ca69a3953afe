"""Finds out how much a query would read, from its plan and without a Spark job."""

import re
from collections.abc import Iterable
from typing import Any, NamedTuple

_COMPRESSION = 20
"""The assumed ratio of a text's size to the size of its compressed file."""
_TOPICS, _OFFSET = "KafkaRelation(", re.compile(r"([\w.-]+)-\d+ -> (\d+)")
LARGE_RECORD_BYTES = 10_000
"""The assumed size of a Kafka record, in bytes, until this process has read the topic: few records are larger."""
_RECORD_BYTES = dict[str, int]()
"""By topic, the mean size of the records that were read last."""
ROWS_IN_MEMORY = "LocalRelation"
_WITHOUT_FILES = {ROWS_IN_MEMORY, "OneRowRelation", "Range"}


class Input(NamedTuple):
    """A relation that a plan reads.

    Args:
        relation: the relation in the JVM.
        kind: `parquet`, another format, a description of Kafka's topics, or the class of a relation without files.
        bytes: the size of its files or records.
    """

    relation: Any
    kind: str
    bytes: int


def text_bytes(plan: Any) -> int | None:
    """The estimated size of a plan's files as text, in bytes; Parquet counts as compressed. None if it is not known without a job."""
    inputs = None if plan is None else inputs_of(plan)
    return (
        None if inputs is None else sum(plan_input.bytes * (_COMPRESSION if plan_input.kind == "parquet" else 1) for plan_input in inputs)
    )


def inputs_of(plan: Any) -> list[Input] | None:
    """The relations that a plan reads; None if the bytes of one are not known without a job."""
    leaves, inputs = plan.collectLeaves(), list[Input]()
    for n in range(leaves.size()):
        leaf = leaves.apply(n)
        kind, size = leaf.nodeName(), 0
        if kind == "LogicalRelation":
            relation = leaf.relation()
            kind = relation.toString()
            size = _topic_bytes(kind) if kind.startswith(_TOPICS) else _file_bytes(relation, is_parquet=kind == "parquet")
        elif kind not in _WITHOUT_FILES:
            return None
        if size is None:
            return None
        inputs.append(Input(leaf, kind, size))
    return inputs


def _topic_bytes(relation: str) -> int | None:
    """The estimated size of the records that a relation of Kafka's topics reads; None if its offsets are not known.

    Args:
        relation: its text, which lists the first offset of each partition, and then the offset after the last one of each.
    """
    sizes = [int(offset) * _RECORD_BYTES.get(topic, LARGE_RECORD_BYTES) for topic, offset in _OFFSET.findall(relation)]
    half = len(sizes) // 2
    return sum(sizes[half:]) - sum(sizes[:half]) if sizes and len(sizes) == 2 * half else None


def _file_bytes(relation: Any, *, is_parquet: bool) -> int | None:
    """The size of the files of a relation, in bytes; None if it does not consist of a list of files."""
    if not is_parquet and relation.getClass().getSimpleName() != "HadoopFsRelation":
        return None
    location = relation.location()
    if location.getClass().getSimpleName() != "InMemoryFileIndex":
        return None
    is_compressed = not is_parquet and any(file.endswith(".gz") for file in location.inputFiles())
    return int(location.sizeInBytes()) * (_COMPRESSION if is_compressed else 1)


def record_sizes(topics: Iterable[str], mean_bytes: int) -> None:
    """Remember the mean size of the records that were read from topics, by which the size of their next records is estimated."""
    _RECORD_BYTES.update(dict.fromkeys(topics, max(1, mean_bytes)))
