"""Dagster's event log in SQLite, with connections that stay open.

Dagster's own class opens and closes a connection for each event. Each time, SQLAlchemy compiles the statements again, SQLite moves its
write-ahead log into the database, and the disk is synchronized several times. In a run over many small tables this takes half of the time.
The files are the same, so you can configure Dagster's own class again at any time.
"""

import os
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from alembic.runtime.migration import MigrationContext
from dagster._core.storage.event_log.sqlite.sqlite_event_log import INDEX_SHARD_NAME, SqliteEventLogStorage
from dagster._core.storage.sqlite import SQLITE_BUSY_TIMEOUT_SECONDS
from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.exc import DatabaseError

_MOST_OPEN = 16
"""The most databases that stay open. There is one for each run, and one for all runs."""


class EventLogStorage(SqliteEventLogStorage):
    """SQLite's event log. After a power failure the last events may be missing; the databases stay valid.

    Args:
        base_dir: the folder of the databases.
        inst_data: see Dagster's `ConfigurableClass`.
    """

    def __init__(self, base_dir: str, inst_data: Any = None) -> None:
        self._engines: OrderedDict[str, Engine] = OrderedDict()
        self._process = os.getpid()
        super().__init__(base_dir, inst_data)

    @classmethod
    def from_config_value(cls, inst_data: Any, config_value: Any) -> "EventLogStorage":
        """The storage for a configuration in `dagster.yaml`; Dagster calls this."""
        return cls(inst_data=inst_data, **config_value)

    @contextmanager
    def _connect(self, shard: str) -> Iterator[Connection]:
        with self._db_lock:
            engine = self._engine(shard)
            if shard not in self._initialized_dbs:
                self._initdb(engine)
                self._initialized_dbs.add(shard)
            with engine.begin() as connection:
                before = _changes(connection)
                yield connection
                is_changed = _changes(connection) > before
            if is_changed and shard != INDEX_SHARD_NAME:
                with suppress(OSError):  # the event is stored; the UI then shows it when it loads the page again
                    os.utime(self.path_for_shard(shard))  # the UI watches this file, and SQLite writes to its write-ahead log only

    def _initdb(self, engine: Engine, for_index_shard: bool = False) -> None:
        """Create the tables of a database that has none. For others Dagster does nothing either, but first loads its migration scripts."""
        has_tables = False
        with suppress(DatabaseError), engine.connect() as connection:  # Dagster tries again while another process creates them
            has_tables = MigrationContext.configure(connection).get_current_revision() is not None
        if not has_tables:
            super()._initdb(engine, for_index_shard)

    def _engine(self, shard: str) -> Engine:
        if self._process != os.getpid():  # a forked process must not use its parent's connections
            for engine in self._engines.values():
                engine.dispose(close=False)
            self._engines, self._process = OrderedDict(), os.getpid()
        if shard not in self._engines:
            self._engines[shard] = _opened(self.conn_string_for_shard(shard))
        self._engines.move_to_end(shard)
        while len(self._engines) > _MOST_OPEN:
            self._engines.popitem(last=False)[1].dispose()
        return self._engines[shard]

    def _close(self) -> None:
        with self._db_lock:
            for engine in self._engines.values():
                engine.dispose()
            self._engines.clear()

    def wipe(self) -> None:
        """Delete all events, and the databases of runs."""
        self._close()
        super().wipe()

    def dispose(self) -> None:
        """Close all connections."""
        super().dispose()
        self._close()


def _changes(connection: Connection) -> int:
    """The number of rows that a connection has changed since it was opened."""
    driver: Any = connection.connection.driver_connection
    return driver.total_changes


def _opened(url: str) -> Engine:
    engine = create_engine(url, pool_size=1, max_overflow=-1, connect_args={"timeout": SQLITE_BUSY_TIMEOUT_SECONDS})

    @event.listens_for(engine, "connect")
    def set_synchronous(connection: Any, _: object) -> None:
        connection.execute("PRAGMA synchronous=NORMAL")

    return engine
