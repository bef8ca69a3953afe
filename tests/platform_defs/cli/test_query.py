"""SQL over a lake without a session: derived tables, event logs, quarantines and changelogs; uncommitted rows are left out."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from typer.testing import CliRunner

from assets.contracts import DerivedAsset, RowRule
from operators import Aggregate
from platform_defs.cli import query as cli
from platform_defs.engine import Engine, faults
from platform_defs.engine.lake import reads
from platform_defs.engine.lake.errors import LakeError
from platform_defs.engine.lake.tables import Lake
from platform_defs.engine.operations.query import Query, QueryError
from tests.conftest import CopyEngine, MakeEngine
from tests.support.file_walk import landed_files
from tests.support.no_session import without_session
from tests.support.small_sources import MINUTE, Event, join, land, replay, source

TOTAL = DerivedAsset(name="total", inputs=("l",), operator=Aggregate(by="k", aggregates={"n": "count(*)"}))


@pytest.fixture(scope="module")
def engine(make_module_engine: MakeEngine) -> Engine:
    engine = make_module_engine([source("l", rules=(RowRule("small", "v < 90"),)), source("r")], [join(), TOTAL])
    first = [Event("a", 1, 0), Event("b", 2, MINUTE), Event("d", 2, MINUTE), Event("c", 99, MINUTE)]
    for batch in (first, [Event("a", 3, 60 * MINUTE)]):
        land(engine, "l", f"{batch[0].v}.jsonl", [e.line for e in batch])
        engine.ingestion.batches.files([*landed_files(engine.folders["l"], "l")])
        replay(engine, [{"r": batch}])
        for name in engine.assets:
            engine.advance(name)
    return engine


def _query(monkeypatch: pytest.MonkeyPatch, engine: Engine, *arguments: str) -> Any:
    monkeypatch.setattr(cli, "_engine", lambda: without_session(engine))
    return CliRunner().invoke(cli.app, [*arguments], catch_exceptions=False).output


def _rows(monkeypatch: pytest.MonkeyPatch, engine: Engine, sql: str) -> list[list[Any]]:
    return [[*row.values()] for row in json.loads(_query(monkeypatch, engine, sql, "--json"))["rows"]]


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT left_v, right_v FROM pairs WHERE k = 'a' AND left_v = 1", [[1, 1]]),
        ("SELECT k, n FROM total ORDER BY k", [["a", 2], ["b", 1], ["d", 1]]),
        ("SELECT v, ts FROM l ORDER BY v LIMIT 1", [[1, "2026-03-01 00:00:00+00:00"]]),
        ("SELECT count(*) FROM r", [[5]]),
        ("SELECT seq, sum(accepted) FROM ledger WHERE source = 'l' AND rows_read > 0 GROUP BY seq ORDER BY seq", [[1, 3], [4, 1]]),
        ("SELECT reason FROM quarantine_l", [["rule: small"]]),
        ("SELECT k, change FROM changelog_total WHERE k = 'b'", [["b", "+I"]]),
        ("(SELECT v + 0.5 FROM l WHERE v > 2)", [[3.5]]),
        ("SELECT 'NaN'::double, ['-inf'::double], map(['a'], ['inf'::double])", [["nan", ["-inf"], [["a", "inf"]]]]),
        ("/* a comment */\nSELECT 1.50::decimal(5, 2) AS d, date '2026-01-02' AS t, [1, NULL] AS l", [["1.50", "2026-01-02", [1, None]]]),
        ("WITH few AS (SELECT * FROM l) SELECT count(*) FROM few JOIN total USING (k)", [[4]]),
    ],
)
def test_every_table_is_read_by_its_name(monkeypatch: pytest.MonkeyPatch, engine: Engine, sql: str, expected: list[list[Any]]) -> None:
    assert _rows(monkeypatch, engine, sql) == expected


def test_the_first_rows_are_printed_with_the_number_of_all(monkeypatch: pytest.MonkeyPatch, engine: Engine) -> None:
    out = _query(monkeypatch, engine, "SELECT v FROM r ORDER BY v", "--limit", "2")
    assert "Result: 2 rows, and more (--limit)" in out
    assert "Result: 1 row\n" in _query(monkeypatch, engine, "SELECT count(*) AS n FROM r")
    assert "Result: 5 rows\n" in _query(monkeypatch, engine, "SELECT v FROM r ORDER BY v", "--limit", "5")
    assert _query(monkeypatch, engine, "SELECT v FROM r WHERE v > 99") == "The result has no rows.\n"


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("SELECT FROM WHERE", r"^The query failed: .*Tables: ledger, quarantine_l, changelog_total, l, r, pairs, total\. The SQL is"),
        ("SELECT * FROM rides", r"table 'datafusion.public.rides' not found"),
        ("SELECT w FROM l", r"No field named w"),
        ("SELECT l.k, r.k FROM l JOIN r ON l.k = r.k", r"two columns named 'k'.*AS"),
        ("SELECT cast(k AS int) FROM l", r"^The query failed: [^\n]*Cannot cast string 'a'[^\n]*$"),
        ("SELECT arrow_cast(9999999, 'Date32')", r"out of range"),
    ],
)
def test_an_error_says_what_is_wrong_and_names_the_tables(monkeypatch: pytest.MonkeyPatch, engine: Engine, sql: str, message: str) -> None:
    with pytest.raises(QueryError, match=message):
        _query(monkeypatch, engine, sql)


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("SELECT * FROM total", "total has no rows yet: `tidemark advance total` makes it. Nothing was run"),
        ("SELECT * FROM l", "l has no rows yet: `tidemark ingest` makes it. Nothing was run"),
        ("SELECT * FROM ledger", "ledger has no rows yet: `tidemark ingest` makes it. Nothing was run"),
        ("SELECT * FROM quarantine_l", "quarantine_l has no rows yet. Nothing was run"),
    ],
)
def test_a_table_without_rows_is_named_with_the_command_that_makes_it(
    monkeypatch: pytest.MonkeyPatch, make_engine: MakeEngine, sql: str, message: str
) -> None:
    with pytest.raises(QueryError, match=f"^{message}$"):
        _query(monkeypatch, make_engine([source("l")], [TOTAL]), sql)


@pytest.mark.parametrize(
    "statement",
    [
        "COPY (SELECT 1 AS a) TO '{file}' STORED AS CSV",
        "/* SELECT */ COPY l TO '{file}'",
        "CREATE EXTERNAL TABLE x STORED AS CSV LOCATION '/etc/passwd'",
        "CREATE VIEW x AS SELECT 1",
        "EXPLAIN ANALYZE COPY (SELECT 1 AS a) TO '{file}' STORED AS CSV",
        "INSERT INTO l SELECT * FROM l",
        "DROP TABLE l",
        "SET datafusion.execution.batch_size = 1",
        "SELECT 1; COPY l TO '{file}'",
        "SELECT * FROM '/etc/passwd'",
        "WITH x AS (SELECT 1) INSERT INTO l SELECT * FROM l",
        "'",
        "",
    ],
)
def test_a_statement_that_is_no_query_is_refused(monkeypatch: pytest.MonkeyPatch, engine: Engine, tmp_path: Path, statement: str) -> None:
    version = engine.lake.version("events/l")
    with pytest.raises(QueryError, match=r"^(The SQL (begins with|has INTO).*legal: one query|The query failed)"):
        _query(monkeypatch, engine, statement.format(file=tmp_path / "written.csv"))
    assert not (tmp_path / "written.csv").exists()
    assert engine.lake.version("events/l") == version


def test_a_name_with_capitals_and_a_name_with_a_prefix_are_read(monkeypatch: pytest.MonkeyPatch, make_engine: MakeEngine) -> None:
    engine = make_engine([source("Rides"), source("quarantine_Rides")], [replace(TOTAL, name="Total", inputs=("Rides",))])
    land(engine, "Rides", "1.jsonl", [Event("a", 1, 0).line])
    land(engine, "quarantine_Rides", "1.jsonl", [Event("b", 2, 0).line])
    engine.ingest()
    engine.advance("Total")
    assert _rows(monkeypatch, engine, "SELECT r.k, n FROM Rides r JOIN Total t ON r.k = t.k") == [["a", 1]]
    assert _rows(monkeypatch, engine, "SELECT k FROM quarantine_Rides") == [["b"]]


def test_only_the_tables_of_a_query_are_opened(monkeypatch: pytest.MonkeyPatch, engine: Engine, copy_engine: CopyEngine) -> None:
    copy = copy_engine(engine)
    for commit in (Path(copy.lake.root) / "events" / "r" / "_delta_log").glob("*.json"):
        commit.write_text("{")
    assert _rows(monkeypatch, copy, "SELECT k FROM l WHERE v = 1") == [["a"]]


def test_rows_of_a_killed_ingest_are_left_out(monkeypatch: pytest.MonkeyPatch, engine: Engine, copy_engine: CopyEngine) -> None:
    copy = copy_engine(engine)
    land(copy, "l", "killed.jsonl", [Event("b", 4, 0).line])

    def kill(point: str) -> None:
        if point == "ingest.before_ledger":
            raise KeyboardInterrupt("killed")

    faults.install(kill)
    with pytest.raises(KeyboardInterrupt, match="killed"):
        copy.ingest()
    assert DeltaTable(copy.lake.path("events/l")).count() == 5
    assert _rows(monkeypatch, copy, "SELECT k, v FROM l ORDER BY v, k") == [["a", 1], ["b", 2], ["d", 2], ["a", 3]]


def test_rows_that_deletion_vectors_delete_are_left_out(monkeypatch: pytest.MonkeyPatch, engine: Engine, copy_engine: CopyEngine) -> None:
    """A step of a large table marks the row of `b` as deleted, and writes its new row into another file."""
    copy = copy_engine(engine)
    land(copy, "l", "more.jsonl", [Event("b", 4, 60 * MINUTE).line])
    copy.ingest()
    monkeypatch.setattr(reads, "SMALL_BYTES", 0)  # only large tables have deletion vectors
    copy.advance("total")
    assert [*Path(copy.lake.path("total")).glob("deletion_vector_*.bin")]
    assert _rows(monkeypatch, copy, "SELECT k, n FROM total ORDER BY k") == [["a", 2], ["b", 2], ["d", 1]]


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("SELECT 'it", "^The query failed: .*Unterminated string literal"),
        ("(SELECT /* x", "^The query failed: .*[Uu]n"),
        ("'", '^The SQL begins with "\'"; legal: one query'),
        ("-- of a comment\nSELECT 'it", "^The query failed: .*Unterminated string literal"),
        ("SELECT k INTO backup FROM total", "^The SQL has INTO, which writes rows; legal: one query, which only reads"),
    ],
)
def test_a_text_that_is_not_a_whole_query_is_refused_with_its_reason(tmp_path: Path, sql: str, message: str) -> None:
    lake, empty_ledger = Lake(str(tmp_path / "lake")), cast(Any, None)
    lake.append_small(pa.table({"k": ["a"], "n": [1]}), "total")
    query = Query(lake.snapshot(), empty_ledger, {}, {"total": TOTAL})
    with pytest.raises(QueryError, match=message):
        query(sql, 9)
    into = "(SELECT k AS into FROM total) AS t"
    for names in (f"SELECT t.into FROM {into}", f"SELECT into FROM {into} WHERE into = 'a'", f"SELECT max(into) AS into FROM {into}"):
        assert query(names, 9) == ([{"into": "a"}], False), "into can be a name"


@pytest.mark.parametrize("damage", [Path.unlink, lambda file: file.write_bytes(b"PAR1 and no more")], ids=["lost", "damaged"])
def test_a_lost_data_file_is_not_an_error_of_the_sql(tmp_path: Path, damage: Callable[[Path], object]) -> None:
    lake, unread = Lake(str(tmp_path / "lake")), cast(Any, None)
    lake.append_small(pa.table({"k": ["a"], "n": [1]}), "total")
    for file in Path(lake.path("total")).glob("*.parquet"):
        damage(file)
    with pytest.raises(LakeError, match=r"^total lacks a data file: .*\.parquet is in the table's log, but is missing or unreadable"):
        Query(lake.snapshot(), unread, {}, {"total": TOTAL})("SELECT k, n FROM total", 9)
