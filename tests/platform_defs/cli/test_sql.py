"""`tidemark sql FILE`: plans of EXPLAIN and INSERT, and rows of SELECT over files."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from typer.testing import CliRunner

from operators import SqlError
from operators.sql.plan import plan
from platform_defs.cli import sql as cli
from platform_defs.cli.arguments import ArgumentError
from platform_defs.declared.sql_sources import declared_source

CLICKS = """
CREATE TABLE clicks (user_id STRING, page STRING, ms BIGINT, at_time AS TO_TIMESTAMP_LTZ(ms, 3), WATERMARK FOR at_time AS at_time)
WITH ('connector' = 'filesystem', 'format' = '{format}', 'path' = '{path}'{options});
"""
PER_MINUTE = """
SELECT page, window_start, COUNT(*) AS clicks FROM TABLE(TUMBLE(TABLE clicks, DESCRIPTOR(at_time), INTERVAL '1' MINUTE))
GROUP BY page, window_start, window_end
"""
ROWS = [("a", "home", 0), ("b", "home", 59_999), ("a", "cart", 60_000)]
EXPECTED = [
    {"page": "cart", "window_start": "1970-01-01T00:01:00.000Z", "clicks": 1},
    {"page": "home", "window_start": "1970-01-01T00:00:00.000Z", "clicks": 2},
]


@pytest.fixture(autouse=True)
def session_of_the_test(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The session of the tests; a test without one fails if the command starts one."""
    monkeypatch.setattr(cli, "session", lambda _: request.getfixturevalue("spark"))


def run(file: Path, *arguments: str) -> str:
    return CliRunner().invoke(cli.app, [str(file), *arguments], catch_exceptions=False).output


def written(folder: Path, text: str) -> Path:
    file = folder / "queries.sql"
    file.write_text(text, encoding="utf-8")
    return file


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the files, and of the queries that read them."""
    return tmp_path_factory.mktemp("files")


@pytest.fixture(scope="module")
def parameters(folder: Path) -> dict[str, dict[str, str]]:
    """The rows as files of each format, with the parameters of `CLICKS`."""
    lines = [",".join(map(str, row)) for row in ROWS]
    (folder / "plain.csv").write_text("\n".join(lines) + "\n")
    (folder / "headed.csv").write_text("\n".join(["user_id,page,ms", *lines]).replace(",", ";") + "\n")
    (folder / "rows.json").write_text("\n".join(json.dumps(dict(zip(("user_id", "page", "ms"), row, strict=True))) for row in ROWS))
    users, pages, times = zip(*ROWS, strict=True)
    table = pa.table({"user_id": users, "page": pages, "ms": times})
    (folder / "rows.parquet").mkdir()
    pq.write_table(table, folder / "rows.parquet" / "part-0.parquet")
    write_deltalake(folder / "rows.delta", table)
    header = ", 'tidemark.header' = 'true', 'csv.field-delimiter' = ';'"
    return {
        "csv": {"format": "csv", "path": "plain.csv", "options": ""},
        "csv with a header": {"format": "csv", "path": str(folder / "headed.csv"), "options": header},
        "json": {"format": "json", "path": "rows.json", "options": ""},
        "parquet": {"format": "parquet", "path": "rows.parquet", "options": ""},
        "delta": {"format": "parquet", "path": "rows.delta", "options": ""},
    }


@pytest.mark.spark
def test_a_query_reads_files_of_each_format(folder: Path, parameters: dict[str, dict[str, str]]):
    for name, of_format in parameters.items():
        declared = CLICKS.format(**of_format)
        if name == "delta":
            declared = declared.replace("'filesystem', 'format' = 'parquet'", "'delta'")
        file = written(folder, f"{declared} {PER_MINUTE} ORDER BY page")
        assert json.loads(run(file, "--json"))["statements"] == [{"rows": EXPECTED, "has_more": False}], name


@pytest.mark.spark
def test_the_statements_are_printed_in_order(folder: Path, parameters: dict[str, dict[str, str]]):
    declared = CLICKS.format(**parameters["csv"])
    query = "SELECT user_id, ms FROM clicks WHERE page = 'home' ORDER BY ms DESC LIMIT 1"
    output = run(written(folder, f"{declared} EXPLAIN {PER_MINUTE}; {query}; INSERT INTO t {PER_MINUTE}"))
    explained, queried, inserted = output.split("\n\n")
    assert explained.startswith("WindowedAggregate(by=('page',), window=Tumbling(size='1 minute'), aggregates={'clicks': 'COUNT(*)'}")
    assert "state: none is kept; a step reads at most 1 minute before the watermark again" in explained
    assert "1 row" in queried
    assert "59999" in queried
    assert inserted.startswith("t\nWindowedAggregate(")
    report = json.loads(run(written(folder, f"{declared} INSERT INTO u SELECT * FROM clicks; SELECT * FROM u"), "--json", "--limit", "2"))
    inserted, selected = report["statements"]
    assert inserted["plan"].splitlines() == [
        "Select()",
        "  strategy: computes the results that became final since the step before, once",
        "  reads: the rows of each closed range",
        "  state: none is kept; a step reads no row again",
        "  rows: clicks",
    ]
    assert selected["has_more"]
    assert len(selected["rows"]) == 2


def test_plans_need_no_session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(cli, "session", lambda _: pytest.fail("a session was started"))
    declared = CLICKS.format(format="csv", path="x.csv", options="")
    [explained] = json.loads(run(written(tmp_path, f"{declared} EXPLAIN {PER_MINUTE}"), "--json"))["statements"]
    assert explained["target"] == ""
    assert explained["plan"].startswith("WindowedAggregate(by=('page',), window=Tumbling(size='1 minute'), aggregates={'clicks': 'COUNT")
    assert explained["plan"].endswith("\n  rows: clicks")


def test_a_table_that_no_pipeline_can_have_is_printed_with_the_reason(tmp_path: Path):
    declared = CLICKS.format(format="json", path="clicks", options=", 'tidemark.rule.positive' = 'ms >= 0'")
    sums = "INSERT INTO sums SELECT page, SUM(ms) AS total FROM clicks GROUP BY page"
    rank = "ROW_NUMBER() OVER (ORDER BY total DESC) AS n"
    top = f"INSERT INTO top SELECT page, total FROM (SELECT *, {rank} FROM sums) WHERE n <= 3"
    selection = "INSERT INTO large SELECT page FROM sums WHERE total > 9"
    file = written(tmp_path, f"{declared} {sums}; {top}; {selection}; EXPLAIN {selection}")
    reports = json.loads(run(file, "--json"))["statements"]
    assert ["refused" in report for report in reports] == [False, False, True, False]
    assert reports[2]["refused"].startswith("INSERT INTO large of a selection from sums is refused: sums has results of an operator")
    assert "strategy: update" in reports[1]["plan"]  # a pipeline knows from the rule that no sum falls
    assert "A pipeline cannot have this table: INSERT INTO large of a selection" in run(file)


def test_declared_sinks_and_the_plan_of_another_query_for_a_table(tmp_path: Path):
    declared = (
        CLICKS.format(format="json", path="clicks", options="") + "CREATE TABLE a (page STRING, n BIGINT); CREATE TABLE b (n BIGINT);"
    )
    inserts = "INSERT INTO a SELECT page, COUNT(*) AS n FROM clicks GROUP BY page; INSERT INTO b SELECT n FROM a"
    explained = f"EXPLAIN INSERT INTO a SELECT page, clicks FROM ({PER_MINUTE})"
    file = written(tmp_path, f"{declared} {explained}; {inserts}")
    reports = json.loads(run(file, "--json"))["statements"]
    assert ["refused" in report for report in reports] == [False, False, True]
    assert "computes the results that became final" in reports[0]["plan"]
    assert "merges the new rows into the results of their keys" in reports[1]["plan"]


def test_the_plan_of_a_selection_says_how_far_back_late_rows_are_added(tmp_path: Path):
    declared = CLICKS.format(format="json", path="clicks", options="")
    target = "CREATE TABLE homes (who STRING, ms BIGINT) WITH ('tidemark.allowed-lateness' = '1 hour');"
    file = written(tmp_path, f"{declared} {target} INSERT INTO homes SELECT user_id, ms FROM clicks WHERE page = 'home'")
    [inserted] = json.loads(run(file, "--json"))["statements"]
    assert inserted["plan"].splitlines()[2:4] == [
        "  reads: the rows of each closed range",
        "  state: none is kept; a step reads at most 1 hour before the watermark again, however many keys there are",
    ]


@pytest.mark.spark
@pytest.mark.usefixtures("parameters")
def test_a_table_with_proctime_is_read_but_not_windowed_by_it(folder: Path):
    declared = (
        "CREATE TABLE t (user_id STRING, page STRING, ms BIGINT, p AS PROCTIME()) "
        "WITH ('connector' = 'filesystem', 'format' = 'json', 'path' = 'rows.json');"
    )
    counted = "SELECT page, COUNT(*) AS n FROM t WHERE ms > 0 GROUP BY page ORDER BY page"
    first, counts = json.loads(run(written(folder, f"{declared} SELECT * FROM t ORDER BY ms LIMIT 1; {counted}"), "--json"))["statements"]
    assert first["rows"] == [{"user_id": "a", "page": "home", "ms": 0}]
    assert counts["rows"] == [{"page": "cart", "n": 1}, {"page": "home", "n": 1}]
    windows = "SELECT window_start, COUNT(*) AS n FROM TUMBLE(TABLE t, DESCRIPTOR(p), INTERVAL '1' HOUR) GROUP BY window_start, window_end"
    with pytest.raises(SqlError, match="files have no time of the ingest; write INSERT INTO, and run the file as a pipeline"):
        run(written(folder, f"{declared} {windows}"))
    [explained] = json.loads(run(written(folder, f"{declared} EXPLAIN {windows}"), "--json"))["statements"]
    assert explained["plan"].startswith("WindowedAggregate(window=Tumbling(size='1 hour'), aggregates={'n': 'COUNT(*)'})")


def test_topics_are_printed_as_connections(tmp_path: Path):
    text = (
        "CREATE TABLE t (a STRING) WITH ('connector' = 'kafka', 'topic' = 'x', 'format' = 'json', 'properties.bootstrap.servers' = 'h:1')"
    )
    printed = run(written(tmp_path, text), "--connections")
    assert printed == (
        "kafka:\n  options:\n    kafka.bootstrap.servers: h:1\n  sources:\n    t:\n      options:\n        subscribe: x\n"
        "        startingOffsets: earliest\n"
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("SELECT * FROM nothing", "there is no table 'nothing'; legal: none"),
        (
            "CREATE TABLE t (a STRING) WITH ('connector' = 'kafka', 'topic' = 'x', 'format' = 'json'); SELECT a FROM t",
            "run `tidemark ingest`",
        ),
        ("CREATE TABLE t (a STRING) WITH ('connector' = 'delta'); SELECT a FROM t", "it names no Delta table"),
        ("CREATE TABLE t (a STRING); SELECT a FROM t", "the connector '' of table 't' is refused"),
        (
            "CREATE TABLE s (a STRING) WITH ('connector' = 'delta', 'path' = 's'); CREATE TABLE t (a STRING); "
            "SELECT a FROM t; INSERT INTO t SELECT a FROM s",
            "a query of 't' before it has rows is refused",
        ),
        (  # a table that the query does not read is not checked
            "CREATE TABLE t (a STRING); CREATE TABLE s (a STRING) WITH ('connector' = 'delta'); SELECT a FROM s",
            "'s' is refused: it names no Delta table",
        ),
    ],
)
def test_a_query_of_a_table_that_cannot_be_read_is_refused(tmp_path: Path, text: str, message: str):
    with pytest.raises(SqlError, match=message):
        run(written(tmp_path, text))


@pytest.mark.parametrize(
    ("path", "read"),
    [("rows", "/queries/rows"), ("/data/rows", "/data/rows"), ("file:/data/rows", "file:/data/rows"), ("s3a://b/r", "s3a://b/r")],
)
def test_a_relative_path_starts_from_the_folder_of_the_file(path: str, read: str):
    script = plan(f"CREATE TABLE t (a STRING) WITH ('connector' = 'delta', 'path' = '{path}')")
    runner = cli.Runner(script, Path("/queries"), lambda: pytest.fail("a session was started"))
    assert runner._path(declared_source(script.declared["t"])) == read  # pyright: ignore[reportPrivateUsage]


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path):
    with pytest.raises(ArgumentError, match=r"`file` is .*missing\.sql.* legal: a file of SQL"):
        run(tmp_path / "missing.sql")


def test_a_file_can_begin_with_a_byte_order_mark(tmp_path: Path):
    file = tmp_path / "query.sql"
    file.write_text("SELECT 1", "utf-8-sig")
    assert cli._text(str(file)) == "SELECT 1"
