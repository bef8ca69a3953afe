"""Aggregates and deduplicated rows with a time to live: after each batch the table equals a naive model, and its account holds.

Over a table of final results, which late rows correct, the model knows only the rows of that table, and how far it is closed.
"""

import random
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from assets.contracts import DerivedAsset
from assets.preparation import Preparation
from operators import Aggregate, Deduplicate, TopN, fold
from operators.contract import Operator
from platform_defs.engine import Engine
from platform_defs.engine.inputs.stored_rows import read_log
from platform_defs.engine.inputs.timelines import operator_timeline
from tests.conftest import MakeEngine
from tests.laws.test_time_to_live import BATCHES, TTL
from tests.support.clock import Clock
from tests.support.json_rows import values_of
from tests.support.small_sources import MINUTE, START, Event, final_before, join, replay, source

Row = tuple[str | None, int, int, tuple[int, int]]
"""A row of the log: its key, its value, its time in ms, and its position."""
Rows = dict[str, list[tuple[Any, ...]]]
"""The rows of each table, by its name."""
SUMS = {"n": "count(*)", "total": "sum(v)"}
TABLES: dict[str, Operator] = {
    "kept": Aggregate(by="k", aggregates=SUMS, ttl=TTL),
    "removed": Aggregate(by="k", aggregates=SUMS, ttl=TTL, after_ttl="retract"),
    "idle": Aggregate(by="k", aggregates=SUMS, ttl=TTL, after_ttl="retract", ttl_by="processing"),
    "last": Deduplicate(by="k", keep="last", ttl=TTL, after_ttl="retract"),
}


def _log(engine: Engine) -> DataFrame:
    return read_log(engine.workspace, "l", engine.ledger.head).select("k", "v", F.unix_millis("event_time").alias("at"), "seq", "arrival")


def _rows_within_ttl(rows: Sequence[Row], time: Callable[[Row], int], now: int | None) -> dict[str | None, list[Row]]:
    """By key, its rows since its last gap of more than the TTL; a key that expired before `now` is left out."""
    by_key, found = defaultdict[str | None, list[Row]](list), dict[str | None, list[Row]]()
    for row in rows:
        by_key[row[0]].append(row)
    for key, of_key in by_key.items():
        period: list[Row] = []
        for row in sorted(of_key, key=time):
            period = [*period, row] if period and time(row) - time(period[-1]) <= TTL else [row]
        if now is None or time(period[-1]) >= now - TTL:
            found[key] = period
    return found


def _summed(within_ttl: dict[str | None, list[Row]]) -> list[tuple[Any, ...]]:
    return sorted(((k, len(rows), sum(row[1] for row in rows)) for k, rows in within_ttl.items()), key=repr)


def test_after_each_batch_each_table_equals_the_model(make_engine: MakeEngine, clock: Clock) -> None:
    engine = make_engine([source("l")], [DerivedAsset(name=n, inputs=("l",), operator=o) for n, o in TABLES.items()])
    expired = 0
    for batch in BATCHES:
        clock.pass_ms(6 * MINUTE)
        replay(engine, [{"l": batch}])
        for name in TABLES:
            engine.advance(name)
        columns = {name: ["v"] if name == "last" else [*SUMS] for name in TABLES}
        found = values_of({name: engine.views.table(name).select("k", *of) for name, of in columns.items()} | {"log": _log(engine)})
        log: list[Row] = [(k, v, at, (seq, arrival)) for k, v, at, seq, arrival in found.pop("log")]
        mark = operator_timeline(engine.workspace, engine.assets["kept"]).after[-1]
        times = {batch[0].seq: batch[0].ingested_at for batch in engine.ledger.batches()}
        in_event_time = _rows_within_ttl(log, lambda r: r[2], mark)
        last = sorted(((k, max(rows, key=lambda r: r[2:])[1]) for k, rows in in_event_time.items()), key=repr)
        wanted = {
            "kept": _summed(_rows_within_ttl(log, lambda r: r[2], None)),
            "removed": _summed(in_event_time),
            "idle": _summed(_rows_within_ttl(log, lambda r, times=times: times[r[3][0]], engine.ledger.batches()[-1][0].ingested_at)),
            "last": last,
        }
        assert found == wanted, batch
        expired += len(wanted["kept"]) - len(wanted["removed"])
    assert expired > 0
    changelogs = {name: engine.views.table(f"changelog/{name}").drop("changed_at") for name in TABLES}
    frames = {f"folded {name}": fold(changelogs[name], key=operator.emits.key, order="step") for name, operator in TABLES.items()}
    stored = {name: engine.views.table(name) for name in TABLES}
    assert {name: [*table.columns] for name, table in stored.items()} == {name: frames[f"folded {name}"].columns for name in TABLES}
    found = values_of(frames | stored)
    for name in TABLES:
        assert found[f"folded {name}"] == found[name] != [], name
        assert all(account.holds for account in engine.accounts.days(name)), name
    clock.pass_ms(30 * MINUTE)  # without new rows, the watermark removes the keys of `removed` and `last`, and the clock the keys of `idle`
    engine.ingestion.control_batches.watermark({"l": START + 80 * MINUTE})
    assert engine.pending.upserted_tables() == ["removed", "idle", "last"]
    for name in ("removed", "idle", "last"):
        engine.advance(name)
        assert all(account.holds for account in engine.accounts.days(name)), name
    remaining = values_of({name: engine.views.table(name).select("k") for name in TABLES})
    keys = sorted(((key,) for key in {event.k for batch in BATCHES for event in batch}), key=repr)
    assert remaining == {"kept": keys, "removed": [], "idle": [], "last": []}


PAIRS = join(how="left", allowed_lateness="2 hours")
OF_PAIRS: dict[str, Operator] = {
    "sums": Aggregate(by="k", aggregates={"n": "count(*)", "total": "sum(left_v)"}, ttl=TTL),
    "removed_sums": Aggregate(by="k", aggregates={"n": "count(*)", "total": "sum(left_v)"}, ttl=TTL, after_ttl="retract"),
    "alone": Aggregate(by="k", aggregates={"n": "count(*)", "kinds": "count(DISTINCT left_v)"}, ttl=TTL, after_ttl="retract"),
    "last_pair": Deduplicate(by="k", keep="last", ttl=TTL, after_ttl="retract"),
    "top_pairs": TopN(by="k", order_by="left_v DESC", rank_end=2, ttl=TTL, after_ttl="retract"),
}
ALONE = {"pairs": Preparation(where="right_v IS NULL")}
"""Without the left rows that are matched: a late right row removes a row, and with it the key, or the end of a gap."""
VALUES = {"alone": ("n", "kinds"), "last_pair": ("at",), "top_pairs": ("left_v", "rank")}
"""What is compared of each table, in addition to the key."""


def _batches_of_pairs(seed: int, cases: int) -> list[Mapping[str, list[Event]]]:
    """Batches of both sides of a join, with rows up to half an hour behind the newest."""
    rng = random.Random(seed)

    def events(batch: int, most: int) -> list[Event]:
        keys = [*(f"k{number}" for number in range(cases)), None]
        times = [(k, max(0, 20 * batch + rng.randrange(-25, 5))) for k in keys for _ in range(rng.randint(0, most))]
        return [Event(k, rng.randrange(4), minute * MINUTE) for k, minute in times]

    return [{"l": events(batch, 2), "r": events(batch, 1)} for batch in range(3)]


def _engine_of_pairs(make_engine: MakeEngine) -> Engine:
    prepared = {"alone": ALONE}
    tables = [DerivedAsset(name=n, inputs=("pairs",), operator=o, prepare=prepared.get(n, {})) for n, o in OF_PAIRS.items()]
    return make_engine([source("l"), source("r")], [PAIRS, *tables])


def _model_of_pairs(engine: Engine, pairs: Sequence[tuple[Any, ...]]) -> Rows:
    """The rows of each table, from the rows of the pairs and the time up to which none is missing."""
    closed_to = engine.pending.progress("pairs").closed_to
    now = None if closed_to is None else closed_to - PAIRS.operator.reads.watermark_delay
    rows = [(k, left_v, at, (0, 0)) for k, left_v, _, at, *_ in pairs]
    alone = [(k, left_v, at, (0, 0)) for k, left_v, right_v, at, *_ in pairs if right_v is None]
    kept, removed = _rows_within_ttl(rows, lambda r: r[2], None), _rows_within_ttl(rows, lambda r: r[2], now)
    best = {k: sorted((row[1] for row in of_key), reverse=True)[:2] for k, of_key in removed.items()}
    found: Rows = {
        "sums": _summed(kept),
        "removed_sums": _summed(removed),
        "alone": [(k, len(of), len({row[1] for row in of})) for k, of in _rows_within_ttl(alone, lambda r: r[2], now).items()],
        "last_pair": [(k, of_key[-1][2]) for k, of_key in removed.items()],
        "top_pairs": [(k, value, rank) for k, values in best.items() for rank, value in enumerate(values, 1)],
    }
    return {name: sorted(rows, key=repr) for name, rows in found.items()}


def _read(engine: Engine) -> tuple[Rows, list[tuple[Any, ...]]]:
    """The rows of each table, and the pairs with the positions of their left rows, read by one query."""
    frames = {name: engine.views.table(name) for name in OF_PAIRS}
    frames["last_pair"] = frames["last_pair"].withColumn("at", F.unix_millis("event_time"))
    tables = {name: rows.select("k", *VALUES.get(name, ("n", "total"))) for name, rows in frames.items()}
    at = F.unix_millis("result_time").alias("at")
    pairs = engine.views.table("pairs").select("k", "left_v", "right_v", at, "left_seq", "left_arrival")
    found = values_of(tables | {"pairs": pairs})
    return found, found.pop("pairs")


def _advance_readers(engine: Engine) -> None:
    for name in OF_PAIRS:
        engine.advance(name)


@pytest.mark.parametrize(("seed", "cases"), [(4, 250), pytest.param(11, 1_000, marks=pytest.mark.soak)], ids=["250 cases", "1,000 cases"])
def test_over_final_results_each_table_equals_the_model(make_engine: MakeEngine, seed: int, cases: int) -> None:
    """In steps, with corrections of late rows and of rebuilds."""
    engine, batches, expired = _engine_of_pairs(make_engine), _batches_of_pairs(seed, cases), 0
    unmatched: list[set[tuple[Any, ...]]] = []
    for number, batch in enumerate(batches):
        replay(engine, [batch])
        # after the second batch, the watermark of the sources is ahead of the table: the keys of rows that it does not have yet must stay
        engine.advance("pairs", until=START + 20 * MINUTE if number == 1 else None)
        if number == 2:
            _rebuild_damaged_tables(engine)
        _advance_readers(engine)
        found, pairs = _read(engine)
        unmatched.append({(seq, arrival) for _, _, right_v, _, seq, arrival in pairs if right_v is None})
        wanted = _model_of_pairs(engine, pairs)
        assert found == wanted, number
        expired += len(wanted["sums"]) - len(wanted["removed_sums"])
    assert expired > cases / 4
    assert unmatched[1] - unmatched[2], "late right rows of the last batch must remove rows that the readers have"
    assert [name for name in OF_PAIRS if not all(account.holds for account in engine.accounts.days(name))] == []
    assert [name for name in OF_PAIRS if engine.advance(name)] == []
    engine.ingestion.control_batches.watermark(dict.fromkeys(("l", "r"), START + 200 * MINUTE))
    engine.advance("pairs")
    assert {*engine.pending.upserted_tables()} == {*OF_PAIRS}
    _advance_readers(engine)
    assert [name for name, rows in _read(engine)[0].items() if rows] == ["sums"]


def _rebuild_damaged_tables(engine: Engine) -> None:
    """Damage and rebuild the pairs and one of their readers. The readers' next steps read these corrections and those of late rows."""
    assert engine.pending.progress("pairs").corrected
    correct = values_of({"pairs": engine.views.table("pairs")})
    # late rows and the rebuild correct different ranges
    DeltaTable(engine.lake.path("pairs")).delete(f"k LIKE '%1' AND {final_before(START + 15 * MINUTE)}")
    DeltaTable(engine.lake.path("top_pairs")).delete("k LIKE '%2'")
    assert engine.rebuild_days("pairs").missing > 0
    assert engine.rebuild_days("top_pairs").missing > 0
    assert values_of({"pairs": engine.views.table("pairs")}) == correct
