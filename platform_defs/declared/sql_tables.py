"""INSERT INTO as derived assets: each operator of a query becomes a table, and the selections below it become its preparation."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from assets.contracts import DerivedAsset, Preparation, Shape
from assets.expressions import columns_read
from operators.accounting import TracesInputs
from operators.as_of_join import AsOfJoin
from operators.columns import FINAL_AT, RESULT_TIME, names
from operators.contract import Operator
from operators.deduplicate import Deduplicate
from operators.interval_join import IntervalJoin
from operators.select import Select as SelectRows
from operators.sql.errors import SqlError
from operators.sql.names import column_sql, find_name
from operators.sql.relations import WINDOW_TIME, Apply, Input, Item, Named, Relation, Select, applied_operator, upserts, walk
from operators.top_k import TopK
from operators.top_n import TopN
from platform_defs.declared.sql_targets import with_parameters
from platform_defs.declared.sql_times import is_result_time, with_engine_time, with_event_times, with_result_times

_CHANGE = "change"
_KEEP_ROWS = (TopN, TopK, Deduplicate, SelectRows)
"""The operators whose results are rows of their input."""


@dataclass
class SqlTables:
    """Collects the derived assets of a script.

    Args:
        stored: for each source, the columns of its rows.
        descriptions: for each table, what it contains.
        parameters: for each table, the parameters of its operator that WITH declares.
        views: the relation of each view.
        assets: the assets, by name.
        versions: for each source whose rows are versions, the columns of their key. Several versions can have the same key.
        timed: the tables that have a computed event time as a column of their rows.
    """

    stored: Mapping[str, Sequence[str]]
    descriptions: Mapping[str, str] = field(default_factory=dict)
    parameters: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    views: Mapping[str, Relation] = field(default_factory=dict)
    assets: dict[str, DerivedAsset] = field(default_factory=dict)
    versions: dict[str, set[str]] = field(default_factory=dict[str, set[str]])
    timed: set[str] = field(default_factory=set)
    _made: dict[str, Relation] = field(default_factory=dict[str, Relation], init=False)
    _unnamed: set[str] = field(default_factory=set[str], init=False)  # the tables of inner queries

    def add(self, name: str, relation: Relation) -> None:
        """Add the table of an INSERT INTO, and the tables that it reads.

        Raises:
            SqlError: the query has no operator, or changes the operator's result, or another table has the name.
            ContractError: the asset is not legal.
        """
        if name in self.assets:
            raise _same_name(name)
        self._make(name, relation, relation, is_inserted=True)

    def _add_part(self, name: str, relation: Relation, selection: Relation | None = None) -> None:
        """Add the table of a view or of an inner query, which can select from it. The table is the same whatever its readers select."""
        if name not in self.assets:
            self._make(name, relation, selection or relation, is_inserted=False)

    def _make(self, name: str, relation: Relation, selection: Relation, *, is_inserted: bool) -> None:
        apply, needed, shape = _split_result(name, relation)
        if needed is not None:
            needed = [*needed, *columns_read(getattr(apply.operator, "residual", None) or "true")]
        apply = with_result_times(apply, self._made)
        inputs, preparations = list[str](), list[Preparation | None]()
        for side, input_relation in zip(apply.operator.inputs, apply.inputs, strict=True):
            kept_times = self._missing_times(input_relation) & _kept_columns(apply, relation, selection, is_inserted=is_inserted)
            needs_time = bool(kept_times) or self._reads_missing_time(apply, input_relation)
            if kept_times:
                self.timed.add(name)
            needed_here = needed if len(apply.inputs) > 1 else None
            upstream, preparation = self._input(f"{name}_{side}", input_relation, needed_here, needs_time=needs_time)
            inputs.append(upstream)
            preparations.append(preparation)
        keys = inputs if len({*inputs}) == len(inputs) else apply.operator.inputs  # sides of one input are prepared by their own names
        prepare = {key: preparation for key, preparation in zip(keys, preparations, strict=True) if preparation is not None}
        self._check_purging(name, apply.operator, inputs)
        operator = with_parameters(name, with_event_times(name, apply), self.parameters.get(name, {}))
        self._made[name] = _with_operator(relation, apply, operator)
        if isinstance(operator, AsOfJoin):
            self._add_versions(inputs[1], [*apply.inputs][1], names(operator.on))
        if isinstance(operator, TopN) and any(map(upserts, apply.inputs)):
            operator = replace(operator, change=_CHANGE)
        description = self.descriptions.get(name, "")
        self.assets[name] = DerivedAsset(
            name=name, inputs=tuple(inputs), operator=operator, prepare=prepare, shape=shape, description=description
        )

    def _add_versions(self, name: str, relation: Relation, columns: Iterable[str]) -> None:
        """Add the key of versions to the source that has them. The table of a selection has the versions of its source."""
        key, made = _columns_below(relation, columns), self._made.get(name)
        if isinstance(made, Apply) and isinstance(made.operator, SelectRows):
            self._add_versions(self.assets[name].inputs[0], made.inputs[0], key)
        else:
            self.versions[name] = {*self.versions.get(name, ()), *key}

    def _check_purging(self, name: str, operator: Operator, inputs: Sequence[str]) -> None:
        """Raise `SqlError` if an operator reads the event times of a table that adds several results of a window."""
        purging = [table for table in inputs if table in self.assets and getattr(self.assets[table].operator, "purging", None)]
        if purging and operator.reads.closes_ranges:
            reason = f"{purging[0]!r} adds several results of a window, each at the time of its firing"
            raise SqlError.refused(f"a window or a join over {purging[0]!r} in {name!r}", reason, "leave out its 'tidemark.purging'")

    def _input(self, name: str, relation: Relation, needed: Sequence[str] | None, *, needs_time: bool) -> tuple[str, Preparation | None]:
        """The name of an input, and its preparation.

        Args:
            name: the name of the table, if the input is the result of an operator without a name.
            relation: the input.
            needed: the columns of the result that the query selects; None for all.
            needs_time: whether the query reads an event time that the stored rows do not have as a column.
        """
        relation = select_all(relation) if needs_time else relation
        unselected = relation.child if isinstance(relation, Select) else relation
        match unselected:
            case Input():
                input_name = self._require_source(unselected.name)
                relation = select_all(relation) if needed is not None else relation
            case Named():
                input_name = unselected.name
                if input_name in self._unnamed:
                    raise _same_name(input_name)
                self._add_part(input_name, unselected.child, self.views.get(input_name))
            case Apply():
                input_name, computed = name, relation if _filters_upserts(relation) else unselected
                if input_name in self.assets:
                    raise _same_name(input_name)
                self._unnamed.add(input_name)
                self._add_part(input_name, computed, relation)
                relation = Named(input_name, computed) if computed is relation else relation
            case _:
                raise AssertionError(unselected)  # a selection of a selection is one selection, and windows are in operators
        is_part = isinstance(unselected, Apply | Named) and upserts(unselected) and not needs_time
        if not isinstance(relation, Select) or (is_part and _only_selects(relation)):
            return input_name, None
        return input_name, self._preparation(relation, needed)

    def _reads_missing_time(self, apply: Apply, relation: Relation) -> bool:
        """Whether an operator computes something from the event time by its name in the query, and the stored rows have no such column."""
        operator: Any = getattr(apply.operator, "of", apply.operator)
        by, order = getattr(operator, "by", ()), getattr(operator, "order", ())
        columns = {column for sql in getattr(operator, "aggregates", {}).values() for column in columns_read(sql)}
        columns |= {by} if isinstance(by, str) else {*by}
        columns |= set() if isinstance(order, str) else {part.column for part in order}
        return bool(columns & self._missing_times(relation))

    def _missing_times(self, relation: Relation) -> set[str]:
        """The event times of a query's rows that are no columns of the stored rows: the engine has them as `event_time`."""
        match relation:
            case Input():
                return {*relation.times} - {*self.stored.get(relation.name, ())}
            case Named():
                return set() if relation.name in self.timed else self._missing_times(relation.child)
            case Select():
                missing = self._missing_times(relation.child)
                return {item.name for item in relation.items if item.column in missing}
            case Apply(operator=TopN() | Deduplicate(window=None)) if not isinstance(relation.inputs[0], Select):
                # these keep the rows and the event time of their input; they need the time as a column only to compute something from it
                return set() if self._reads_missing_time(relation, relation.inputs[0]) else self._missing_times(relation.inputs[0])
            case _:
                return set()

    def _require_source(self, name: str) -> str:
        if name not in self.stored:
            raise no_rows_yet(name)
        return name

    def _preparation(self, selection: Select, needed: Sequence[str] | None) -> Preparation | None:
        upstream = selection.child
        stored = self.stored[upstream.name] if isinstance(upstream, Input) else upstream.columns
        own_columns = {column for column in stored if not is_result_time(upstream, column)} - self._missing_times(upstream)
        items = [item for item in selection.items if not (item.column in upstream.times and needed is not None and item.name not in needed)]
        items = [item for item in items if not (item.column in (RESULT_TIME, FINAL_AT) and item.name == item.column)]
        columns = [column for column in upstream.columns if column in own_columns]
        unchanged = [item.name for item in items if item.column == item.name and item.name in own_columns]
        where = None if selection.where is None else with_engine_time(selection.where, own_columns, upstream)
        if {*unchanged} == {*columns}:
            added = [_item_sql(item, own_columns, upstream) for item in items if item.name not in unchanged]
            return Preparation(where=where, select=", ".join(["*", *added])) if added or where else None
        return Preparation(where=where, select=", ".join(_item_sql(item, own_columns, upstream) for item in items))


def no_rows_yet(name: str) -> SqlError:
    """The error for a query of a table that only a later statement inserts into."""
    way_out = "write the INSERT INTO statement of that table before the statements that read it"
    return SqlError.refused(f"a query of {name!r} before it has rows", "statements are read in order", way_out)


def select_all(relation: Relation) -> Relation:
    """A selection of all columns of a relation; the relation itself if it is a selection."""
    return relation if isinstance(relation, Select) else Select(relation, tuple(Item.of_column(c) for c in relation.columns))


def _same_name(name: str) -> SqlError:
    """The error for a table with the name of another one."""
    reason = "each table has a name of its own, and that of an inner query is made of the names of its reader and of the reader's input"
    return SqlError.refused(f"a second table {name!r}", reason, "rename one, or write the inner query as a view")


def _split_result(name: str, relation: Relation) -> tuple[Apply, Sequence[str] | None, Shape | None]:
    """The operator of a table, the columns of its result that the query reads, and the shape of the result."""
    if isinstance(relation, Apply):
        return relation, None, None
    if not isinstance(relation, Select) or not isinstance(relation.child, Apply):
        raise _selection_error(name, relation)
    if relation.where is not None and isinstance(relation.child.operator, TracesInputs):
        reason = f"the results of a join account for each of its input rows, and {relation.where} removes some"
        if isinstance(relation.child.operator, AsOfJoin):
            way_out = "filter the left side in a view; a query that reads the table can filter by the version"
        else:
            way_out = "filter its inputs, in ON or in a view; for rows without a match write NOT EXISTS"
        raise SqlError.refused(f"INSERT INTO {name}", reason, way_out)
    added = [item for item in relation.items if item.column != item.name and not _is_window_time(item)]
    for item in added:
        if own := find_name(item.name, relation.child.columns):
            reason = f"the operator's result has a column {own}, which the table keeps"
            way_out = f"write {own}, also in CREATE TABLE: Spark ignores case" if own == item.column else "give it another name with AS"
            raise SqlError.refused(f"{item.sql} AS {item.name} in INSERT INTO {name}", reason, way_out)
    if not added and relation.where is None:
        return relation.child, _columns_read(relation), None
    select = ", ".join(["*", *(f"{item.sql} AS {column_sql(item.name)}" for item in added)])
    return relation.child, _columns_read(relation), Shape(where=relation.where, select=select)


def _selection_error(name: str, relation: Relation) -> SqlError:
    """The error for a table whose query only selects results of another table or view."""
    read = next(below for below in walk(relation) if isinstance(below, Named))
    is_selected = isinstance(getattr(applied_operator(read), "operator", None), SelectRows)
    way_out = "as a view, and insert into both tables from the view" if is_selected else "in brackets in place of its name"
    reason = f"{read.name} has results of an operator, and only rows of a source are selected into a table"
    return SqlError.refused(f"INSERT INTO {name} of a selection from {read.name}", reason, f"write the query of {read.name} {way_out}")


def _with_operator(relation: Relation, apply: Apply, operator: Operator) -> Relation:
    """The relation of a table for its readers, with the event times of its inputs and its results."""
    if isinstance(apply.operator, IntervalJoin) and isinstance(operator, IntervalJoin):
        apply = replace(apply, operator=replace(apply.operator, result_time=operator.result_time))
    return replace(relation, child=apply) if isinstance(relation, Select) else apply


def _columns_below(relation: Relation, columns: Iterable[str]) -> set[str]:
    """The columns that a relation copies to some of its own, by their names in the rows that it selects from."""
    copied = {item.name: item.column for item in relation.items} if isinstance(relation, Select) else {c: c for c in relation.columns}
    return {column for name in columns if (column := copied.get(name)) is not None}


def _columns_read(selection: Select) -> list[str]:
    """The columns that a selection reads from the relation below."""
    return [c for sql in [*(i.sql for i in selection.items), *filter(None, [selection.where])] for c in columns_read(sql)]


def _kept_columns(apply: Apply, relation: Relation, selection: Relation, *, is_inserted: bool) -> set[str]:
    """The columns of a table's results that come from rows of its inputs, so that the inputs must have these columns.

    The inputs of a join with a selection are prepared to have the selected columns; another join needs all columns of its inputs. A Top-N
    or a deduplication of windows gives each result the time of its window, so that its readers find the row's event time only in a column.
    Without windows, its results keep the row's event time for their readers, and only a table of INSERT INTO needs the column.

    Args:
        apply: the operator.
        relation: the table: the operator, or a selection of its results.
        selection: what the view or the inner query of the table selects.
        is_inserted: whether the table is that of an INSERT INTO.
    """
    if len(apply.inputs) > 1:
        return set() if isinstance(relation, Select) else {column for below in apply.inputs for column in below.columns}
    keeps_rows = isinstance(getattr(apply.operator, "of", apply.operator), _KEEP_ROWS)
    if not keeps_rows or not (is_inserted or apply.windows):
        return set()
    return {*_columns_read(selection)} if isinstance(selection, Select) else {*apply.columns}


def _is_window_time(item: Item) -> bool:
    """Whether a column is the time of a window's result. A table has this time as `result_time`."""
    return (item.column, item.name) == (RESULT_TIME, WINDOW_TIME)


def _filters_upserts(relation: Relation) -> bool:
    """Whether upserted rows are filtered. The table that makes them must filter them, because a new version of a row may not match."""
    return isinstance(relation, Select) and relation.where is not None and upserts(relation)


def _only_selects(selection: Select) -> bool:
    return selection.where is None and all(item.column == item.name for item in selection.items)


def _item_sql(item: Item, own_columns: set[str], upstream: Relation) -> str:
    """An item of a preparation."""
    sql = item.sql if item.column in own_columns else with_engine_time(item.sql, own_columns, upstream)
    return sql if item.column == item.name and item.column in own_columns else f"{sql} AS {column_sql(item.name)}"
