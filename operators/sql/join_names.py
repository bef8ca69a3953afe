"""The columns of each side before a join, and the column of the join's result for each name in the query."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from sqlglot import exp

from operators.columns import WINDOW_END, WINDOW_START
from operators.engine_columns import EVENT_TIME
from operators.sql.dialect import Tree
from operators.sql.join_conditions import KEEPS, Conditions
from operators.sql.names import find_name, free_name
from operators.sql.relations import WINDOW_COLUMNS, WINDOW_TIME, Item, Relation, Windowed
from operators.sql.scope import Scope
from operators.sql.selections import select


@dataclass
class JoinNames:
    """The names of a join's columns. Sides are numbered: 0 is the left one, and 1 the right one.

    Args:
        sides: the left and the right rows.
        preserved: the sides that have a row in every result.
        reserved: names that no column may have.
        keys: the names of the key columns.
        values: for each side, its columns before the join: the value by name.
        visible: for each side, by the table's alias and the column's name in the query, its value in the result.
        markers: by side, the column that is true in results with a row of that side, for a side whose window the query reads.
    """

    sides: tuple[Scope, Scope]
    preserved: Sequence[int]
    reserved: Sequence[str]
    keys: tuple[str, ...] = ()
    values: tuple[dict[str, Item], dict[str, Item]] = field(default_factory=lambda: ({}, {}))
    visible: tuple[dict[str, dict[str, Item]], dict[str, dict[str, Item]]] = field(default_factory=lambda: ({}, {}))
    markers: dict[int, str] = field(default_factory=dict[int, str])

    @classmethod
    def of(
        cls,
        conditions: Conditions,
        how: str,
        columns: Sequence[Tree] | None,
        names: Sequence[tuple[Tree, str]],
        preserved: Sequence[int],
        reserved: Sequence[str],
        key_names: Mapping[int, str],
    ) -> "JoinNames":
        """The names of a join.

        Args:
            conditions: the conditions of the join.
            how: which rows are kept.
            columns: the columns that the query reads; None for all.
            names: for columns of the SELECT list, the names that it gives them.
            preserved: the sides that have a row in every result.
            reserved: names that no column may have.
            key_names: by the number of a key, the name that the SELECT list gives to COALESCE of its two sides.
        """
        join_names = cls(conditions.sides, preserved, reserved)
        select_names = [join_names._select_names(names, side) for side in (0, 1)]
        join_names._name_keys(conditions, select_names, key_names)
        extra_columns = [c for tree in join_names._extra_conditions(conditions, how) for c in tree.find_all(exp.Column)]
        for side in (0, 1):
            is_hidden = side == 1 and how in ("semi", "anti")
            for alias, column in join_names._read_columns(
                side, extra_columns if is_hidden else None if columns is None else [*columns, *extra_columns]
            ):
                join_names._name(side, alias, column, select_names[side].get((alias, column)))
        return join_names

    def time(self, side: int, column: str) -> str:
        """The name of a side's time before the join."""
        if column == EVENT_TIME and column not in self._rows(side).columns:  # the time of the ingest, which the engine adds
            return EVENT_TIME
        existing_name = next((name for name, item in self.values[side].items() if item.column == column), None)
        if existing_name is not None:
            return existing_name
        name = self._free(column)
        self.values[side][name] = Item.of_column(column, name)
        return name

    def side(self, index: int, where: str | None) -> Relation:
        """The rows of a side before the join."""
        return select(self._rows(index), [replace(item, name=name) for name, item in self.values[index].items()], where, ())

    def _rows(self, side: int) -> Relation:
        """The rows of a side, without windows."""
        relation = self.sides[side].relation
        return relation.child if isinstance(relation, Windowed) else relation

    def residual(self, conditions: Conditions, how: str) -> str | None:
        """The extra join condition: the conditions that are no key and no bound, and do not filter a side before the join."""
        left, right = self.visible
        return Scope(self.sides[0].relation, {**left, **right}).condition(self._extra_conditions(conditions, how))

    @staticmethod
    def _extra_conditions(conditions: Conditions, how: str) -> list[Tree]:
        return [*conditions.others, *(tree for side in KEEPS[how] for tree in conditions.of_side[side])]

    def tables(self, how: str) -> dict[str, Mapping[str, Item]]:
        """The columns that the query sees, by table."""
        return {**self.visible[0]} if how in ("semi", "anti") else {**self.visible[0], **self.visible[1]}

    def _select_names(self, names: Sequence[tuple[Tree, str]], side: int) -> dict[tuple[str, str], str]:
        """The names that the SELECT list gives to a side's columns: each name and each column once."""
        select_names: dict[tuple[str, str], str] = {}
        for tree, name in names:
            for alias, columns in self.sides[side].tables.items():
                column = find_name(tree.name, columns) if tree.table.lower() in ("", alias.lower()) else None
                if column is not None and (alias, column) not in select_names and name.lower() not in map(str.lower, self.reserved):
                    select_names[alias, column] = name
        return select_names

    def _read_columns(self, side: int, columns: Sequence[Tree] | None) -> list[tuple[str, str]]:
        """The columns of a side that the query reads, by table and name."""
        columns_of_side = [(alias, name) for alias, names in self.sides[side].tables.items() for name in names]
        if columns is None:
            return columns_of_side
        read = {
            (alias, name)
            for tree in columns
            for alias, name in columns_of_side
            if tree.table.lower() in ("", alias.lower()) and tree.name.lower() == name.lower()
        }
        return [column for column in columns_of_side if column in read]

    def _name_keys(
        self, conditions: Conditions, select_names: Sequence[Mapping[tuple[str, str], str]], key_names: Mapping[int, str]
    ) -> None:
        """Name the key columns: as the SELECT list names them, or as on the left side."""
        for number, pair in enumerate(conditions.keys):
            names = [key_names.get(number), *(self._key_name(side, pair[side], select_names[side]) for side in self.preserved)]
            own_name = pair[0].column or f"key_{number}"
            # the SELECT list gives this name to the column of one side, which is null in rows without that side
            if own_name in (*select_names[0].values(), *select_names[1].values()):
                own_name = f"key_{own_name}"
            preferred = next((name for name in names if name), own_name)
            name = free_name(preferred, [*self.reserved, *self.keys])
            self.keys = (*self.keys, name)
            for side in (0, 1):
                self.values[side][name] = replace(pair[side], name=name)

    def _key_name(self, side: int, item: Item, select_names: Mapping[tuple[str, str], str]) -> str | None:
        return next((name for (alias, column), name in select_names.items() if self._value(side, alias, column).sql == item.sql), None)

    def _value(self, side: int, alias: str, column: str) -> Item:
        return self.sides[side].tables[alias][column]

    def _name(self, side: int, alias: str, column: str, preferred: str | None) -> None:
        """Name a column that the query reads, and record its value in the result."""
        item, visible = self._value(side, alias, column), self.visible[side].setdefault(alias, {})
        if isinstance(self.sides[side].relation, Windowed) and item.column in WINDOW_COLUMNS:
            visible[column] = self._window(side, item.column)
            return
        if side in self.preserved:
            for key in self.keys:
                if self.values[side][key].sql == item.sql and preferred in (None, key):
                    visible[column] = Item.of_column(key, column)
                    return
        existing_name = next((name for name, value in self.values[side].items() if value.sql == item.sql and name not in self.keys), None)
        name = existing_name or self._free(preferred or column)
        self.values[side][name] = replace(item, name=name)
        visible[column] = Item.of_column(name, column)

    def _window(self, side: int, column: str | None) -> Item:
        """A column of a side's window in the result: null if the result has no row of that side."""
        name = {WINDOW_TIME: "result_time", WINDOW_START: WINDOW_START, WINDOW_END: WINDOW_END}[column or ""]
        if side in self.preserved:
            return Item.of_column(name)
        marker = self._marker(side)
        return Item(name, f"CASE WHEN {marker} THEN {name} END")

    def _marker(self, side: int) -> str:
        """The name of the column that is true in results with a row of a side."""
        if side not in self.markers:
            self.markers[side] = self._free(("left_exists", "right_exists")[side])
            self.values[side][self.markers[side]] = Item(self.markers[side], "TRUE")
        return self.markers[side]

    def _free(self, name: str) -> str:
        return free_name(name, [*self.reserved, *self.values[0], *self.values[1]])
