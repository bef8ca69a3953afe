"""Count windows in steps: windows depend on the order of arrival only, not on batches, and equal those of a backfill."""

import json
import random
from collections.abc import Iterator, Sequence
from typing import Any

from assets.contracts import DerivedAsset
from operators import Aggregate, CountEvictor, CountWindowAggregate, Deduplicate, ProcessCountWindow
from platform_defs.engine import Engine
from platform_defs.engine.inputs.identity import identity_of
from tests.conftest import MakeEngine
from tests.support.json_rows import json_rows_of
from tests.support.kills import run_and_die
from tests.support.small_sources import Event, law_violations, replay, source

AGGREGATES = {"n": "count(*)", "total": "sum(v)", "first": "min_by(v, struct(seq, arrival))"}
SMALL = "transform(filter(elements, e -> e.v < 6), e -> named_struct('v', e.v, 'n', size(elements), 'first', elements[0].v))"
ENDS = "if(v = 3, null, v % 3 = 0)"
CountWindow = CountWindowAggregate | ProcessCountWindow
OPERATORS: dict[str, CountWindow] = {
    "tumbling": CountWindowAggregate(by="k", size=3, aggregates=AGGREGATES),
    "sliding": CountWindowAggregate(by="k", size=4, slide=2, aggregates=AGGREGATES),
    "ended": CountWindowAggregate(by="k", ends_with=ENDS, aggregates=AGGREGATES, evictor=CountEvictor(2)),
    "processed": ProcessCountWindow(by="k", size=4, slide=3, rows=SMALL),
}
CHANGED: dict[str, CountWindow] = {
    "changed": ProcessCountWindow(by="k", size=2, rows=SMALL),
    "changed_ends": ProcessCountWindow(by="k", ends_with=ENDS, rows=SMALL, evictor=CountEvictor(3)),
}
"""Operators over the upserted table `last`, which has the newest row of each key and value. A newer row replaces the old one, and is then
the last row of its key."""
AT_ONCE = ("sliding", "ended", "processed", "changed_ends")
"""Operators with a second table, which is advanced only once, after all rows have arrived."""


def _engine(make: MakeEngine) -> Engine:
    names = {name: name for name in OPERATORS | CHANGED} | {f"{name}_at_once": name for name in AT_ONCE}
    tables = [DerivedAsset(name=n, inputs=("l",), operator=OPERATORS[of]) for n, of in names.items() if of in OPERATORS]
    last = DerivedAsset(name="last", inputs=("l",), operator=Deduplicate(by=("k", "v"), keep="last"))
    changed = [DerivedAsset(name=n, inputs=("last",), operator=CHANGED[of]) for n, of in names.items() if of in CHANGED]
    reader = DerivedAsset(name="reader", inputs=("changed",), operator=Aggregate(by="k", aggregates={"n": "count(*)", "total": "sum(v)"}))
    return make([source("l")], [*tables, last, *changed, reader])


def _advance(engine: Engine, cuts: list[int], events: list[Event]) -> None:
    """Advance the tables after each part of the rows, and the copies of `AT_ONCE` at the end. `cuts` has the positions of the parts.

    The first step of `sliding` and the second step of each table of `OPERATORS` are killed.
    """
    killed = {0: ["sliding"], 1: [*OPERATORS]}
    for step, (first, end) in enumerate(zip(cuts, [*cuts[1:], len(events)], strict=True)):
        replay(engine, [{"l": events[first:end]}])
        engine.advance("last")
        for name in (*OPERATORS, *CHANGED):
            if name in killed.get(step, ()):
                run_and_die(lambda name=name: engine.advance(name), "advance.after_changelog")
            engine.advance(name)
        engine.advance("reader")
    for name in AT_ONCE:
        engine.advance(f"{name}_at_once")


def _windows(values: Sequence[int], operator: CountWindow) -> Iterator[tuple[int, Sequence[int]]]:
    """The numbers of the windows of a key, and the values of their rows."""
    if operator.size is None:
        ends = [n for n, v in enumerate(values, 1) if v % 3 == 0 and v != 3]
        starts = [0, *ends]
    else:
        slide = operator.slide or operator.size
        ends = [*range(slide, len(values) + 1, slide)]
        starts = [max(0, end - operator.size) for end in ends]
    evicted = operator.evictor.rows if isinstance(operator.evictor, CountEvictor) else len(values)
    for number, (start, end) in enumerate(zip(starts, ends, strict=False), 1):
        yield number, values[start:end][-evicted:]


def _wanted(events: Sequence[Event], operator: CountWindow) -> list[tuple[Any, ...]]:
    wanted: list[tuple[Any, ...]] = []
    for key in ("a", "b", None):
        for number, inside in _windows([e.v for e in events if e.k == key], operator):
            if isinstance(operator, CountWindowAggregate):
                wanted.append((key, number, len(inside), sum(inside), inside[0]))
            else:
                small = [v for v in inside if v < 6]
                wanted += [(key, number, n, v, len(inside), inside[0]) for n, v in enumerate(small, 1)]
    return sorted(wanted, key=repr)


def _last_events(events: Sequence[Event]) -> list[Event]:
    """The rows of `last`, in the order of arrival."""
    last: dict[tuple[str | None, int], tuple[int, int]] = {}
    for position, event in enumerate(events):
        last[event.k, event.v] = max(last.get((event.k, event.v), (event.at, position)), (event.at, position))
    return [events[position] for position in sorted(position for _, position in last.values())]


def test_windows_depend_only_on_the_order_of_arrival(make_engine: MakeEngine) -> None:
    rng = random.Random(5)
    events = [Event(rng.choice(["a", "b", None]), rng.randrange(-3, 9), rng.randrange(10**7)) for _ in range(40)]
    engine = _engine(make_engine)
    _advance(engine, [0, 7, 25], events)  # the third step reads rows that were kept twice
    changes = {f"changes of {name}": engine.views.table(f"changelog/{name}").select("change") for name in (*OPERATORS, *CHANGED)}
    tables = json_rows_of({name: engine.views.table(name) for name in engine.assets} | changes)
    kinds = {name: {json.loads(row)["change"] for row in tables[f"changes of {name}"]} for name in (*OPERATORS, *CHANGED)}
    for name, operator in (OPERATORS | CHANGED).items():
        wanted = _wanted(_last_events(events) if name in CHANGED else events, operator)
        columns = [*operator.emits.key, *(AGGREGATES if isinstance(operator, CountWindowAggregate) else ("v", "n", "first"))]
        assert wanted, name
        assert _columns(tables[name], columns) == wanted, name
        assert name not in AT_ONCE or tables[name] == tables[f"{name}_at_once"], name
        assert law_violations(engine, name) == set(), name
        if name in OPERATORS:
            assert kinds[name] == {"+I"}, "a window never changes"
        else:
            assert kinds[name] >= {"+I", "+U", "-D"}, "the windows of a changed key are computed again, and their results replaced"
    values = {key: [v for k, _, _, v, *_ in _wanted(_last_events(events), CHANGED["changed"]) if k == key] for key in ("a", "b", None)}
    totals = sorted(((k, len(v), sum(v)) for k, v in values.items()), key=repr)
    assert _columns(tables["reader"], ["k", "n", "total"]) == totals


def _columns(rows: Sequence[str], columns: Sequence[str]) -> list[tuple[Any, ...]]:
    return sorted((tuple(json.loads(row)[c] for c in columns) for row in rows), key=repr)


def test_the_identity_leaves_out_parameters_with_default_values() -> None:
    counts = CountWindowAggregate(by="k", size=3, aggregates={"n": "count(*)"})
    identity = json.loads(identity_of(DerivedAsset(name="counts", inputs=("l",), operator=counts)))
    assert identity["parameters"] == {"aggregates": {"n": "count(*)"}, "by": ["k"], "size": 3}
