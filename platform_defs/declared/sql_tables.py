"""INSERT INTO as derived assets: each operator of a query is a table, and what is done to the rows before it is its preparation."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import sqlglot
from sqlglot import exp

from assets.contracts import DerivedAsset, Preparation, Shape
from assets.expressions import columns_read
from operators.accounting import TracesInputs
from operators.as_of_join import AsOfJoin
from operators.columns import FINAL_AT, RESULT_TIME
from operators.contract import Operator
from operators.deduplicate import Deduplicate
from operators.engine_columns import EVENT_TIME
from operators.sql.errors import SqlError
from operators.sql.names import column_sql, find_name
from operators.sql.relations import WINDOW_TIME, Apply, Input, Item, Named, Relation, Select, upserts
from operators.top_n import TopN

_CHANGE = "change"
_TIMES = ("time", "left_time", "right_time")


@dataclass
class SqlTables:
    """Collects the derived assets of a script.

    Args:
        stored: for each source, the columns of its rows.
        descriptions: for each table, what it contains.
        made: the assets, by name.
        versions: the sources whose rows are versions of their key, so that a key occurs more than once.
    """

    stored: Mapping[str, Sequence[str]]
    descriptions: Mapping[str, str] = field(default_factory=dict)
    made: dict[str, DerivedAsset] = field(default_factory=dict)
    versions: set[str] = field(default_factory=set)

    def add(self, name: str, relation: Relation) -> None:
        """Add the table of a query, and the tables that it reads.

        Raises:
            SqlError: the query has no operator, or changes the operator's result.
            ContractError: the asset is not legal.
        """
        if name not in self.made:
            self._make(name, relation)

    def _make(self, name: str, relation: Relation) -> None:
        apply, needed, shape = _result(name, relation)
        inputs, prepare = list[str](), dict[str, Preparation]()
        for which, below in zip(apply.operator.inputs, apply.inputs, strict=True):
            of, preparation = self._input(f"{name}_{which}", below, needed if len(apply.inputs) > 1 else None)
            if of in inputs:
                way_out = "declare the source a second time under another name, and deliver its files to both"
                raise SqlError.refused(f"table {name!r}, which joins {of!r} with itself", "the inputs of a table are different", way_out)
            inputs.append(of)
            prepare |= {of: preparation} if preparation else {}
        operator = _by_event_time(name, apply)
        if isinstance(operator, AsOfJoin):
            self.versions.add(inputs[1])
        if isinstance(operator, TopN) and any(map(upserts, apply.inputs)):
            operator = replace(operator, change=_CHANGE)
        description = self.descriptions.get(name, "")
        self.made[name] = DerivedAsset(
            name=name, inputs=tuple(inputs), operator=operator, prepare=prepare, shape=shape, description=description
        )

    def _input(self, name: str, relation: Relation, needed: Sequence[str] | None) -> tuple[str, Preparation | None]:
        """The name of an input, and what is done to its rows.

        Args:
            name: the name of the table, if the input is the result of an operator without a name.
            relation: the input.
            needed: the columns of the result that the query selects; None for all.
        """
        of = relation.child if isinstance(relation, Select) else relation
        match of:
            case Input():
                known = self._source(of.name)
                relation = select_all(relation) if needed is not None else relation
            case Named():
                known = of.name
                self.add(known, of.child)
            case Apply():
                known, below = name, relation if _filters_upserts(relation) else of
                self.add(known, below)
                relation = Named(known, below) if below is relation else relation
            case _:
                raise AssertionError(of)  # a selection of a selection is one selection, and windows are in operators
        if not isinstance(relation, Select) or (isinstance(of, Apply | Named) and upserts(of) and _is_part(relation)):
            return known, None
        return known, self._preparation(relation, needed)

    def _source(self, name: str) -> str:
        if name not in self.stored:
            way_out = "write the INSERT INTO statement of that table before the statements that read it"
            raise SqlError.refused(f"a query of {name!r} before it has rows", "statements are read in order", way_out)
        return name

    def _preparation(self, selection: Select, needed: Sequence[str] | None) -> Preparation | None:
        of = selection.child
        own = {*self.stored[of.name]} if isinstance(of, Input) else {c for c in of.columns if not _is_result_time(of, c)}
        items = [i for i in selection.items if not (i.column in of.times and needed is not None and i.name not in needed)]
        items = [i for i in items if not (i.column in (RESULT_TIME, FINAL_AT) and i.name == i.column)]
        columns = [c for c in of.columns if c in own]
        same = [i.name for i in items if i.column == i.name and i.name in own]
        where = None if selection.where is None else _by_engine(selection.where, own, of)
        if {*same} == {*columns}:
            added = [_written(i, own, of) for i in items if i.name not in same]
            return Preparation(where=where, select=", ".join(["*", *added])) if added or where else None
        return Preparation(where=where, select=", ".join(_written(i, own, of) for i in items))


def select_all(relation: Relation) -> Relation:
    """A relation as a selection of all of its columns, unless it is a selection."""
    return relation if isinstance(relation, Select) else Select(relation, tuple(Item.of_column(c) for c in relation.columns))


def _result(name: str, relation: Relation) -> tuple[Apply, Sequence[str] | None, Shape | None]:
    """The operator of a table, the columns that the query reads of its result, and what is made of the result."""
    if isinstance(relation, Apply):
        return relation, None, None
    if not isinstance(relation, Select) or not isinstance(relation.child, Apply):
        why = "each table is the result of an operator, and the query only selects"
        raise SqlError.refused(f"INSERT INTO {name}", why, "write CREATE VIEW: a selection is a part of the tables that read it")
    if relation.where is not None and isinstance(relation.child.operator, TracesInputs):
        why = f"the results of a join account for its rows, and {relation.where} filters them"
        way_out = "filter its inputs, in ON or in a view; for rows without a match write NOT EXISTS"
        raise SqlError.refused(f"INSERT INTO {name}", why, way_out)
    added = [item for item in relation.items if item.column != item.name and not _is_window_time(item)]
    for item in added:
        if find_name(item.name, relation.child.columns):
            why = f"the operator's result has a column {item.name}, which the table keeps"
            raise SqlError.refused(f"{item.sql} AS {item.name} in INSERT INTO {name}", why, "give it another name with AS")
    read = [c for sql in [*(i.sql for i in relation.items), *filter(None, [relation.where])] for c in columns_read(sql)]
    if not added and relation.where is None:
        return relation.child, read, None
    select = ", ".join(["*", *(f"{item.sql} AS {column_sql(item.name)}" for item in added)])
    return relation.child, read, Shape(where=relation.where, select=select)


def _is_window_time(item: Item) -> bool:
    """Whether a column is the time of a window's result, which tables have as `result_time`."""
    return (item.column, item.name) == (RESULT_TIME, WINDOW_TIME)


def _filters_upserts(relation: Relation) -> bool:
    """Whether rows that replace each other are filtered, which is done where they are made: a row may no longer match."""
    return isinstance(relation, Select) and relation.where is not None and upserts(relation)


def _is_part(selection: Select) -> bool:
    return selection.where is None and all(item.column == item.name for item in selection.items)


def _written(item: Item, own: set[str], of: Relation) -> str:
    """An item of a preparation."""
    sql = item.sql if item.column in own else _by_engine(item.sql, own, of)
    return sql if item.column == item.name and item.column in own else f"{sql} AS {column_sql(item.name)}"


def _by_engine(sql: str, own: set[str], of: Relation) -> str:
    """An expression in which an event time that is no column of the input is the engine's `event_time`."""
    times = {*of.times} - own

    def replaced(node: Any) -> Any:
        return exp.column(EVENT_TIME) if isinstance(node, exp.Column) and node.name in times else node

    tree: Any = sqlglot.parse_one(sql, dialect="spark")
    return tree.transform(replaced).sql(dialect="spark") if any(c.name in times for c in tree.find_all(exp.Column)) else sql


def _by_event_time(name: str, apply: Apply) -> Operator:
    """An operator whose times are those of its inputs, which the engine names `event_time`."""
    operator: Any = apply.operator
    first = getattr(operator, "of", operator)
    times = [one for one in _TIMES if hasattr(first, one)]
    for parameter, below in zip(times, apply.inputs, strict=False):
        _check_time(name, getattr(first, parameter), below)
    timed = replace(cast(Any, first), **dict.fromkeys(times, EVENT_TIME)) if times else first
    return timed if first is operator else replace(operator, of=timed)


def _check_time(name: str, time: str, below: Relation) -> None:
    if time == EVENT_TIME or _is_event_time(below, time):
        return
    why = f"the event time of a table is that of its results, and {time} is that of one of its inputs"
    raise SqlError.refused(f"{time} as the event time of {name}", why, "use window_time, or join in another order")


def _is_event_time(relation: Relation, name: str | None) -> bool:
    """Whether a column is what the engine takes as the event time of rows."""
    match relation:
        case Input():
            return name in relation.times
        case Named():
            return _is_event_time(relation.child, name)
        case Select():
            return _is_event_time(relation.child, next((i.column for i in relation.items if i.name == name), None))
        case Apply(operator=TopN() | Deduplicate(window=None)):
            return _is_event_time(relation.inputs[0], name)  # these keep the event time of their rows
        case _:
            return name == RESULT_TIME


def _is_result_time(relation: Relation, name: str) -> bool:
    """Whether a column is the time of results that their readers have as the event time, so that it is no column of their input."""
    return name in (RESULT_TIME, FINAL_AT) or (name == WINDOW_TIME and _origin(relation, name) == RESULT_TIME)


def _origin(relation: Relation, name: str) -> str | None:
    """The column of an operator's result that a column is; None if it is computed."""
    if isinstance(relation, Named):
        return _origin(relation.child, name)
    if not isinstance(relation, Select):
        return name
    column = next((i.column for i in relation.items if i.name == name), None)
    return None if column is None else _origin(relation.child, column)
