"""Leaderboards over an upserted table equal their operators over the whole log, whichever steps read the table's changelog."""

import json
import random
from collections import Counter
from collections.abc import Mapping
from datetime import date
from itertools import pairwise

import pytest
from deltalake import DeltaTable

from assets.contracts import DerivedAsset
from operators import Aggregate, TopN, fold
from operators.contract import Operator
from platform_defs.engine import Engine
from platform_defs.engine.inputs.span import Span
from platform_defs.engine.inputs.stored_rows import read_log
from tests.conftest import MakeEngine
from tests.support.json_rows import json_rows, json_rows_of, values_of
from tests.support.kills import run_and_die
from tests.support.small_sources import MINUTE, START, Event, replay, rows_of, source

COUNTS = Aggregate(by=("k", "v"), aggregates={"n": "count(*)"})
KEYED = {"change": "how", "unique_key": ("k", "v")}
TOPS: dict[str, tuple[Operator, str]] = {
    "most": (TopN(by="k", order_by="n DESC", rank_end=2, monotonic=True, **KEYED), "counts"),
    "most_without_rank": (TopN(by="k", order_by="n DESC", rank_end=2, with_rank=False, **KEYED), "counts"),
    "fewest": (TopN(order_by="n", rank_end=3, rank_start=2, **KEYED), "counts"),
    "second_of_the_first": (TopN(order_by="n DESC", rank_end=1, change="row_kind", unique_key=("k", "v")), "most_without_rank"),
}


def _batches(seed: int, parts: int) -> list[Mapping[str, list[Event]]]:
    rng = random.Random(seed)
    return [
        {"l": [Event(rng.choice(["a", "b", None]), rng.randrange(4), (9 * batch + n) * MINUTE) for n in range(7)]} for batch in range(parts)
    ]


@pytest.mark.parametrize("names", [["most", "fewest"], pytest.param([*TOPS], marks=pytest.mark.soak)], ids=len)
def test_leaderboards_in_steps_equal_those_of_the_whole_log_and_show_earlier_states(make_engine: MakeEngine, names: list[str]) -> None:
    """`most` merges changes, the others recompute changed keys. `most` reads one step at a time, the others read several."""
    tops = {name: TOPS[name] for name in names}
    assets = {"counts": DerivedAsset(name="counts", inputs=("l",), operator=COUNTS)}
    assets |= {name: DerivedAsset(name=name, inputs=(of,), operator=o) for name, (o, of) in tops.items()}
    assert [assets[n].operator.strategy_used for n in tops] == ["update", *["retract"] * (len(names) - 1)]
    engine = make_engine([source("l")], [*assets.values()])
    by_time: dict[int, list[str]] = {}
    points = ["advance.after_changelog", "advance.before_apply", "advance.before_changelog"][: len(names)]
    for part, (batch, point) in enumerate(zip(_batches(4, len(points)), points, strict=True)):
        replay(engine, [batch])
        engine.advance("counts")
        advanced = ["most"] if part == 0 else names
        for name in advanced:
            if point and name == "most":
                run_and_die(lambda name=name: engine.advance(name), point)
            engine.advance(name)
        by_time[engine.ledger.now()] = json_rows(engine.views.table("most"))
    log = read_log(engine.workspace, "l", engine.ledger.head).drop("event_time_raw")
    of_log = {"counts": COUNTS(log)}
    for name, (top, of) in tops.items():
        of_log[name] = top(of_log[of].selectExpr("*", f"'+I' AS {top.change}"))
    of_changelog = {
        name: fold(engine.views.table(f"changelog/{name}").drop("changed_at"), key=top.emits.key, order="step")
        for name, (top, _) in tops.items()
    }
    found = json_rows_of(
        {name: engine.views.table(name) for name in of_log}
        | {f"{name} of the log": rows for name, rows in of_log.items()}
        | {f"{name} of its changelog": rows for name, rows in of_changelog.items()}
    )
    assert {name: found[name] for name in of_log} == {name: found[f"{name} of the log"] for name in of_log}
    assert {name: found[name] for name in tops} == {name: found[f"{name} of its changelog"] for name in tops}
    assert [name for name in tops if engine.advance(name)] == []
    assert [engine.pending.progress(n).step for n in tops] == [len(points), *[len(points) - 1] * (len(names) - 1)]
    _check_earlier_states(engine, by_time)
    _check_metrics(engine, 7 * len(points))
    _check_accounts_and_rebuild(engine, 7 * len(points))


def _check_earlier_states(engine: Engine, by_time: dict[int, list[str]]) -> None:
    """Check the table as of each batch and up to an event time, and the kinds of its changes."""
    columns, first, midway = engine.views.table("most").columns, min(by_time), START + 14 * MINUTE
    log = read_log(engine.workspace, "l", engine.ledger.head, Span(None, midway)).drop("event_time_raw")
    as_of = {f"as of {time}": engine.views.as_of("most", time).select(*columns) for time in (first - 1, *by_time)}
    at_midway = {
        "midway": engine.views.of_event_times_to("most", midway),
        "midway of the log": TOPS["most"][0](COUNTS(log).selectExpr("*", "'+I' AS how")),
    }
    found = json_rows_of(as_of | at_midway | {"kinds": engine.views.table("changelog/most").select("change")})
    assert {time: found[f"as of {time}"] for time in by_time} == by_time
    assert found[f"as of {first - 1}"] == []
    assert found["midway"] == found["midway of the log"] != by_time[max(by_time)]
    changes = Counter(json.loads(row)["change"] for row in found["kinds"])
    assert set(changes) == {"+I", "-U", "+U"}
    states = [Counter[str](), *[Counter(by_time[time]) for time in sorted(by_time)]]
    assert changes["-U"] == sum((before - after).total() for before, after in pairwise(states))
    assert changes["+I"] + changes["+U"] == sum((after - before).total() for before, after in pairwise(states))


def _check_metrics(engine: Engine, rows_in: int) -> None:
    found = values_of({"changes": engine.views.table("changelog/counts").select("change"), "most": engine.views.table("most").select("k")})
    changes, counted = len(found["changes"]), engine.views.metrics("counts")
    assert {n: counted[n] for n in ("rows_in", "changes_out", "changes_per_row")} == {
        "rows_in": rows_in,
        "changes_out": changes,
        "changes_per_row": round(changes / rows_in, 3),
    }
    most = engine.views.metrics("most")
    assert (most["partitions"], most["rows"], most["invalid_rank_ends"]) == (len({*found["most"]}), len(found["most"]), 0)
    assert most["rows_in"] == sum(change != "-U" for (change,) in found["changes"])


def _check_accounts_and_rebuild(engine: Engine, rows_in: int) -> None:
    assert {(a.matched, a.pending, a.holds) for a in engine.accounts.days("counts")} == {(rows_in, 0, True)}
    assert engine.accounts.days("most") == []
    held = rows_of(engine.views.table("most"))
    DeltaTable(engine.lake.path("most")).delete("k = 'a' AND rank = 1")
    [violation] = engine.accounts.days("most")
    assert (violation.side, violation.missing, violation.extra, violation.holds) == ("counts", 1, 0, False)
    rebuilt = engine.rebuild_days("most", date(2026, 3, 1), date(2026, 3, 1))
    assert (rebuilt.missing, rebuilt.extra) == (1, 0)
    assert rows_of(engine.views.table("most")) == held
    again = engine.rebuild_days("most")
    assert (again.missing, again.extra) == (0, 0)
