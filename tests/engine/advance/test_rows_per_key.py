"""Keys with very many rows: a step over many rows detects such keys from a part of its time range, and joins in time buckets."""

from collections.abc import Callable

import pytest

from assets.contracts import DerivedAsset
from operators import ClosedRange, Deduplicate, IntervalJoin
from platform_defs.engine.advance import closed_ranges, rows_per_key
from platform_defs.engine.advance.step_size import rows_of_range
from tests.conftest import MakeEngine
from tests.engine.source_batches import source_batch
from tests.support.json_rows import values_of
from tests.support.memory_ledger import memory_ledger
from tests.support.small_sources import MINUTE, START, Event, join, replay, source

NUMBERS = {kind: {"schema": f"k {kind}, v int, ts timestamp"} for kind in ("int", "bigint")}
"""Sources whose keys are whole numbers, by their types: Spark hashes equal numbers of two types differently."""

Joined = dict[str, bool]
"""Whether each asset was joined in time buckets."""


@pytest.fixture
def joined(monkeypatch: pytest.MonkeyPatch) -> Joined:
    """Records how each asset is joined, if 200 rows are many."""
    found: Joined = {}
    split: Callable[..., DerivedAsset] = rows_per_key.split_keys

    def observed(*args: object) -> DerivedAsset:
        asset = split(*args)
        found[asset.name] = isinstance(asset.operator, IntervalJoin) and asset.operator.time_buckets
        return asset

    monkeypatch.setattr(rows_per_key, "MANY_ROWS", 200)
    monkeypatch.setattr(closed_ranges, "split_keys", observed)
    return found


def test_only_a_step_whose_keys_have_many_rows_is_joined_in_buckets(make_engine: MakeEngine, joined: Joined) -> None:
    bounds = {"lower": 0, "upper": "1 s", "how": "full"}
    assets = [join("one_key", ("l", "r"), **bounds), join("many_keys", ("x", "y"), **bounds), join("empty_side", ("l", "nobody"), **bounds)]
    assets += [join("one_number", ("int", "bigint"), **bounds)]
    names = {name for asset in assets for name in asset.inputs}
    engine = make_engine([source(name, **NUMBERS.get(name, {})) for name in names], assets)
    replay(engine, [{name: _events(name) for name in names}])
    engine.drain()
    for asset in assets:
        engine.advance(asset.name)
    assert joined == {"one_key": True, "many_keys": False, "empty_side": False, "one_number": True}
    pairs = {name: engine.views.table(name).where("left_v = right_v").select("left_v") for name in ("one_key", "many_keys", "one_number")}
    assert {name: len(rows) for name, rows in values_of(pairs).items()} == dict.fromkeys(pairs, 600)
    assert all(not day.missing and not day.extra for day in engine.accounts.days("one_key"))


def _events(name: str) -> list[Event]:
    """One row every half minute: all with one key, or each with a key of its own."""
    if name == "nobody":
        return []
    return [Event("7" if name in ("l", "r", *NUMBERS) else f"k{n}", n, n * MINUTE // 2) for n in range(600)]


def test_an_operator_that_compares_no_rows_of_a_key_is_never_split(make_engine: MakeEngine) -> None:
    firsts = DerivedAsset(name="firsts", inputs=("l",), operator=Deduplicate(by="k"))
    engine = make_engine([source("l")], [firsts])
    assert rows_per_key.split_keys(engine.workspace, firsts, ClosedRange(None, START), 0) is firsts


@pytest.mark.parametrize(
    ("batches", "expected"),
    [
        ([], (0.0, 1_000, 1_000)),
        ([(800, 0, 799)], (800.0, 400, 450)),
        ([(800, 0, 799), (800, 10_000, 10_799)], (800.0, 400, 450)),  # rows after the range do not count
        ([(700, 500, 599), (100, 0, 999)], (800.0, 550, 557)),  # the middle by rows, where most rows are
    ],
    ids=["no rows", "even", "rows after the range", "uneven"],
)
def test_the_part_in_the_middle_has_its_share_of_the_rows(batches: list[tuple[int, int, int]], expected: tuple[float, int, int]) -> None:
    ledger = [
        (source_batch("l", seq, accepted=rows, first_event_time=first, last_event_time=last),)
        for seq, (rows, first, last) in enumerate(batches, 1)
    ]
    found = rows_of_range(memory_ledger(ledger).history, join(), None, 1_000, len(ledger))
    assert found.number == pytest.approx(expected[0])
    assert found.middle(16) == pytest.approx(expected[1:], abs=8)
