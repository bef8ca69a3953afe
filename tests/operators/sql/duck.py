"""Plans as SQL of DuckDB, written from the definitions of the operators: a second reading of what a plan means, without Spark."""

from operators import Aggregate, AsOfJoin, Deduplicate, IntervalJoin, TopN
from operators.sql.relations import Apply, Input, Named, Relation, Select


def sql_of(relation: Relation) -> str:
    """The rows of a plan."""
    match relation:
        case Input():
            return f"SELECT * FROM {relation.name}"
        case Named():
            return sql_of(relation.child)
        case Select():
            items = ", ".join(f'{item.sql} AS "{item.name}"' for item in relation.items)
            where = f" WHERE {relation.where}" if relation.where else ""
            return f"SELECT {items} FROM ({sql_of(relation.child)}){where}"
        case Apply():
            return _applied(relation)
        case _:
            raise AssertionError(relation)


def _applied(relation: Apply) -> str:
    operator, inputs = relation.operator, [sql_of(one) for one in relation.inputs]
    match operator:
        case IntervalJoin():
            within = f"epoch_ms({{right}}) - epoch_ms({{left}}) BETWEEN {operator.interval.lower} AND {operator.interval.upper}"
            others = f" AND ({operator.residual})" if operator.residual else ""
            return _joined(relation, operator, f"{operator.how} JOIN", within + others, *inputs)
        case AsOfJoin():
            return _joined(relation, operator, f"ASOF {operator.how} JOIN", "{left} >= {right}", *inputs)
        case Aggregate():
            values = ", ".join(f'{sql} AS "{name}"' for name, sql in operator.aggregates.items())
            return f"SELECT {', '.join(operator.key)}, {values} FROM ({inputs[0]}) GROUP BY ALL"
        case TopN():
            order = [f"{o.column} {'DESC' if o.descending else 'ASC'} NULLS {'FIRST' if o.nulls_first else 'LAST'}" for o in operator.order]
            ranked = _numbered(inputs[0], operator.partition, order)
            ranks = f"rank BETWEEN {operator.rank_start} AND {operator.rank_end}"
            return f"SELECT * {'' if operator.with_rank else 'EXCLUDE (rank)'} FROM ({ranked}) WHERE {ranks}"
        case Deduplicate():
            order = [f"{operator.time} {'DESC' if operator.keep == 'last' else 'ASC'}"]
            return f"SELECT * EXCLUDE (rank) FROM ({_numbered(inputs[0], operator.key, order)}) WHERE rank = 1"
        case _:
            raise AssertionError(operator)


def _numbered(rows: str, by: tuple[str, ...], order: list[str]) -> str:
    partition = f"PARTITION BY {', '.join(by)} " if by else ""
    return f"SELECT *, row_number() OVER ({partition}ORDER BY {', '.join(order)}) AS rank FROM ({rows})"


def _joined(relation: Apply, join: IntervalJoin | AsOfJoin, kind: str, condition: str, left: str, right: str) -> str:
    """The join, with the columns of both sides by their names in the result: a plan gives each column a name of its own."""
    keys = ", ".join(f'"{k}" AS "right {k}"' for k in join.names.key)
    equal = " AND ".join(f'"{k}" = "right {k}"' for k in join.names.key)
    time = f'"right {join.right_time}"' if join.right_time in join.names.key else f'"{join.right_time}"'
    both = join.how not in ("semi", "anti")
    own = [c for one in (relation.inputs if both else relation.inputs[:1]) for c in one.columns if c not in join.names.key]
    columns = [*(f'COALESCE("{k}", "right {k}") AS "{k}"' if both else f'"{k}"' for k in join.names.key), *(f'"{c}"' for c in own)]
    renamed = f"SELECT {keys}, * EXCLUDE ({', '.join(join.names.key)}) FROM ({right})"
    matches = condition.format(left=f'"{join.left_time}"', right=time)
    return f"SELECT {', '.join(columns)} FROM ({left}) {kind} ({renamed}) ON {equal} AND {matches}"
