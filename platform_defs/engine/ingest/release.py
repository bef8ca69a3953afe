"""Releases rejected rows: writes them to a new file in the source's folder, each row once.

The file is written under a hidden name. Then its rows are marked with its final name in one commit of the quarantine. Then the file is
renamed. After a kill the next release finds the hidden file. If its rows are marked, the file is renamed; otherwise it is deleted.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import reduce
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, StructType

from assets.contracts import SourceContract
from operators.columns import temporary
from operators.engine_columns import ARRIVAL, SEQ
from platform_defs.engine.faults import point
from platform_defs.engine.formats.csv_lines import HEADER_FAULT
from platform_defs.engine.formats.csv_style import CsvStyle
from platform_defs.engine.formats.files import TOPIC, File, hadoop_file, one_path
from platform_defs.engine.formats.opening import hadoop_path
from platform_defs.engine.formats.raw_rows import HEX
from platform_defs.engine.formats.records import RECORDS, record_lines
from platform_defs.engine.formats.text import header
from platform_defs.engine.ingest.quarantine_error import QuarantineError
from platform_defs.engine.ingest.quarantine_list import RELEASED
from platform_defs.engine.ingest.writer import LedgerWriter
from platform_defs.engine.lake.commits import widen
from platform_defs.engine.lake.small_queries import collect, count, in_memory, plan_if_small
from platform_defs.engine.lake.tables import Lake, LakeSnapshot
from platform_defs.engine.ledger.known_files import uris_below
from platform_defs.engine.ledger.snapshot import last_with_rejected_rows

_HIDDEN = ".releasing"
_NOT_TEXT = "malformed: not UTF-8"
_OF_AVRO = "^malformed: .*(Avro|Confluent)"
"""The reasons of rejected Avro values, which the quarantine has in hexadecimal. It has a JSON value in hexadecimal for `_NOT_TEXT` only."""
_PART_NOT_TEXT = r"^malformed: (key|headers\..*) is not UTF-8$"


@dataclass(frozen=True)
class Released:
    """A file of released rows.

    Args:
        name: its name in the source's folder.
        rows: how many rows left the quarantine. A rejected header is one of them, and is not written as a row.
    """

    name: str
    rows: int


@dataclass(frozen=True)
class Release:
    """Releases rows of one source.

    Args:
        writer: the session, the lake and the ledger.
        rows: reads the rejected rows of a lake, with the column `released`; None if there is no quarantine.
        contract: the source's contract.
        folder: its folder of input files.
    """

    writer: LedgerWriter
    rows: Callable[[Lake], DataFrame | None]
    contract: SourceContract
    folder: str

    def __call__(self, reasons: Sequence[str], names: Sequence[str]) -> list[Released]:
        """Release the quarantined rows with these prefixes of reasons, from the named files; see `Quarantine.release`."""
        delta = self.writer.lake.delta(self.contract.quarantine)
        if delta is None:
            return []
        self.writer.lake.check_leases()
        widen(delta, StructType().add(RELEASED, "string"))
        released = list(self._finish_interrupted())
        selected = F.col(RELEASED).isNull() & _has_one_prefix(reasons)
        found = sorted(path for (path,) in collect(self._rows().where(selected).select("path").distinct()))
        paths = [p for p in found if not names or any(is_named(p, n) for n in names)]
        self._check_bytes(selected, paths)
        self._check_records(selected, [path for path in paths if path.startswith(TOPIC)])
        groups = self._group_by_header(paths)
        stamp = datetime.fromtimestamp(self.writer.ledger.now() / 1000, UTC).strftime("%Y%m%dT%H%M%S%fZ")
        for number, ((suffix, head), group) in enumerate(groups.items(), 1):
            name = f"released-{stamp}-{self.writer.lake.version(self.contract.quarantine)}-{number}{suffix}"
            released.append(self._release(name, head, selected, group, reasons))
        return released

    def _release(self, name: str, head: str | None, selected: Column, group: Sequence[str], reasons: Sequence[str]) -> Released:
        """Release the selected rows of a group of files as one file."""
        snapshot = LakeSnapshot.of(self.writer.lake)
        table = snapshot.delta(self.contract.quarantine)
        assert table is not None
        point("release.before_write")
        self._write(self._rows(snapshot).where(selected & F.col("path").isin(*group)), head, name)
        point("release.after_write")
        predicate = selected_rows_sql(last_with_rejected_rows(self.writer.ledger, self.contract.name), group, reasons)
        self.writer.lake.update(self.writer.spark, self.contract.quarantine, predicate, {RELEASED: _quoted(name)}, {"release": name}, table)
        point("release.after_mark")
        self._make_visible(name)
        point("release.after_rename")
        return Released(name, self._count_marked(name))

    def _rows(self, lake: Lake | None = None) -> DataFrame:
        rows = self.rows(lake or self.writer.lake)
        assert rows is not None
        return rows

    def _count_marked(self, name: str) -> int:
        return count(self._rows().where(F.col(RELEASED) == name))

    def _check_bytes(self, selected: Column, paths: Sequence[str]) -> None:
        """Raise if a selected row of a Parquet file contains bytes: its text has them as base64, which would be ingested as the value."""
        columnar = [p for p in paths if File(0, p, 0, self.contract.name).suffix == ".parquet"]
        if not columnar:
            return
        added = self.writer.lake.schema(self.contract.log).fields if self.contract.new_columns == "add" else []
        columns = list({f.name: f for f in (*self.contract.struct.fields, *added) if isinstance(f.dataType, BinaryType)}.values())
        if not columns:
            return
        bytes_columns = F.from_json("raw", StructType(columns))
        has_bytes = reduce(Column.__or__, [bytes_columns.getField(f.name).isNotNull() for f in columns])
        row = self._rows().where(selected & F.col("path").isin(*columnar) & has_bytes).select("path").first()
        if row is not None:
            raise QuarantineError.contains_bytes(self.contract.name, unquote(row["path"]), [f.name for f in columns])

    def _check_records(self, selected: Column, paths: Sequence[str]) -> None:
        """Raise if a selected record cannot be written as a JSON object: its value is damaged Avro, or its key or a header is not text."""
        if not paths:
            return
        records = self._rows().where(selected & F.col("path").isin(*paths))
        if (row := records.where(F.startswith("raw", F.lit(HEX)) & F.rlike("reason", F.lit(_OF_AVRO))).select("path").first()) is not None:
            raise QuarantineError.not_avro(self.contract.name, row["path"])
        if (row := records.where(F.rlike("reason", F.lit(_PART_NOT_TEXT))).select("path", "reason").first()) is not None:
            raise QuarantineError.lost_part(self.contract.name, row["path"], row["reason"])

    def _group_by_header(self, paths: Sequence[str]) -> dict[tuple[str, str | None], list[str]]:
        """Paths, grouped by the suffix and the header of the file that their rows are written to."""
        groups: dict[tuple[str, str | None], list[str]] = {}
        for path in paths:
            suffix = File(0, path, 0, self.contract.name).suffix
            if suffix in (TOPIC, RECORDS):
                groups.setdefault((RECORDS, None), []).append(path)
                continue
            of_csv = suffix == ".csv"
            head = self._header(path) if of_csv and CsvStyle.of(self.contract.options).has_header else None
            groups.setdefault((".csv" if of_csv else ".jsonl", head), []).append(path)
        return groups

    def _header(self, path: str) -> str:
        """The header of a CSV file, which must not have changed since its rows were read."""
        [uri] = uris_below([path], self.folder)
        file, spark = File(0, uri, 0, self.contract.name), self.writer.spark
        try:
            path_in_store, conf = hadoop_path(spark, file)
            status = path_in_store.getFileSystem(conf).getFileStatus(path_in_store)
            present_file = File(status.getModificationTime(), uri, status.getLen(), self.contract.name, folder=one_path(self.folder))
            if not self.writer.ledger.file_records(self.contract.name, [present_file]).has_present_state(present_file):
                raise QuarantineError.no_header(self.contract.name, unquote(path), "it is another file now")
            return header(spark, self.contract, file).line
        except Py4JJavaError as error:
            kind = str(error.java_exception.getClass().getSimpleName())
            raise QuarantineError.no_header(self.contract.name, unquote(path), f"it cannot be read ({kind})") from error

    def _write(self, rows: DataFrame, head: str | None, name: str) -> None:
        """Write the file under its hidden name, as a folder with one part. If it has a header, rejected headers are not written as rows."""
        rows = rows if head is None else _without_headers(rows)
        line = F.when(F.col("reason") == _NOT_TEXT, _bytes_of(F.col("raw"))).otherwise(F.col("raw"))
        lines = rows.select(SEQ, ARRIVAL, (record_lines(rows, _NOT_TEXT) if name.endswith(RECORDS) else line).alias("value"))
        if head is not None:
            first = pa.table({SEQ: [-1], ARRIVAL: [-1], "value": [head]})
            lines = in_memory(self.writer.spark, first, lines.schema).union(lines)
        whole = plan_if_small(lines.repartition(1).sortWithinPartitions(SEQ, ARRIVAL).select("value"))
        whole.write.mode("overwrite").option("compression", "none").text(self._hidden(name))

    def _make_visible(self, name: str) -> None:
        """Rename a file to its final name, so that the next ingest finds it."""
        files, hidden = hadoop_file(self.writer.spark, self._hidden(name))
        for part in _parts(files, hidden):
            _, target = hadoop_file(self.writer.spark, f"{one_path(self.folder)}/{name}")
            _, checksum = hadoop_file(self.writer.spark, f"{self._hidden(name)}/.{part.getName()}.crc")
            files.delete(checksum, False)  # otherwise the file could not be read after a manual edit
            if not files.rename(part, target):
                raise QuarantineError.not_renamed(self.contract.name, name)
        files.delete(hidden, True)

    def _finish_interrupted(self) -> Iterator[Released]:
        """Finish an interrupted release: rename files whose rows are marked, and delete other hidden files."""
        files, folder = hadoop_file(self.writer.spark, one_path(self.folder))
        hidden_files = [str(s.getPath().getName()) for s in files.listStatus(folder)] if files.exists(folder) else []
        for name in sorted(n[1:].removesuffix(_HIDDEN) for n in hidden_files if n.startswith(".released-") and n.endswith(_HIDDEN)):
            if marked := self._count_marked(name):
                self._make_visible(name)
                point("release.after_rename")
                yield Released(name, marked)
            else:
                files.delete(hadoop_file(self.writer.spark, self._hidden(name))[1], True)

    def _hidden(self, name: str) -> str:
        return f"{one_path(self.folder)}/.{name}{_HIDDEN}"


def _without_headers(rows: DataFrame) -> DataFrame:
    """Rejected lines without rejected headers: a file that was rejected because of its header has the header as its first rejected line."""
    first = temporary("first")
    with_first = rows.withColumn(first, F.min(ARRIVAL).over(Window.partitionBy(SEQ, "path")))
    return with_first.where(~F.contains("reason", F.lit(HEADER_FAULT)) | (F.col(ARRIVAL) > F.col(first))).drop(first)


def _parts(files: Any, folder: Any) -> list[Any]:
    return [s.getPath() for s in files.listStatus(folder) if s.getPath().getName().startswith("part-")]


def _has_one_prefix(reasons: Sequence[str]) -> Column:
    """Whether a row's reason begins with one of these prefixes; true if there are none."""
    has_prefix = F.lit(not reasons)
    for reason in reasons:
        has_prefix = has_prefix | F.col("reason").startswith(reason)
    return has_prefix


def selected_rows_sql(last: int, paths: Sequence[str], reasons: Sequence[str]) -> str:
    """The rows of a release as DataFusion SQL: of batches up to `last`, not released, from these files, with these prefixes of reasons."""
    terms = [f"{RELEASED} IS NULL", f"{SEQ} <= {last}", "raw <> path", f"path IN ({', '.join(map(_quoted, paths))})"]
    begins = " OR ".join(f"starts_with(reason, {_quoted(reason)})" for reason in reasons)
    return " AND ".join([*terms, *([f"({begins})"] if begins else [])])


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def is_named(path: str, name: str) -> bool:
    """Whether a name matches a file's path: it is the path, its URI, or the last parts of the path."""
    plain, name = unquote(path), name.replace("file:///", "file:/", 1)
    return name in (path, plain, plain.removeprefix("file:")) or plain.endswith(f"/{name}")


def _bytes_of(raw: Column) -> Column:
    """The bytes of a raw line that is not valid UTF-8."""
    return F.unhex(F.substr(raw, F.lit(len(HEX) + 1))).cast("string")
