"""A lake that keeps its opened tables between scrapes. To update an opened table takes a tenth of the time of opening it."""

from dataclasses import dataclass, field, fields, replace

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from platform_defs.engine import Engine
from platform_defs.engine.lake.tables import Lake


@dataclass(frozen=True)
class KeptTables(Lake):
    """A lake that keeps its opened tables. It must be used by one thread at a time, through one snapshot after the other.

    A table that was deleted and created again is opened again. In a store in which this cannot be recognized, no table is kept; see
    `incarnation`.
    """

    _kept: dict[str, tuple[DeltaTable, str]] = field(default_factory=dict, init=False, compare=False, repr=False)

    def delta_for_reading(self, table: str) -> DeltaTable | None:
        """The table at its newest version; None if it does not exist."""
        up_to_date = self._up_to_date(table)
        table_at_newest = self.delta(table) if up_to_date is None else up_to_date
        if table_at_newest is not None and (incarnation := self.incarnation(table, table_at_newest.version())) is not None:
            self._kept[table] = table_at_newest, incarnation
        return table_at_newest

    def _up_to_date(self, table: str) -> DeltaTable | None:
        """A kept table, brought up to date; None if it must be opened."""
        delta, incarnation = self._kept.pop(table, (None, None))
        if delta is None or incarnation != self.incarnation(table, delta.version()):
            return None
        try:
            delta.update_incremental()
        except (DeltaError, OSError):  # the error is raised again when the table is opened
            return None
        return delta


def keeping_tables(engine: Engine) -> Engine:
    """The engine on a lake that keeps its opened tables; the two share the cached ledger."""
    lake_fields = {field.name: getattr(engine.lake, field.name) for field in fields(Lake) if field.init}
    return replace(engine, lake=KeptTables(**lake_fields), earlier=engine)
