"""Makes Dagster's databases in memory quicker: a test of assets spends most of its time in them."""

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from dagster._core.storage.event_log import in_memory as events
from dagster._core.storage.event_log.schema import AssetKeyTable, SqlEventLogStorageMetadata
from dagster._core.storage.runs import in_memory as runs
from sqlalchemy.engine import Connection, Engine

Connect = Callable[[Any], AbstractContextManager[Connection]]


@contextmanager
def quick_databases() -> Iterator[None]:
    """In the block, Dagster uses engines again, needs one connection for each database, and looks up no version, table or column."""
    log_storage, run_storage = events.InMemoryEventLogStorage, runs.InMemoryRunStorage
    with pytest.MonkeyPatch.context() as patch:
        for module, storage, metadata in (
            (events, log_storage, "SqlEventLogStorageMetadata"),
            (runs, run_storage, "RunStorageSqlMetadata"),
        ):
            patch.setattr(module, "stamp_alembic_rev", lambda *_: None)
            _reuse_engines(patch, module, storage)
            create = partial(_create_all, vars(module)[metadata].create_all, list[str]())
            patch.setattr(module, metadata, SimpleNamespace(create_all=create))
        patch.setattr(log_storage, "_connect", _through_the_held_connection(log_storage._connect))
        patch.setattr(run_storage, "connect", _through_the_held_connection(run_storage.connect))
        patch.setattr(log_storage, "has_table", lambda _, name: name in SqlEventLogStorageMetadata.tables)
        patch.setattr(log_storage, "_has_asset_key_col_on_connection", lambda _, __, name: name in AssetKeyTable.columns)
        yield


def _reuse_engines(patch: pytest.MonkeyPatch, module: Any, storage: type) -> None:
    """Give the engine of a closed database to the next one: SQLAlchemy caches compiled statements by engine.

    A database ends with its last connection, so the next one is empty.
    """
    unused = list[Engine]()
    create, dispose = module.create_engine, vars(storage)["dispose"]

    def create_engine(*args: Any, **named: Any) -> Engine:
        return unused.pop() if unused else create(*args, **named)

    def disposed(self: Any) -> None:
        dispose(self)
        if self._engine not in unused:
            unused.append(self._engine)

    patch.setattr(module, "create_engine", create_engine)
    patch.setattr(storage, "dispose", disposed)


def _create_all(create: Callable[[Connection], None], script: list[str], connection: Connection) -> None:
    """Create the tables of an empty database; from the second database on, by the SQL that created the tables of the first."""
    database: Any = connection.connection
    if script:
        database.executescript(";".join(script))
        return
    create(connection)
    script += [sql for (sql,) in database.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL")]


def _through_the_held_connection(connect: Connect) -> Connect:
    """Use the connection that a database holds, not a new one for each statement."""

    @contextmanager
    def connected(storage: Any) -> Iterator[Connection]:
        held: Connection = storage._held_conn
        if threading.current_thread() is not threading.main_thread() or held.in_transaction():
            with connect(storage) as connection:
                yield connection
            return
        with getattr(storage, "_db_lock", nullcontext()), held.begin():
            held.exec_driver_sql("PRAGMA foreign_keys=ON").close()
            yield held

    return connected
