"""What a query means, as values without Spark: rows of named tables, selected, put into windows, and given to operators."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from operators.columns import RESULT_TIME, WINDOW_END, WINDOW_START
from operators.contract import Operator
from operators.engine_columns import EVENT_TIME
from operators.sql.names import column_sql
from operators.windows import AnyWindow

WINDOW_TIME = "window_time"  # Flink's name of the event time of a window's result
WINDOW_COLUMNS = (WINDOW_START, WINDOW_END, WINDOW_TIME)


@dataclass(frozen=True)
class Input:
    """The rows of a table by its name: those of a frame, a source or a derived table.

    Args:
        name: the table's name.
        columns: its columns.
        times: the columns that are event times.
        arrivals: names that stand for the time at which a row arrived, as declared by `PROCTIME()`; they are no columns.
        is_declared: whether the event time is declared; if not, each timestamp of a frame can be one.
    """

    name: str
    columns: tuple[str, ...]
    times: tuple[str, ...] = ()
    arrivals: tuple[str, ...] = ()
    is_declared: bool = True

    @property
    def inputs(self) -> tuple["Relation", ...]:
        """None: an input reads no other relation."""
        return ()

    @property
    def key(self) -> tuple[str, ...]:
        """None: rows are only added."""
        return ()


@dataclass(frozen=True)
class Item:
    """A column of a `Select`.

    Args:
        name: its name.
        sql: its value, in Spark SQL over the columns of the relation below.
        column: the column below, if the value is that column alone.
        is_time: whether a computed value is declared as the event time.
    """

    name: str
    sql: str
    column: str | None = None
    is_time: bool = False

    @classmethod
    def of_column(cls, column: str, name: str = "") -> "Item":
        """A column of the relation below, by its own or another name."""
        return cls(name or column, column_sql(column), column)


class _UnaryNode:
    """A relation over one other."""

    child: "Relation"

    @property
    def inputs(self) -> tuple["Relation", ...]:
        """The relation below."""
        return (self.child,)


class _KeepsTimesAndKey(_UnaryNode):
    """A relation with the times and the key of the relation below."""

    @property
    def times(self) -> tuple[str, ...]:
        """See `Input`."""
        return self.child.times

    @property
    def arrivals(self) -> tuple[str, ...]:
        """See `Input`."""
        return self.child.arrivals

    @property
    def key(self) -> tuple[str, ...]:
        """See `Apply`."""
        return self.child.key


@dataclass(frozen=True)
class Select(_UnaryNode):
    """Some rows of a relation, with columns that are computed from one row each.

    Args:
        child: the relation below.
        items: the columns.
        where: a condition in Spark SQL over the columns of the relation below.
        arrivals: see `Input`.
    """

    child: "Relation"
    items: tuple[Item, ...]
    where: str | None = None
    arrivals: tuple[str, ...] = ()

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """The names of the items."""
        return tuple(item.name for item in self.items)

    @cached_property
    def times(self) -> tuple[str, ...]:
        """The items that are an event time."""
        return tuple(item.name for item in self.items if item.is_time or item.column in self.child.times)

    @cached_property
    def key(self) -> tuple[str, ...]:
        """The key of the relation below, if all of its columns are selected."""
        names = {item.column: item.name for item in self.items if item.column}
        return tuple(names[c] for c in self.child.key) if {*self.child.key} <= {*names} else ()

    @property
    def is_whole(self) -> bool:
        """Whether it has all rows, and only columns of the relation below under their own names."""
        return self.where is None and all(item.column == item.name for item in self.items)


@dataclass(frozen=True)
class Windowed(_KeepsTimesAndKey):
    """The result of a windowing table function: rows, once for each of their windows. The operator that reads it assigns the windows.

    Args:
        child: the rows.
        window: the windows.
        time: the column with a row's event time.
        partition: the columns that separate sessions: a session has rows with equal values in them; empty for other windows.
    """

    child: "Relation"
    window: AnyWindow
    time: str
    partition: tuple[str, ...] = ()

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the rows, and those of the windows."""
        return (*self.child.columns, *WINDOW_COLUMNS)

    @property
    def times(self) -> tuple[str, ...]:
        """The event times of the rows, and that of a window's result."""
        return (*self.child.times, WINDOW_TIME)


@dataclass(frozen=True)
class Ranked(_KeepsTimesAndKey):
    """Rows with their rank in an order. An operator keeps the rows of the first ranks.

    Args:
        child: the rows.
        function: how ranks are counted: `row_number`, `rank` or `dense_rank`.
        by: the columns of PARTITION BY.
        order: the columns of ORDER BY, each with its direction.
        name: the name of the rank.
        columns: the columns that the query has, with the rank; those that only PARTITION BY and ORDER BY need are not among them.
    """

    child: "Relation"
    function: str
    by: tuple[str, ...]
    order: tuple[str, ...]
    name: str
    columns: tuple[str, ...]


@dataclass(frozen=True)
class Apply:
    """The result of an operator.

    Args:
        operator: the operator.
        inputs: its inputs.
        columns: the columns of the result.
        times: the columns of the result that are event times.
        windows: the windows, if each row is the result of a window; else None.
        arrivals: see `Input`.
    """

    operator: Operator
    inputs: tuple["Relation", ...]
    columns: tuple[str, ...]
    times: tuple[str, ...] = ()
    windows: AnyWindow | None = None
    arrivals: tuple[str, ...] = ()

    @property
    def key(self) -> tuple[str, ...]:
        """The columns by which results replace each other; empty if they are final."""
        emits = self.operator.emits
        return emits.key if emits.upserts else ()


@dataclass(frozen=True)
class Named(_KeepsTimesAndKey):
    """The result of an operator, under the name of a view or of the target of INSERT INTO.

    Args:
        name: the name.
        child: the result.
        has_options: whether the table is declared with options, which the result does not show.
    """

    name: str
    child: "Relation"
    has_options: bool = False

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the result."""
        return self.child.columns


Relation = Input | Select | Windowed | Ranked | Apply | Named


def upserts(relation: Relation) -> bool:
    """Whether rows of a relation replace each other."""
    if isinstance(relation, Apply):
        return relation.operator.emits.upserts
    return not isinstance(relation, Input) and upserts(relation.inputs[0])


def applied_operator(relation: Relation) -> Apply | None:
    """The operator whose result a relation selects from; None if it selects from an input, or its rows have windows or a rank."""
    return applied_operator(relation.child) if isinstance(relation, Select | Named) else relation if isinstance(relation, Apply) else None


def windows_of(relation: Relation) -> AnyWindow | None:
    """The windows whose results a relation has; None if it does not have their bounds, under any names."""
    operator = applied_operator(relation)
    has_bounds = {WINDOW_START, WINDOW_END} <= {window_column(relation, column) for column in relation.columns}
    return operator.windows if operator and has_bounds else None


def window_column(relation: Relation, column: str | None) -> str | None:
    """The column of the window that a column of rows in windows, or of windows' results, contains; None for another column.

    The columns of a window are its start, its end and its time. A query can give another name to the column of a result, as in
    `SELECT window_start AS starttime`.
    """
    if isinstance(relation, Windowed):
        return column if column in WINDOW_COLUMNS else None
    operator = applied_operator(relation)
    name = result_column(relation, column) if operator and operator.windows else None
    return WINDOW_TIME if name == RESULT_TIME else name if name in (WINDOW_START, WINDOW_END) else None


def result_column(relation: Relation, column: str | None) -> str | None:
    """The name that a column has in the operator's result; None if the column is computed from the result."""
    if isinstance(relation, Named):
        return result_column(relation.child, column)
    if not isinstance(relation, Select) or column is None:
        return column
    return result_column(relation.child, next((item.column for item in relation.items if item.name == column), None))


def is_by_ingest(relation: Relation) -> bool:
    """Whether the event time of rows is the time of their ingest: that of a declared source without WATERMARK. `PROCTIME()` names it."""
    rows = relation.child if isinstance(relation, Select) else relation
    return isinstance(rows, Input) and rows.is_declared and not rows.times and bool(relation.arrivals)


def reads_ingest_time(relation: Relation) -> bool:
    """Whether an operator reads the time of the ingest, which only a pipeline's rows have."""
    return any(
        getattr(part.operator, parameter, None) == EVENT_TIME and is_by_ingest(child)
        for part in walk(relation)
        if isinstance(part, Apply)
        for parameter, child in zip(("left_time", "right_time") if len(part.inputs) > 1 else ("time",), part.inputs, strict=True)
    )


def walk(relation: Relation) -> Iterator[Relation]:
    """A relation and all those below, each before those that it reads."""
    yield relation
    for below in relation.inputs:
        yield from walk(below)
