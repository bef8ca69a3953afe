"""The command that runs a file of SQL statements: `tidemark sql FILE`."""

import re
import sys
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml
from pydantic import ValidationError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from assets.contracts import DerivedAsset
from operators.sql.errors import SqlError
from operators.sql.execution import rows_of
from operators.sql.explain import explain
from operators.sql.plan import Plan, Script, plan
from operators.sql.relations import Input, reads_ingest_time, walk
from operators.sql.tables import CreateTable
from platform_defs.cli import render
from platform_defs.cli.arguments import ArgumentError, Json
from platform_defs.connections.kafka_sinks import KafkaSink
from platform_defs.connections.kafka_sources import KafkaSource, checked_options
from platform_defs.declared.pipeline import DeclaredError
from platform_defs.declared.sql_pipeline import sources_of, tables_of, targets_of
from platform_defs.declared.sql_sources import DELTA, FILES, KAFKA, DeclaredSource, declared_source
from platform_defs.declared.sql_tables import no_rows_yet
from platform_defs.declared.sql_targets import Target
from platform_defs.engine.formats.json_values import from_json
from platform_defs.safe_text import shortened
from platform_defs.settings import settings
from platform_defs.spark.session import session

app = typer.Typer()
_STDIN = "-"
_is_uri = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/").match  # Hadoop writes the URI of a local file with one slash


@app.command()
def sql(
    file: Annotated[str, typer.Argument(help="A file of Flink SQL statements, separated by semicolons; - reads standard input.")],
    limit: Annotated[int, typer.Option(help="The maximum number of rows to show of each query.", min=1, max=100_000)] = 20,
    connections: Annotated[
        bool, typer.Option("--connections", help="Print the topics of the file's Kafka tables as a part of the file of connections.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Run SQL: print the plan of each EXPLAIN and INSERT, and the rows of each SELECT from the files and Delta tables of CREATE TABLE.

    INSERT writes nothing here; if a pipeline cannot have its table, the reason is printed.
    To compute the tables, set TIDEMARK_PIPELINE to the file, and run `tidemark ingest` and `tidemark advance`.
    """
    script = plan(_text(file))
    if connections:
        print(yaml.safe_dump(kafka_part(sources_of(script), targets_of(script)), sort_keys=False), end="")
        return
    runner = Runner(script, Path.cwd() if file == _STDIN else Path(file).resolve().parent, lambda: session(settings()))
    render.show(as_json, {"statements": [runner.result(statement, limit) for statement in script.plans]}, print_statements)


def _text(file: str) -> str:
    try:
        return (sys.stdin.read() if file == _STDIN else Path(file).read_text("utf-8")).removeprefix("\ufeff")
    except (OSError, UnicodeDecodeError) as error:
        legal = f"a file of SQL that can be read ({shortened(str(error))}), or - for standard input"
        raise ArgumentError.bad_value("file", file, legal) from None


def kafka_part(sources: Mapping[str, DeclaredSource], targets: Mapping[str, Target]) -> dict[str, Any]:
    """The part `kafka` of the file of connections, for the sources that read topics and the tables that are published to topics.

    Raises:
        SqlError: no table is a Kafka table, an option is not legal, or two tables have different options of Kafka's client.
    """
    read = {name: source for name, source in sources.items() if source.connector == KAFKA}
    written = {name: target for name, target in targets.items() if target.sink}
    tables = read | written
    if not tables:
        raise SqlError.refused("--connections", "no table has 'connector' = 'kafka' or 'upsert-kafka'", "leave it out")
    shared = {key: value for table in tables.values() for key, value in table.kafka_options.items()}
    for name, table in tables.items():
        if table.kafka_options != shared:
            reason = "all Kafka tables of a file have the same options of the client"
            raise SqlError.refused(f"another value of 'properties' in table {name!r}", reason, "write one file for each")
    try:
        checked_options({**shared})
    except ValueError as error:
        raise SqlError(f"the options 'properties.*' of the Kafka tables: {error}") from None
    parts = {
        "sources": {name: _checked(name, KafkaSource, source.kafka) for name, source in read.items()},
        "sinks": {name: _checked(name, KafkaSink, target.sink) for name, target in written.items()},
    }
    return {"kafka": {"options": shared, **{key: part for key, part in parts.items() if part}}}


def _checked(name: str, model: type[KafkaSource] | type[KafkaSink], part: Mapping[str, Any]) -> dict[str, Any]:
    """A table's part of the file of connections; raises `SqlError` if it is not legal there."""
    try:
        model.model_validate(part)
    except ValidationError as error:
        raise SqlError(f"table {name!r}: {DeclaredError.of_values(error, part)}") from None
    return dict(part)


class Runner:
    """Runs the statements of a script on the present rows of its tables.

    Args:
        script: the script.
        folder: the folder from which relative paths start.
        connect: returns the session, which starts when it is first needed.
    """

    def __init__(self, script: Script, folder: Path, connect: Callable[[], SparkSession]) -> None:
        self._script, self._folder, self._connect = script, folder, connect

    def result(self, query: Plan, limit: int) -> dict[str, Any]:
        """The plan of an EXPLAIN or INSERT statement, or the rows of a query."""
        if query.is_explained or query.target:
            tables, refusals = self._tables
            operators = {name: table.operator for name, table in tables.items() if not query.is_explained or name != query.target}
            refused = {"refused": refusals[query.target]} if query.target in refusals and not query.is_explained else {}
            return {"target": query.target, "plan": explain(query.relation, query.target, operators), **refused}
        if reads_ingest_time(query.relation):
            reason = "files have no time of the ingest"
            raise SqlError.refused(
                "a query of windows or intervals by PROCTIME()", reason, "write INSERT INTO, and run the file as a pipeline"
            )
        rows = rows_of(query, self._frames(query))
        first_rows = rows.limit(limit + 1).select(F.to_json(F.struct("*"), {"ignoreNullFields": "false"})).collect()
        return {"rows": [from_json(row[0]) for row in first_rows[:limit]], "has_more": len(first_rows) > limit}

    @cached_property
    def _tables(self) -> tuple[dict[str, DerivedAsset], dict[str, str]]:
        return tables_of(self._script)

    def _frames(self, query: Plan) -> dict[str, DataFrame]:
        names = dict.fromkeys(relation.name for relation in walk(query.relation) if isinstance(relation, Input))
        return {name: self._frame(self._script.declared[name]) for name in names}

    def _frame(self, table: CreateTable) -> DataFrame:
        """The rows of a table, with the column of its event time, if this is a computed column."""
        if table.name in self._script.targets:
            raise no_rows_yet(table.name)
        rows = self._rows(declared_source(table))
        computed = next((c for c in table.columns if c.name == table.time and c.expression), None)
        return rows if computed is None else rows.withColumn(computed.name, F.expr(computed.expression))

    def _rows(self, source: DeclaredSource) -> DataFrame:
        name = source.contract.name
        if source.connector not in (FILES, DELTA):
            reason = "`tidemark sql` reads only files and Delta tables"
            way_out = "set TIDEMARK_PIPELINE to the file and run `tidemark ingest`; then `tidemark query` reads what was ingested"
            raise SqlError.refused(f"a query of the topic of table {name!r}", reason, way_out)
        path = self._path(source)
        reader = self._connect().read
        if source.connector == DELTA:
            return reader.format("delta").load(path)
        schema, options = source.contract.struct, {"mode": "FAILFAST", "enforceSchema": "false", "recursiveFileLookup": "true"}
        return reader.format(source.format).schema(schema).options(**options, **source.contract.options).load(path)

    def _path(self, source: DeclaredSource) -> str:
        if not source.path and source.connector == FILES:
            return f"{settings().landing_root}/{source.contract.name}"
        if not source.path:
            raise SqlError.refused(f"table {source.contract.name!r}", "it names no Delta table", "add 'path' = '...' to WITH")
        return source.path if _is_uri(source.path) else str(self._folder / source.path)


def print_statements(report: Mapping[str, Any]) -> None:
    """Print the result of each statement."""
    for number, statement in enumerate(report["statements"]):
        if number:
            render.out.print()
        if "plan" not in statement:
            render.print_result(statement)
            continue
        if statement["target"]:
            render.out.print(f"[bold]{render.plain(statement['target'])}[/]", highlight=False)
        for line in statement["plan"].splitlines():
            render.out.print(render.plain(line), highlight=False, soft_wrap=True)
        if "refused" in statement:
            reason = render.plain(statement["refused"])
            render.out.print(f"[bold red]A pipeline cannot have this table:[/] {reason}", highlight=False, soft_wrap=True)


__all__ = ["app"]
