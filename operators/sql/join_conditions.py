"""The conditions of a join by their role for the operator: keys, windows, bounds of the times, and others."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

from sqlglot import exp

from operators.columns import WINDOW_END, WINDOW_START
from operators.engine_columns import EVENT_TIME
from operators.sql.dialect import MIRRORED, Tree, spark_sql
from operators.sql.durations import interval_ms
from operators.sql.errors import SqlError
from operators.sql.names import find_name
from operators.sql.relations import Item, Windowed, applied_operator, is_by_ingest, window_column
from operators.sql.scope import Scope
from operators.sql.selections import with_result_time
from operators.windows import Sliding, Tumbling

PRESERVED: Mapping[str, tuple[int, ...]] = {"inner": (0, 1), "left": (0,), "right": (1,), "full": (), "semi": (0,), "anti": (0,)}
"""The sides that have a row in every result."""
KEEPS: Mapping[str, tuple[int, ...]] = {"inner": (), "left": (0,), "right": (1,), "full": (0, 1), "semi": (), "anti": (0,)}
"""The sides whose rows can be in the result without a match."""
_LOWER, _UPPER = (exp.GTE, exp.GT, exp.EQ), (exp.LTE, exp.LT, exp.EQ)


@dataclass(frozen=True)
class Bound:
    """One end of `right time - left time`.

    Args:
        ms: the end.
        is_open: whether the end itself is excluded.
    """

    ms: int
    is_open: bool


@dataclass
class Conditions:
    """The conditions of a join.

    Args:
        sides: the left and the right rows.
        keys: for each equality, the value of the left and of the right side.
        equalities: the conditions of the keys.
        windows: the columns of the windows that are equal.
        lower: the lower end of `right time - left time`.
        upper: the upper end.
        times: the time columns of the bounds.
        of_side: the conditions of one side alone.
        others: all other conditions.
        used: the ids of the columns that only keys and bounds read.
        reads_windows: whether the bounds of windows, whose results a side has, bound the times.
    """

    sides: tuple[Scope, Scope]
    keys: list[tuple[Item, Item]] = field(default_factory=list[tuple[Item, Item]])
    equalities: list[Tree] = field(default_factory=list[Tree])
    windows: set[str] = field(default_factory=set[str])
    lower: Bound | None = None
    upper: Bound | None = None
    times: tuple[str, str] | None = None
    of_side: tuple[list[Tree], list[Tree]] = field(default_factory=lambda: ([], []))
    others: list[Tree] = field(default_factory=list[Tree])
    used: set[int] = field(default_factory=set[int])
    reads_windows: bool = False

    @property
    def are_windowed(self) -> bool:
        """Whether the rows of both sides are in windows."""
        return all(isinstance(side.relation, Windowed) for side in self.sides)

    @property
    def have_equal_ends(self) -> bool:
        """Whether both sides are results of windows, and the ends of the windows are equal."""
        left, right = (side.relation for side in self.sides)
        return any(window_column(left, a.column) == window_column(right, b.column) == WINDOW_END for a, b in self.keys)

    def add_time_of_windows(self, index: int) -> str:
        """Add the event time of a side with results of windows to its columns, unless the query selects it; returns its name."""
        relation, time = with_result_time(self.sides[index].relation)
        sides = [*self.sides]
        sides[index] = replace(sides[index], relation=relation)
        self.sides = sides[0], sides[1]
        return time

    def add(self, tree: Tree) -> None:
        """Add a condition."""
        if isinstance(tree, exp.Paren):
            self.add(tree.this)
        elif isinstance(tree, exp.And):
            self.add(tree.left)
            self.add(tree.right)
        elif isinstance(tree, exp.Between) and not tree.args.get("symmetric"):
            self.add(exp.GTE(this=tree.this, expression=tree.args["low"]))
            self.add(exp.LTE(this=tree.this, expression=tree.args["high"]))
        elif self._add_window(tree) or self._add_bound(tree) or self._add_key(tree):
            self.used |= {id(column) for column in tree.find_all(exp.Column)}
        else:
            read = self.sides_of(tree)
            (self.of_side[read.pop()] if len(read) == 1 else self.others).append(tree)

    def bound_by_windows(self) -> None:
        """Read conditions on the bounds of windows as bounds of the times, if nothing else bounds them."""
        if self.have_equal_ends or (self.lower and self.upper):
            return
        self.reads_windows = True
        others, self.others = self.others, []
        for tree in others:
            self.add(tree)
        if self.lower is None or self.upper is None:  # an equality of a time and a bound of a window is no key
            equalities, self.equalities, self.keys = self.equalities, [], []
            for tree in equalities:
                self.add(tree)

    def sides_of(self, tree: Tree) -> set[int]:
        """The sides whose columns an expression reads."""
        return {self.side_of(column) for column in tree.find_all(exp.Column)}

    def side_of(self, column: Tree) -> int:
        """The side that has a column.

        Raises:
            SqlError: none has it, or both.
        """
        sides = [index for index, side in enumerate(self.sides) if side.has(column)]
        if len(sides) > 1:
            raise SqlError.refused(column.name, "it is a column of both sides of the join", f"write the table too, as in t.{column.name}")
        if not sides:
            Scope(self.sides[0].relation, {**self.sides[0].tables, **self.sides[1].tables}).resolve(column)
        return sides[0]

    def _add_window(self, tree: Tree) -> bool:
        """Add a condition if it is an equality of the bounds of both sides' windows; returns whether it is."""
        if not self.are_windowed or not isinstance(tree, exp.EQ):
            return False
        columns = [tree.this, tree.expression]
        if not all(isinstance(c, exp.Column) for c in columns) or self.sides_of(tree) != {0, 1}:
            return False
        names = {self.sides[self.side_of(c)].resolve(c).column for c in columns}
        if len(names) == 1 and names <= {WINDOW_START, WINDOW_END}:
            self.windows |= {str(name) for name in names}
            return True
        return False

    def _add_key(self, tree: Tree) -> bool:
        """Add a condition if it is an equality of a value of each side; returns whether it is."""
        if not isinstance(tree, exp.EQ):
            return False
        read = [self.sides_of(tree.this), self.sides_of(tree.expression)]
        if sorted(read, key=sorted) != [{0}, {1}]:
            return False
        left, right = (tree.this, tree.expression) if read[0] == {0} else (tree.expression, tree.this)
        self.keys.append((self.sides[0].item(left, ""), self.sides[1].item(right, "")))
        self.equalities.append(tree)
        return True

    def _add_bound(self, tree: Tree) -> bool:
        """Add a condition if it bounds the times, as it compares `right time - left time` with a length; returns whether it does."""
        if type(tree) not in MIRRORED or (self.are_windowed and self.windows):
            return False
        left, right = self._read_shifted_time(tree.this), self._read_shifted_time(tree.expression)
        if left is None or right is None or left[0] == right[0]:
            return False
        operation = cast(Any, type(tree))
        if left[0] == 0:
            left, right, operation = right, left, MIRRORED[operation]
        length = right[2] - left[2]
        times = (right[1], left[1])
        if self.times not in (None, times):
            raise SqlError.refused(f"the bound {spark_sql(tree)}", "each side has one event time", "compare one time of each side")
        self.times = times
        if operation in _LOWER:
            self.lower = _tighter_bound(self.lower, Bound(length, operation is exp.GT), 1)
        if operation in _UPPER:
            self.upper = _tighter_bound(self.upper, Bound(length, operation is exp.LT), -1)
        return True

    def _side_by_ingest(self, column: Tree) -> int | None:
        """The side whose event time a `PROCTIME()` column is; None for any other column."""
        sides = [
            index
            for index, side in enumerate(self.sides)
            if find_name(column.table, ("", *side.tables)) is not None
            and find_name(column.name, side.relation.arrivals)
            and is_by_ingest(side.relation)
        ]
        return sides[0] if len(sides) == 1 and not any(side.has(column) for side in self.sides) else None

    def _read_shifted_time(self, tree: Tree) -> tuple[int, str, int] | None:
        """The side, the column and the shift in ms of `time`, `time + INTERVAL ...` or `time - INTERVAL ...`; None for anything else."""
        if isinstance(tree, exp.Paren):
            return self._read_shifted_time(tree.this)
        if isinstance(tree, exp.Column):
            if (by_ingest := self._side_by_ingest(tree)) is not None:
                return by_ingest, EVENT_TIME, 0
            side = self.side_of(tree)
            column = self.sides[side].resolve(tree).column
            if column and column in self.sides[side].relation.times:
                return side, column, 0
            return self._read_window_bound(side, column) if self.reads_windows else None
        if isinstance(tree, exp.Add) and isinstance(tree.this, exp.Interval):
            return self._read_shifted_time(exp.Add(this=tree.expression, expression=tree.this))
        if not isinstance(tree, exp.Add | exp.Sub) or not isinstance(tree.expression, exp.Interval | exp.Neg | exp.Paren):
            return None
        shifted = self._read_shifted_time(tree.this)
        if shifted is None:
            return None
        length = interval_ms(tree.expression)
        return shifted[0], shifted[1], shifted[2] + (length if isinstance(tree, exp.Add) else -length)

    def _read_window_bound(self, side: int, column: str | None) -> tuple[int, str, int] | None:
        """A bound of the windows whose results a side has, as a shift of their event time, `window_end - 1 ms`; None for anything else."""
        relation = self.sides[side].relation
        operator, bound = applied_operator(relation), window_column(relation, column)
        if operator is None:  # rows in windows
            return None
        if bound == WINDOW_END:
            return side, self.add_time_of_windows(side), 1
        if bound == WINDOW_START and isinstance(operator.windows, Tumbling | Sliding):
            return side, self.add_time_of_windows(side), 1 - operator.windows.longest
        return None


def _tighter_bound(bound: Bound | None, other_bound: Bound, sign: int) -> Bound:
    """The bound that accepts less: for a lower end (`sign` 1) the larger one, for an upper end (-1) the smaller one."""
    if bound is None:
        return other_bound
    return max(bound, other_bound, key=lambda candidate: (sign * candidate.ms, candidate.is_open))


def sort_conditions(left: Scope, right: Scope, conditions: Sequence[Tree]) -> Conditions:
    """The conditions of a join by their role. Equal windows are read first, because a join in windows has no bounds of the times."""
    by_role = Conditions((left, right))
    for condition in sorted(
        conditions, key=lambda tree: not any(column.name in (WINDOW_START, WINDOW_END) for column in tree.find_all(exp.Column))
    ):
        by_role.add(condition)
    return by_role
