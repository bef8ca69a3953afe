"""The windowing table functions TUMBLE, HOP, CUMULATE and SESSION as windows."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from sqlglot import exp

from operators.engine_columns import EVENT_TIME
from operators.sql.dialect import TABLE, WINDOW_FUNCTIONS, Tree, parse_spark
from operators.sql.durations import interval_ms, words
from operators.sql.errors import SqlError
from operators.sql.names import find_name, require_name
from operators.sql.relations import WINDOW_COLUMNS, Relation, Windowed, is_by_ingest
from operators.timing import duration_ms
from operators.windows import AnyWindow, Cumulative, Session, Sliding, Tumbling

_PARAMETERS: Mapping[str, Sequence[str]] = {
    "TUMBLE": ("DATA", "TIMECOL", "SIZE", "OFFSET"),
    "HOP": ("DATA", "TIMECOL", "SLIDE", "SIZE", "OFFSET"),
    "CUMULATE": ("DATA", "TIMECOL", "STEP", "SIZE", "OFFSET"),
    "SESSION": ("DATA", "TIMECOL", "GAP"),
}
_OPTIONAL = ("OFFSET",)


@dataclass(frozen=True)
class WindowFunction:
    """A call of a windowing table function.

    Args:
        name: the function.
        arguments: its arguments by name.
    """

    name: str
    arguments: Mapping[str, Tree]

    @classmethod
    def read(cls, tree: Tree) -> "WindowFunction | None":
        """The windowing function that a table of FROM calls; None if the table is no call.

        Raises:
            SqlError: it calls another function, or the arguments are not those of the function.
        """
        call: Tree = tree.this
        if isinstance(call, exp.Anonymous) and str(call.this).upper() == TABLE and len(call.expressions) == 1:
            call = call.expressions[0]
        if not isinstance(call, exp.Func):
            return None
        name = str(call.this).upper() if isinstance(call, exp.Anonymous) else call.sql_name()
        if name not in WINDOW_FUNCTIONS:
            raise SqlError.refused(f"the table function {name}", "there is no such operator", f"legal: {', '.join(WINDOW_FUNCTIONS)}")
        return cls(name, _by_name(name, call.expressions))

    def windowed(self, table: Callable[[Tree], Relation]) -> Windowed:
        """The rows in their windows.

        Args:
            table: gives the relation of a table or a subquery.
        """
        data = self.arguments["DATA"]
        is_table = isinstance(data, exp.Anonymous) and str(data.this).upper() == TABLE
        relation = table(data.expressions[0] if is_table else data)
        if isinstance(relation, Windowed):
            reason = "its rows already have windows"
            raise SqlError.refused(
                f"{self.name} over windows", reason, "aggregate them first, and use DESCRIPTOR(window_time) of the result"
            )
        partition = tuple(require_name(c.name, relation.columns) for c in data.expressions[1:]) if is_table else ()
        if partition and self.name != "SESSION":
            reason = "a row's windows depend on its time alone; only sessions depend on other rows"
            raise SqlError.refused(f"PARTITION BY in {self.name}", reason, "write the columns in GROUP BY, or in PARTITION BY of OVER")
        return Windowed(relation, self._window(), self._time(relation), partition)

    def _time(self, relation: Relation) -> str:
        descriptor = self.arguments["TIMECOL"]
        columns = descriptor.expressions if isinstance(descriptor, exp.Anonymous) else [descriptor]
        if len(columns) != 1:
            raise SqlError(f"{self.name} has a DESCRIPTOR with {len(columns)} columns; legal: DESCRIPTOR(ts), with the event time")
        [column] = columns
        if find_name(column.name, relation.arrivals) and not find_name(column.name, relation.columns):
            if is_by_ingest(relation):
                return EVENT_TIME
            reason = "its rows have another event time, or are not those of a pipeline's source"
            way_out = "for windows by the time of the ingest, write a pipeline with a source without WATERMARK"
            raise SqlError.refused(f"{self.name} by the processing time {column.name}", reason, way_out)
        name = require_name(column.name, relation.columns)
        if name not in relation.times:
            legal = f"legal: {', '.join(relation.times)}" if relation.times else "declare it by WATERMARK FOR in CREATE TABLE"
            raise SqlError.refused(f"{self.name} by {name}", "it is no event time", legal)
        return name

    def _window(self) -> AnyWindow:
        length = {name: words(interval_ms(tree)) for name, tree in self.arguments.items() if name not in ("DATA", "TIMECOL")}
        offset = {"offset": length["OFFSET"]} if "OFFSET" in length else {}
        match self.name:
            case "TUMBLE":
                return Tumbling(size=length["SIZE"], **offset)
            case "HOP":
                return Sliding(size=length["SIZE"], slide=length["SLIDE"], **offset)
            case "CUMULATE":
                return Cumulative(size=length["SIZE"], step=length["STEP"], **offset)
            case _:
                return _session(length["GAP"])


def _session(gap: str) -> Session:
    if (gap_ms := duration_ms(gap, "GAP")) > (longest_ms := duration_ms(Session.longest, "longest")):
        reason = f"in SQL a session ends after {words(longest_ms)} at the latest"
        way_out = f"declare the table in Python or YAML, with Session(gap={words(gap_ms)!r}, longest='...')"
        raise SqlError.refused(f"SESSION with a gap of {words(gap_ms)}", reason, way_out)
    return Session(gap=gap)


def steps_of(windows: Sliding | Cumulative) -> Tumbling:
    """The windows that end where some windows end, each as long as the step between two ends.

    >>> steps_of(Sliding(size="5 minutes", slide="2 minutes"))
    Tumbling(size='2 minutes', offset=60000)
    """
    step = windows.period if isinstance(windows, Sliding) else windows.pane
    return Tumbling(size=words(step), offset=(windows.origin + windows.longest) % step)


def reads_window(sql: str) -> bool:
    """Whether an expression over rows in windows, in Spark SQL, reads a column of the windows."""
    return any(not column.table and column.name in WINDOW_COLUMNS for column in parse_spark(sql).find_all(exp.Column))


def check_condition(rows: Windowed, where: str | None, way_out: str) -> None:
    """Raise `SqlError` if rows in windows cannot be filtered by a condition before the windows are assigned.

    Args:
        rows: the rows in windows.
        where: the condition in Spark SQL; None for none.
        way_out: what to write for a condition on the windows themselves.
    """
    if where and reads_window(where):
        raise SqlError.refused(f"the condition {where}", "windows are not filtered before their operator", way_out)
    if where and isinstance(rows.window, Session):
        reason = "a condition on rows in sessions is applied after the sessions are formed, and the operator reads filtered rows"
        raise SqlError.refused(f"the condition {where}", reason, "select the rows in a view, and form sessions of the view")


def _by_name(function: str, arguments: Sequence[Tree]) -> dict[str, Tree]:
    names = _PARAMETERS[function]
    legal = f"{function}({', '.join(f'[{n}]' if n in _OPTIONAL else n for n in names)})"
    tree_by_name: dict[str, Tree] = {}
    for number, argument in enumerate(arguments):
        is_named = isinstance(argument, exp.PropertyEQ)
        name = str(argument.this.name) if is_named else names[number] if number < len(names) else ""
        if name in tree_by_name:
            raise SqlError(f"{function} has the argument {name} twice; legal: {legal}")
        if name not in names:
            raise SqlError(f"{function} has an argument {name or number + 1}, which it does not take; legal: {legal}")
        tree_by_name[name] = argument.expression if is_named else argument
    missing = [name for name in names if name not in tree_by_name and name not in _OPTIONAL]
    if missing:
        raise SqlError(f"{function} has no argument {missing[0]}; legal: {legal}")
    return tree_by_name
