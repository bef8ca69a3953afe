"""Runs queries on frames."""

from collections.abc import Mapping

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import TimestampType

from operators._support.ordering import Ordering
from operators.columns import TEMPORARY, quoted, quoted_name
from operators.engine_columns import ARRIVAL, SEQ
from operators.select import Select as SelectRows
from operators.sql.errors import SqlError
from operators.sql.explain import explain
from operators.sql.plan import Order, Plan, plan
from operators.sql.relations import Apply, Input, Named, Relation, Select, walk


def sql(text: str, frames: Mapping[str, DataFrame]) -> DataFrame:
    """The rows of a query in Flink SQL over frames, computed by Tidemark's operators.

    The text is one query. CREATE VIEW statements can precede it, and CREATE TABLE statements that declare the event time of a frame, or a
    name for the order of arrival. Each join, window, ranking and aggregate is an operator, with its semantics and its errors.
    `EXPLAIN SELECT ...` gives the operators, in one column `plan`. The page `docs/reference/sql.md` lists what is supported, and what is
    refused and why.

    Args:
        text: the statements, separated by semicolons.
        frames: the frames by the names of the tables, static. Any timestamp column can be an event time. `seq` and `arrival` (bigint), if
            a frame has them, are the order in which its rows arrived.

    Returns:
        The columns of the query.

    Raises:
        SqlError: the text cannot be parsed, or a part of it has no operator; the message says why and what to write instead.
        OperatorError: an operator refuses a parameter or a frame.
    """
    tables = {name: _input(name, frame) for name, frame in frames.items()}
    [*earlier_plans, last] = plan(text, tables).plans or [None]
    if last is None or earlier_plans or last.target:
        reason, way_out = "sql() returns the rows of one query", "end it with SELECT or EXPLAIN SELECT; INSERT belongs to a pipeline's file"
        raise SqlError.refused("a text without exactly one query", reason, way_out)
    missing = [relation.name for relation in walk(last.relation) if isinstance(relation, Input) and relation.name not in frames]
    if missing:
        raise SqlError.unknown("frame", missing[0], ", ".join(frames) or "none")
    return rows_of(last, frames)


def rows_of(planned: Plan, frames: Mapping[str, DataFrame]) -> DataFrame:
    """The rows of a plan, in its order.

    Args:
        planned: a query; or EXPLAIN of a query, whose plan is the only row.
        frames: the frames by name.
    """
    if planned.is_explained:
        session = next(iter(frames.values())).sparkSession
        return session.range(1).select(F.lit(explain(planned.relation)).alias("plan"))
    return _order_rows(evaluate(planned.relation, frames).select(*quoted(planned.relation.columns)), planned.order)


def _order_rows(rows: DataFrame, order: Order) -> DataFrame:
    ordered_rows = rows.orderBy(*[Ordering.read(column, "ORDER BY").sort_expression() for column in order.by]) if order.by else rows
    return ordered_rows if order.limit is None else ordered_rows.limit(order.limit)


def _input(name: str, frame: DataFrame) -> Input:
    columns = tuple(c for c in frame.columns if not c.startswith(TEMPORARY))
    times = tuple(c for c in columns if isinstance(frame.schema[c].dataType, TimestampType))
    return Input(name, columns, times, is_declared=False)


def evaluate(relation: Relation, frames: Mapping[str, DataFrame]) -> DataFrame:
    """The rows of a relation, with the columns by which the engine orders rows, if the frames have them."""
    match relation:
        case Input():
            return frames[relation.name]
        case Named():
            return evaluate(relation.child, frames)
        case Select():
            return _select_rows(relation, evaluate(relation.child, frames))
        case Apply(operator=SelectRows()):
            return _rows_with_times(relation.inputs[0], frames)
        case Apply():
            return relation.operator(*[evaluate(child, frames) for child in relation.inputs])
        case _:
            raise AssertionError(relation)  # `plan` refuses a query that ends with these


def _rows_with_times(relation: Relation, frames: Mapping[str, DataFrame]) -> DataFrame:
    """The rows of a table that only selects. All rows of a frame are final. The table has no row without an event time."""
    source = relation.child if isinstance(relation, Select) else relation
    if not (isinstance(source, Input) and source.is_declared and source.times):  # the time of the ingest, or none is declared
        return evaluate(relation, frames)
    timed_rows = frames[source.name].where(F.col(quoted_name(source.times[0])).isNotNull())
    return evaluate(relation, {**frames, source.name: timed_rows})


def _select_rows(relation: Select, rows: DataFrame) -> DataFrame:
    filtered = rows if relation.where is None else rows.where(relation.where)
    engine_columns = [c for c in rows.columns if (c in (SEQ, ARRIVAL) or c.startswith(TEMPORARY)) and c not in relation.columns]
    items = [F.expr(item.sql).alias(item.name) for item in relation.items]
    return filtered.select(*items, *engine_columns)
