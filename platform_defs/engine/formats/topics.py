"""Reads ranges of offsets of Kafka topics, with Spark's own connector.

A range is a `File`, so that it is ingested, recorded in the ledger and repeated after a kill like a file. Its path is
`kafka:TOPIC/PARTITION@ID` with the topic's id, which changes when a topic is deleted and created again; its `modified` is the first
offset, and its `length` the number of offsets. The ledger therefore has the offsets, and no checkpoint is needed.
"""

import json
import re
from collections.abc import Sequence
from typing import NamedTuple

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, TimestampType

from assets.contracts import SourceContract
from operators.columns import quoted_name
from platform_defs.engine.formats.avro import avro_rows
from platform_defs.engine.formats.files import TOPIC, File
from platform_defs.engine.formats.json_lines import json_rows_of
from platform_defs.engine.formats.kafka_options import HEADER, Topics
from platform_defs.engine.formats.raw_rows import PATH, POSITION_BITS, RECORD, arrival

OFFSET_MASK = (1 << POSITION_BITS) - 1
"""The bits of `arrival` that contain the record's offset."""
_PATH = re.compile(rf"{TOPIC}([^/]+)/(\d+)@(.+)")
_OF_FINDER = {"subscribe", "subscribepattern", "assign", "startingoffsets", "endingoffsets", "startingtimestamp", "maxoffsetspertrigger"}
"""Options of Spark's reader that decide which offsets are read. A user's values are not used, as a range sets its own."""
_MIN_BYTES, _PROTOCOL = "kafka.fetch.min.bytes", "kafka.group.protocol"
NO_VALUE = "the record has no value (a tombstone)"
_ISO = "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX"


class Partition(NamedTuple):
    """A partition of a topic.

    Args:
        topic: the topic's name.
        number: the partition's number.
        topic_id: the topic's id, which Kafka gives it when it is created.
    """

    topic: str
    number: int
    topic_id: str

    @property
    def path(self) -> str:
        """The path of the partition's ranges of offsets in the ledger and the quarantine."""
        return f"{TOPIC}{self.topic}/{self.number}@{self.topic_id}"

    @classmethod
    def of(cls, path: str) -> "Partition":
        """The partition of a range, given the range's path."""
        match = _PATH.fullmatch(path)
        if match is None:
            raise ValueError(path)
        return cls(match[1], int(match[2]), match[3])


def offset_range(partition: Partition, first: int, until: int, source: str, topics: Topics) -> File:
    """The records of a partition with `first <= offset < until`, as an input of a source."""
    return File(first, partition.path, until - first, source, topics=topics)


def offset_of(path: str, position: str) -> Column:
    """The Kafka offset of a row, given the columns with its path and its `arrival`; null for a row of a file."""
    return F.when(F.startswith(path, F.lit(TOPIC)), F.col(position).bitwiseAND(OFFSET_MASK))


def topic_rows(spark: SparkSession, contract: SourceContract, files: Sequence[File], ordered: Sequence[File]) -> DataFrame:
    """The rows of ranges of offsets: one for each record.

    Args:
        spark: the session.
        contract: the source's contract.
        files: the ranges, all of the same source.
        ordered: all inputs of the batch, in order.
    """
    topics = files[0].topics
    assert topics is not None
    records = _records(spark, topics, files)
    path = F.concat(F.lit(TOPIC), "topic", F.lit("/"), "partition", F.lit("@"), _topic_id([Partition.of(f.path) for f in files]))
    fields = {f.name: f for f in contract.struct.fields}
    value = F.col("value") if topics.avro else F.coalesce(F.col("value").cast("string"), F.lit(""))
    rows = records.select(
        value.alias("value"),
        F.coalesce(F.when(F.col("value").isNull(), F.lit(NO_VALUE)), *map(_not_text, sorted(topics.columns.values()))).alias(_FAULT),
        path.alias(PATH),
        arrival(files, ordered, path, F.col("offset")),
        *[_part_as_column(part, fields[name]).alias(f"{_COLUMN}{name}") for name, part in topics.columns.items()],
    )
    rows = rows.withColumn(RECORD, _as_record(rows, list(topics.columns)))
    columns_of_parts = {name: F.col(quoted_name(_COLUMN + name)) for name in topics.columns}
    if topics.avro:
        return avro_rows(rows, contract, topics.avro, columns_of_parts, F.col(_FAULT))
    return json_rows_of(rows, contract, columns_of_parts, F.col(_FAULT))


_FAULT, _COLUMN = "_no_value", "_of_record_"


def _as_record(rows: DataFrame, names: Sequence[str]) -> Column:
    """The parts of a record other than its value as a JSON object of texts, by column; null if no column contains a part."""
    if not names:
        return F.lit(None).cast("string")
    parts = {name: F.col(quoted_name(_COLUMN + name)) for name in names}
    texts = {n: F.date_format(c, _ISO) if isinstance(rows.schema[f"{_COLUMN}{n}"].dataType, TimestampType) else c for n, c in parts.items()}
    return F.to_json(F.struct(*[text.alias(name) for name, text in texts.items()]), {"ignoreNullFields": "false"})


def _records(spark: SparkSession, topics: Topics, files: Sequence[File]) -> DataFrame:
    ranges = [(Partition.of(file.path), file) for file in files]
    topics_read = sorted({partition.topic for partition, _ in ranges})
    assigned = {topic: [p.number for p, _ in ranges if p.topic == topic] for topic in topics_read}
    first = {topic: {str(p.number): f.modified for p, f in ranges if p.topic == topic} for topic in topics_read}
    until = {topic: {str(p.number): f.modified + f.length for p, f in ranges if p.topic == topic} for topic in topics_read}
    reader_options = {name: value for name, value in topics.options.items() if name.lower() not in _OF_FINDER}
    ranges_read = {"assign": assigned, "startingOffsets": first, "endingOffsets": until}
    headers = {"includeHeaders": str(any(part.startswith(HEADER) for part in topics.columns.values())).lower()}
    options = reader_options | _fetch_options(topics) | headers | {name: json.dumps(value) for name, value in ranges_read.items()}
    return spark.read.format("kafka").options(**options).load()


def _fetch_options(topics: Topics) -> dict[str, str]:
    """The option with which a broker answers each fetch at once, unless the user sets another value.

    When Kafka's client has the last record of a partition, it sends the next fetch. By default the broker holds this fetch for half a
    second, as there are no newer records, and answers later requests of the same connection only afterwards. The last record of a range is
    in the topic already, so the reader need not wait for newer records. A client with the group protocol `consumer` does not get the
    option: it also fetches while nobody reads from it, and would do so without a pause.
    """
    if topics.option(_PROTOCOL, "classic").lower() == "consumer":
        return {}
    return {_MIN_BYTES: topics.option(_MIN_BYTES, "0")}


def _topic_id(partitions: Sequence[Partition]) -> Column:
    """The id of a record's topic."""
    ids = sorted({(p.topic, p.topic_id) for p in partitions})
    topic_id_column = F.lit(ids[0][1])
    for topic, topic_id in ids[1:]:
        topic_id_column = F.when(F.col("topic") == topic, F.lit(topic_id)).otherwise(topic_id_column)
    return topic_id_column


def _not_text(part: str) -> Column:
    """Why a record is rejected if its key or header is not text; null if it is text."""
    if part != "key" and not part.startswith(HEADER):
        return F.lit(None).cast("string")
    text = _part_as_column(part, StructField(part, StringType()))
    return F.when(~F.is_valid_utf8(text), F.lit(f"{part} is not UTF-8"))


def _part_as_column(part: str, column: StructField) -> Column:
    """A part of a record as the raw value of a column: text, or a timestamp for a column of that type. The last header of a name counts."""
    if part.startswith(HEADER):
        of_name = F.filter("headers", lambda h: h["key"] == F.lit(part.removeprefix(HEADER)))
        return F.try_element_at(F.transform(of_name, lambda h: h["value"].cast("string")), F.lit(-1))
    value = F.col(part)
    return value if part == "timestamp" and isinstance(column.dataType, TimestampType) else value.cast("string")
