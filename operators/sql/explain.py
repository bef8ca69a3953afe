"""What EXPLAIN prints: the operators of a query, what each reads, and what bounds the state."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from operators.aggregate import Aggregate
from operators.consecutive import Consecutive
from operators.contract import Operator
from operators.sql.durations import words
from operators.sql.relations import Apply, Input, Named, Ranked, Relation, Select, Windowed, upserts
from operators.steps import ByKey, ByTimeRange, Emits, NewRows
from operators.top_n import TopN

_INDENT = "  "


def explain(relation: Relation) -> str:
    """The operators of a query, the outermost first, with those that it reads below it.

    >>> from operators.sql.plan import plan
    >>> query = "SELECT k, COUNT(*) AS n FROM clicks GROUP BY k"
    >>> print(explain(plan(query, {"clicks": Input("clicks", ("k", "v"))}).plans[0].relation))
    Aggregate(by=('k',), aggregates={'n': 'COUNT(*)'})
      strategy: merges the new rows into the results of their keys
      reads: the new rows of each input
      state: one row of each k in the table itself, kept for ever; grows with the number of keys, not of rows
      rows: clicks
    """
    return "\n".join(_lines(relation, ""))


def _lines(relation: Relation, name: str) -> Iterator[str]:
    label = f"{name}: " if name else ""
    match relation:
        case Input():
            yield f"{label}{relation.name}"
        case Named():
            yield f"{label}{relation.name}, which is"
            yield from _indent(_lines(relation.child, ""))
        case Select():
            yield from _selection(relation, name)
        case Apply():
            yield f"{label}{describe_parameters(relation.operator)}"
            yield from _indent(_facts(relation.operator))
            for input_name, child in zip(relation.operator.inputs, relation.inputs, strict=True):
                yield from _indent(_lines(child, input_name))
        case Windowed():
            yield f"{label}in {describe_parameters(relation.window)} by {relation.time}"
            yield from _indent(_lines(relation.child, "rows"))
        case Ranked():
            yield f"{label}{relation.function} by {', '.join(relation.by) or 'nothing'} ordered by {', '.join(relation.order)}"
            yield from _indent(_lines(relation.child, "rows"))


def _selection(relation: Select, name: str) -> Iterator[str]:
    """A selection: its condition and its computed columns, before the relation that it selects from."""
    first, *lines = _lines(relation.child, name)
    column_texts = [i.name if i.column == i.name else f"{i.sql} AS {i.name}" for i in relation.items]
    has_changes = any(i.column != i.name for i in relation.items)
    parts = [f"select {', '.join(column_texts)}"] if has_changes else []
    if relation.where:
        reads = "; a step reads every row of the keys of its new rows" if isinstance(relation.child, Apply) and upserts(relation) else ""
        parts += [f"where {relation.where}{reads}"]
    yield first
    yield from _indent(iter(parts))
    yield from lines


def _indent(lines: Iterator[str]) -> Iterator[str]:
    return (f"{_INDENT}{line}" for line in lines)


def describe_parameters(value: Any) -> str:
    """A specification with the parameters that differ from their defaults."""
    if not dataclasses.is_dataclass(value):
        return repr(value)
    parameters = [
        f"{f.name}={describe_parameters(getattr(value, f.name))}"
        for f in dataclasses.fields(value)
        if f.default is dataclasses.MISSING or getattr(value, f.name) != f.default
    ]
    return f"{type(value).__name__}({', '.join(parameters)})"


def _facts(operator: Operator) -> Iterator[str]:
    yield from (f"strategy: {line}" if n == 0 else line for n, line in enumerate(_strategy(operator)))
    reads = operator.reads
    if isinstance(reads, ByTimeRange):
        lookbacks = [reads.lookback_of(index) for index in range(len(operator.inputs))]
        lookback_texts = [f"{name} {'all of it' if ms is None else words(ms)}" for name, ms in zip(operator.inputs, lookbacks, strict=True)]
        yield f"reads: the rows of each closed range, and before it, by input: {', '.join(lookback_texts)}"
        unbounded = [name for name, ms in zip(operator.inputs, lookbacks, strict=True) if ms is None]
        longest = words(max(ms for ms in lookbacks if ms is not None) + reads.lateness)
        growth_of_versions = f", and {' and '.join(unbounded)} whole: it grows with the number of versions"
        growth = growth_of_versions if unbounded else ", however many keys there are"
        yield f"state: none is kept; a step reads at most {longest} before the watermark again{growth}"
    elif isinstance(reads, NewRows):
        yield "reads: the new rows of each input"
        yield f"state: {_state(operator)}"
    elif isinstance(reads, ByKey):
        yield f"reads: every row of the same {', '.join(reads.key) or 'input'} as a new row"
        ttl = f" that had a row in the last {words(reads.ttl)}" if reads.ttl else ""
        yield f"state: {_state(operator)}; a step reads the keys of its new rows{ttl} again"


def _state(operator: Operator) -> str:
    emits: Emits = operator.emits
    if isinstance(operator, TopN):
        partition_text = f"each {', '.join(operator.partition)}" if operator.partition else "the one partition"
        last = operator.rank_end if isinstance(operator.rank_end, int) else f"{operator.rank_end} (a column)"
        return f"the first {last} rows of {partition_text} in the table itself"
    return f"one row of each {', '.join(emits.key)} in the table itself, kept for ever; grows with the number of keys, not of rows"


def _strategy(operator: Operator) -> Sequence[str]:
    if isinstance(operator, TopN):
        return operator.explain().splitlines()
    if isinstance(operator, Consecutive):
        return ["one step computes both operators, without a table between them"]
    if isinstance(operator, Aggregate):
        text = "merges the new rows into the results of their keys"
        return [text if isinstance(operator.reads, NewRows) else "computes the keys of new rows from all of their rows"]
    kinds: Mapping[type, str] = {
        ByTimeRange: "computes the results that became final since the step before, once",
        NewRows: "merges the new rows into the table",
        ByKey: "computes the keys of new rows again",
    }
    return [kinds[cast(type, type(operator.reads))]]
