"""What EXPLAIN prints: the operators of a query, what each reads, and what bounds the state."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from operators.aggregate import Aggregate
from operators.consecutive import Consecutive
from operators.contract import Operator
from operators.sql.durations import words
from operators.sql.relations import Apply, Input, Named, Ranked, Relation, Select, Windowed
from operators.steps import ByKey, ByTimeRange, Emits, NewRows, Reads
from operators.timing import FOREVER
from operators.top_n import TopN

_INDENT = "  "


def explain(relation: Relation, table: str = "", operators: Mapping[str, Operator] | None = None) -> str:
    """The operators of a query, the outermost first. Below each operator are those that it reads.

    Args:
        relation: the query.
        table: the table into which it inserts; empty for a query.
        operators: a pipeline's operators, by table; None for a query. They can have parameters
            that follow from the pipeline and are not in the query.

    >>> from operators.sql.plan import plan
    >>> query = "SELECT k, COUNT(*) AS n FROM clicks GROUP BY k"
    >>> print(explain(plan(query, {"clicks": Input("clicks", ("k", "v"))}).plans[0].relation))
    Aggregate(by=('k',), aggregates={'n': 'COUNT(*)'})
      strategy: merges the new rows into the results of their keys
      reads: the new rows of each input
      state: one row of each k in the table itself, kept for ever; grows with the number of keys, not of rows
      rows: clicks
    """
    return "\n".join(_lines(relation, "", table, operators or {}))


def _lines(relation: Relation, name: str, table: str, operators: Mapping[str, Operator]) -> Iterator[str]:
    label = f"{name}: " if name else ""
    match relation:
        case Input():
            yield f"{label}{relation.name}"
        case Named():
            yield f"{label}{relation.name}, which is"
            yield from _indent(_lines(relation.child, "", relation.name, operators))
        case Select():
            yield from _selection(relation, name, table, operators)
        case Apply():
            yield from _application(relation, name, table, operators, is_filtered=False)
        case Windowed():
            yield f"{label}in {describe_parameters(relation.window)} by {relation.time}"
            yield from _indent(_lines(relation.child, "rows", "", operators))
        case Ranked():
            yield f"{label}{relation.function} by {', '.join(relation.by) or 'nothing'} ordered by {', '.join(relation.order)}"
            yield from _indent(_lines(relation.child, "rows", "", operators))


def _application(relation: Apply, name: str, table: str, operators: Mapping[str, Operator], *, is_filtered: bool) -> Iterator[str]:
    """An operator with its facts, and its inputs.

    Args:
        relation: the operator and its inputs.
        name: the name of the input of another operator that reads it; empty if none does.
        table: see `explain`.
        operators: see `explain`.
        is_filtered: whether a condition selects some of its results.
    """
    yield f"{name and f'{name}: '}{describe_parameters(relation.operator)}"
    are_sources = [_is_source(child) for child in relation.inputs]
    yield from _indent(_facts(operators.get(table, relation.operator), are_sources, is_filtered=is_filtered))
    for input_name, child in zip(relation.operator.inputs, relation.inputs, strict=True):
        yield from _indent(_lines(child, input_name, f"{table}_{input_name}", operators))


def _selection(relation: Select, name: str, table: str, operators: Mapping[str, Operator]) -> Iterator[str]:
    """A selection: its condition and its computed columns, before the relation that it selects from."""
    child = relation.child
    if isinstance(child, Apply):
        first, *lines = _application(child, name, table, operators, is_filtered=relation.where is not None)
    else:
        first, *lines = _lines(child, name, table, operators)
    column_texts = [i.name if i.column == i.name else f"{i.sql} AS {i.name}" for i in relation.items]
    has_changes = any(i.column != i.name for i in relation.items)
    parts = [f"select {', '.join(column_texts)}"] if has_changes else []
    parts += [f"where {relation.where}"] if relation.where else []
    yield first
    yield from _indent(iter(parts))
    yield from lines


def _indent(lines: Iterator[str]) -> Iterator[str]:
    return (f"{_INDENT}{line}" for line in lines)


def describe_parameters(value: Any) -> str:
    """A specification as text, with the parameters that differ from their defaults."""
    if not dataclasses.is_dataclass(value):
        return repr(value)
    parameters = [
        f"{f.name}={describe_parameters(getattr(value, f.name))}"
        for f in dataclasses.fields(value)
        if f.default is dataclasses.MISSING or getattr(value, f.name) != f.default
    ]
    return f"{type(value).__name__}({', '.join(parameters)})"


def _is_source(relation: Relation) -> bool:
    """Whether a relation reads an event log. The engine can keep those rows of a log that later steps need."""
    relation = relation.child if isinstance(relation, Select) else relation
    return isinstance(relation, Input)


def _facts(operator: Operator, are_sources: Sequence[bool], *, is_filtered: bool) -> Iterator[str]:
    """The strategy of an operator, what a step reads, and what bounds the state.

    Args:
        operator: the operator.
        are_sources: for each input, whether it is a source.
        is_filtered: whether a condition selects some of its results.
    """
    reads, state = operator.reads, _state(operator, is_filtered=is_filtered)
    reads_kept_rows = isinstance(reads, ByKey) and reads.keeps is not None and all(are_sources)
    strategy = _strategy(operator, reads_kept_rows=reads_kept_rows)
    if is_filtered and isinstance(reads, NewRows):
        reads = reads.recomputing(operator.emits.key)
        strategy = [_recomputing(operator, reads.key)]
    yield from (f"strategy: {line}" if n == 0 else line for n, line in enumerate(strategy))
    if reads.closes_ranges:
        yield from _facts_of_ranges(operator, reads, are_sources)
    elif reads.merges_rows:
        yield "reads: the new rows of each input"
        yield f"state: {state}"
    elif isinstance(reads, ByKey):
        keys = ", ".join(reads.key) or "input"
        if reads.keeps and reads_kept_rows:
            limit = f" for {words(reads.keeps.ttl)} after the newest row of their key" if reads.keeps.ttl else ""
            yield f"reads: the new rows, and the kept rows of the same {keys}"
            yield f"state: {state}, and in a table of its own the rows that later steps may need{limit}"
            return
        yield f"reads: every row of the same {keys} as a new row"
        ttl = f" that had a row in the last {words(reads.ttl)}" if reads.ttl else ""
        yield f"state: {state}; a step reads the keys of its new rows{ttl} again"


def _facts_of_ranges(operator: Operator, reads: Reads, are_sources: Sequence[bool]) -> Iterator[str]:
    """What a step of an operator over closed ranges reads, and what bounds the state."""
    lookbacks = {name: reads.lookback_of(index) for index, name in enumerate(operator.inputs)}
    has_lookback = any(ms is None or ms for ms in lookbacks.values())
    if not has_lookback and not reads.lateness:
        yield "reads: the rows of each closed range"
        yield "state: none is kept; a step reads no row again"
        return
    is_kept = {name: is_source and lookbacks[name] is None for name, is_source in zip(operator.inputs, are_sources, strict=True)}
    texts = {name: "the newest version of each key" if is_kept[name] else "all of it" for name, ms in lookbacks.items() if ms is None}
    texts |= {name: words(ms) for name, ms in lookbacks.items() if ms is not None}
    before = f", and before it, by input: {', '.join(f'{name} {texts[name]}' for name in lookbacks)}" if has_lookback else ""
    yield f"reads: the rows of each closed range{before}"
    is_unbounded = reads.lateness >= FOREVER
    longest = max((ms for ms in lookbacks.values() if ms is not None), default=0) + (0 if is_unbounded else reads.lateness)
    or_late = " or its oldest late row" if is_unbounded else ""
    again = f"a step reads at most {words(longest)} before the watermark{or_late} again" if longest or is_unbounded else ""
    whole = [name for name, ms in lookbacks.items() if ms is None and not is_kept[name]]
    if whole:
        all_rows = f"all of {' and '.join(whole)}: what it reads grows with the number of versions"
        yield f"state: none is kept; {f'{again}, and {all_rows}' if again else f'a step reads {all_rows}'}"
    elif any(is_kept.values()):
        kept = " and ".join(name for name in lookbacks if is_kept[name])
        grows = f"state: the newest version of each key of {kept}, in a table of its own, which grows with the number of keys"
        yield f"{grows}; {again}" if again else grows
    else:
        yield f"state: none is kept; {again}, however many keys there are"


def _recomputing(operator: Operator, key: Sequence[str]) -> str:
    """The strategy of an operator that cannot merge new rows into its results, because the table does not have them all."""
    rows = ("partitions" if isinstance(operator, TopN) else "keys") if key else "result"
    return f"computes the {rows} of new rows from all of their rows, since the condition leaves results out of the table"


def _state(operator: Operator, *, is_filtered: bool) -> str:
    """The rows in an upserted table."""
    emits: Emits = operator.emits
    ttl = operator.reads.ttl  # after which rows are removed from the table
    if isinstance(operator, TopN):
        partition_text = f"each {', '.join(operator.partition)}" if operator.partition else "the one partition"
        last = operator.rank_end if isinstance(operator.rank_end, int) else f"{operator.rank_end} (a column)"
        rows = f"the first {last} rows of {partition_text} in the table itself{', if the condition holds for them' if is_filtered else ''}"
        return rows if ttl is None else f"{rows}, until {words(ttl)} after the newest row of the partition"
    row = f"one row of each {', '.join(emits.key)} in the table itself{', if the condition holds for it' if is_filtered else ''}"
    end = "kept for ever" if ttl is None else f"until {words(ttl)} after the newest row of the key"
    return f"{row}, {end}; grows with the number of keys, not of rows"


def _strategy(operator: Operator, *, reads_kept_rows: bool) -> Sequence[str]:
    if isinstance(operator, TopN):
        return operator.explain().splitlines()
    if isinstance(operator, Consecutive):
        return ["one step computes both operators, without a table between them"]
    if isinstance(operator, Aggregate):
        if operator.reads.merges_rows:
            return ["merges the new rows into the results of their keys"]
        return [f"computes the keys of new rows from {'these and the kept rows' if reads_kept_rows else 'all of their rows'}"]
    kinds: Mapping[type, str] = {
        ByTimeRange: "computes the results that became final since the step before, once",
        NewRows: "merges the new rows into the table",
        ByKey: "computes the keys of new rows again",
    }
    return [kinds[cast(type, type(operator.reads))]]
