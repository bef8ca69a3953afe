"""Runs SQL over the tables of a lake, without a Spark session, by Apache DataFusion, which deltalake contains."""

import json
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NoReturn

import pyarrow as pa
import sqlglot
from deltalake import QueryBuilder
from deltalake.exceptions import DeltaError
from sqlglot import TokenType
from sqlglot.errors import SqlglotError

from assets.contracts import DerivedAsset, SourceContract
from operators.engine_columns import SEQ
from operators.errors import TidemarkError
from platform_defs.engine.lake.missing_files import naming_lost_files
from platform_defs.engine.lake.tables import Lake
from platform_defs.engine.ledger.ledger import Ledger
from platform_defs.engine.ledger.snapshot import last_with_rejected_rows, last_with_rows
from platform_defs.engine.ledger.store import TABLE as LEDGER

_FIRST_WORDS = ("SELECT", "WITH", "VALUES")
"""The first words of queries. DataFusion also knows COPY and CREATE EXTERNAL TABLE, which write and read files anywhere."""

_NOT_FOUND = re.compile(r"table 'datafusion\.public\.(\w+)' not found")


class QueryError(TidemarkError, ValueError):
    """A query cannot be planned or computed."""

    @classmethod
    def failed(cls, error: Exception, names: list[str]) -> "QueryError":
        """DataFusion's own message, which names the position, the column or the value, and the tables that can be queried."""
        message = " ".join(str(error).removeprefix("Error during planning: ").split()).rstrip(".")
        return cls(f"The query failed: {message}. Tables: {', '.join(names) or 'none yet'}. The SQL is Apache DataFusion's")

    @classmethod
    def no_rows(cls, name: str, command: str | None) -> "QueryError":
        """The query reads a table of the pipeline that does not exist yet; `command` makes it."""
        return cls(f"{name} has no rows yet{'' if command is None else f': `tidemark {command}` makes it'}. Nothing was run")

    @classmethod
    def no_query(cls, first: str) -> "QueryError":
        """The text is not a query."""
        return cls(f"The SQL begins with {first!r}; legal: one query, which begins with {', '.join(_FIRST_WORDS)}. Nothing was run")

    @classmethod
    def has_into(cls) -> "QueryError":
        """The text has INTO, which makes a table or writes to one."""
        return cls("The SQL has INTO, which writes rows; legal: one query, which only reads. Nothing was run")

    @classmethod
    def same_name(cls, column: str) -> "QueryError":
        """Two columns of the result have the same name."""
        return cls(f"The result has two columns named {column!r}; legal: each name once. Rename one of them with AS")


@dataclass(frozen=True)
class _Table:
    """A table that a query may read.

    Args:
        path: its path in the lake.
        last_batch: for an event log or a quarantine, the newest batch that has rows of it, 0 for none: rows with a later `seq` are
            uncommitted. None for other tables, all of whose rows are committed.
    """

    path: str
    last_batch: int | None = None


@dataclass(frozen=True)
class Query:
    """Queries a snapshot of a lake.

    A query can read each derived table by its name, each event log by the name of its source, the `ledger`, and, unless a table or a source
    has the same name, `quarantine_<source>` and `changelog_<table>`. Uncommitted rows are left out.

    Args:
        lake: a snapshot of the lake; see `Engine.snapshot`.
        ledger: the ledger of the same snapshot.
        sources: the sources, by name.
        assets: the derived tables, by name.
    """

    lake: Lake
    ledger: Ledger
    sources: Mapping[str, SourceContract]
    assets: Mapping[str, DerivedAsset]

    def __call__(self, sql: str, limit: int) -> tuple[list[dict[str, Any]], bool]:
        """The first rows of a query's result, with values that JSON can represent, and whether there are more rows.

        Args:
            sql: a query.
            limit: the maximum number of rows.

        Raises:
            QueryError: the text is not a query, or the query cannot be planned or computed.
            LakeError: a data file of a table is missing or damaged, or the store does not answer.
        """
        _require_query(sql)
        rows = list[dict[str, Any]]()
        words = {*re.findall(r"\w+", sql)}
        tables = {name: table for name, table in self._tables().items() if name in words}  # only these are opened
        try:
            with naming_lost_files(self.lake, [table.path for table in tables.values()]):
                for batch in self._batches(sql, tables):
                    rows += batch.slice(0, limit + 1 - len(rows)).to_pylist()
                    if len(rows) > limit:
                        break
        except (DeltaError, pa.ArrowException, OverflowError) as error:
            self._fail(error)
        return [{name: _plain(value) for name, value in row.items()} for row in rows[:limit]], len(rows) > limit

    def _tables(self) -> dict[str, _Table]:
        """The tables that a query may read, by name; they need not exist yet."""
        quarantines = {f"quarantine_{n}": _Table(s.quarantine, last_with_rejected_rows(self.ledger, n)) for n, s in self.sources.items()}
        changelogs = {f"changelog_{name}": _Table(table.changelog) for name, table in self.assets.items() if table.operator.emits.upserts}
        logs = {name: _Table(source.log, last_with_rows(self.ledger, name)) for name, source in self.sources.items()}
        return {LEDGER: _Table(LEDGER)} | quarantines | changelogs | logs | {name: _Table(name) for name in self.assets}

    def _batches(self, sql: str, tables: Mapping[str, _Table]) -> Iterator[pa.RecordBatch]:
        builder = QueryBuilder()
        for number, (name, table) in enumerate(tables.items()):
            if (delta := self.lake.delta_for_reading(table.path)) is None:
                continue
            alias = f"_table{number}"  # DataFusion registers tables by lower-case names, and looks them up as they are written
            builder.register(alias, delta)
            committed = "" if table.last_batch is None else f" WHERE {SEQ} <= {table.last_batch}"
            builder.execute(f'CREATE VIEW "{name}" AS SELECT * FROM {alias}{committed}')
        result = pa.RecordBatchReader.from_stream(builder.execute(sql))
        for name, number in Counter(result.schema.names).items():
            if number > 1:
                raise QueryError.same_name(name)
        yield from result

    def _fail(self, error: Exception) -> NoReturn:
        tables = self._tables()
        missing = _NOT_FOUND.search(str(error))
        if missing is not None and missing[1] in tables:
            raise QueryError.no_rows(missing[1], self._command(missing[1])) from error
        existing = [name for name, table in tables.items() if self._exists(table)]
        raise QueryError.failed(error, existing) from error

    def _exists(self, table: _Table) -> bool:
        """Whether a table exists; False too if that is not known, because its Delta log cannot be read."""
        with suppress(TidemarkError):
            return self.lake.exists(table.path)
        return False

    def _command(self, name: str) -> str | None:
        """The command that makes a table; None for a quarantine or a changelog, which may stay without rows."""
        if name in self.assets:
            return f"advance {name}"
        return "ingest" if name in self.sources or name == LEDGER else None


_BEFORE_NAMES = frozenset(
    {TokenType.SELECT, TokenType.DISTINCT, TokenType.COMMA, TokenType.L_PAREN, TokenType.FROM, TokenType.JOIN, TokenType.WITH}
    | {TokenType.DOT, TokenType.ALIAS}
)
"""What comes before a column or a table with the name `into`, but not before the clause INTO."""
_TARGETS = frozenset({TokenType.VAR, TokenType.IDENTIFIER, TokenType.TABLE, TokenType.TEMPORARY})
"""What comes after the clause INTO."""


def _require_query(sql: str) -> None:
    try:
        tokens = sqlglot.tokenize(sql)
        first = next((token.text for token in tokens if token.text != "("), "")
    except SqlglotError:  # such as a text without its closing quote; DataFusion's error says where it begins
        tokens, first = [], re.sub(r"^(?:[\s(]|--[^\n]*\n|/\*.*?\*/)*(\w*).*", r"\1", sql, flags=re.DOTALL)
    if first.upper() not in _FIRST_WORDS:
        raise QueryError.no_query(first or sql[:20])
    for before, token, after in zip(tokens, tokens[1:], tokens[2:], strict=False):
        is_name = before.token_type in _BEFORE_NAMES or before.text == "`" or after.token_type not in _TARGETS
        if token.token_type == TokenType.INTO and not is_name:
            raise QueryError.has_into()


def _plain(value: Any) -> Any:
    """A value that JSON can represent: times, decimals, bytes, NaN and infinities become text."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    return json.loads(json.dumps(value, default=str))
