"""The identity of an asset as text, and its progress from its own commits."""

import json
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from datetime import date, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest

from assets.contracts import DerivedAsset, Shape
from operators import Aggregate, Consecutive, Deduplicate, IntervalJoin, Sliding, TopK, TopN, Tumbling, WindowedAggregate
from operators.contract import Operator
from platform_defs.engine.inputs.identity import differences, identity_of
from platform_defs.engine.inputs.progress import PROGRESS, Progress, progress, results_table, step_id, stored_progress
from platform_defs.engine.inputs.progress_errors import ProgressError
from platform_defs.engine.lake import reads
from platform_defs.engine.lake.tables import Lake
from tests.support.example_operators import RunningTotal, Spread
from tests.support.small_sources import join

OPERATORS = [
    pytest.param(join().operator, id="interval join"),
    pytest.param(IntervalJoin(on=("a", "b"), lower="0 ms", upper="1 ms", upper_exclusive=True), id="two keys and an open end"),
    pytest.param(IntervalJoin(on="k", lower=-5, upper=0), id="bounds as numbers"),
    pytest.param(
        WindowedAggregate(by="k", window=Sliding(size="10 s", slide="2 s"), aggregates={"type": "count(*)", "b": "max(v)"}),
        id="a window and a mapping",
    ),
    pytest.param(TopK(k=3, order_by=("n DESC", "k"), by=("g",)), id="lists"),
    pytest.param(Deduplicate(by="k", keep="last", window=Tumbling(size=5, offset=-1)), id="a window that may be none"),
    pytest.param(RunningTotal(), id="a user's operator that merges rows"),
    pytest.param(Spread(), id="a user's operator by key"),
]


RISING = TopN(by="k", order_by="v DESC", unique_key="k", rank_end=1, monotonic=True)


def test_a_parameter_that_was_renamed_has_the_same_identity_under_its_former_name() -> None:
    top = DerivedAsset(name="top", inputs=("l",), operator=RISING)
    stored = identity_of(top).replace("monotonic", "improving")
    assert differences(stored, top) == []
    promises_nothing = replace(top, operator=replace(RISING, monotonic=False))
    assert differences(stored, promises_nothing) == ["monotonic was true, and is not set"]


@pytest.mark.parametrize("operator", OPERATORS)
def test_an_identity_contains_no_module_and_no_default(operator: Operator) -> None:
    asset = DerivedAsset(name="a", inputs=operator.inputs, operator=operator)
    parts = json.loads(identity_of(asset))
    assert parts["operator"] == type(operator).__name__
    assert type(operator).__module__ not in identity_of(asset)
    assert differences(identity_of(asset), asset) == []


EQUAL = [
    pytest.param({"upper": "10 minutes"}, {"upper": 600_000}, id="text and ms"),
    pytest.param({"upper": "10 minutes"}, {"upper": timedelta(minutes=10)}, id="text and a timedelta"),
    pytest.param({"on": "k"}, {"on": ("k",)}, id="one name and a list of one"),
    pytest.param({"on": ("a", "b")}, {"on": ["a", "b"]}, id="a tuple and a list"),
    pytest.param({}, {"left_prefix": "left_", "upper_exclusive": False}, id="a default that is written out"),
]
SAME_ORDERS = [
    pytest.param("v DESC", "v desc nulls last", id="in capitals, and a default"),
    pytest.param("v", "v ASC NULLS FIRST", id="defaults that are written out"),
    pytest.param(["v", "k DESC"], ["v asc", "`k` DESC"], id="several columns"),
    pytest.param("v nulls last", ["v ASC NULLS LAST"], id="no default"),
    pytest.param("`a b` desc", "`a b` DESC NULLS LAST", id="a name that needs quotes"),
]


def _ranked(order_by: str | list[str]) -> list[DerivedAsset]:
    """Tables with an order; in the last one, an operator within another one has it."""
    top_k = TopK(k=1, order_by=order_by, window=Tumbling(size="1 hour"))
    counts = WindowedAggregate(by="k", window=Tumbling(size="1 hour"), aggregates={"v": "count(*)"})
    operators = [TopN(order_by=order_by, rank_end=1), top_k, Consecutive(of=counts, then=replace(top_k, window=None))]
    return [DerivedAsset(name="ranked", inputs=("l",), operator=operator) for operator in operators]


@pytest.mark.parametrize(("one", "other"), SAME_ORDERS)
def test_equal_orders_in_different_notations_have_the_same_identity(one: str | list[str], other: str | list[str]) -> None:
    for first, second in zip(_ranked(one), _ranked(other), strict=True):
        assert identity_of(first) == identity_of(second)


def test_a_column_with_the_name_of_an_order_is_another_one() -> None:
    assert identity_of(_ranked("`v DESC`")[0]) != identity_of(_ranked("v DESC")[0])


def test_an_order_is_compared_with_that_of_an_earlier_version_which_recorded_its_text() -> None:
    for asset in _ranked("v DESC"):
        stored = identity_of(asset).replace('"v DESC"', '"v desc NULLS last"')
        assert stored != identity_of(asset)
        assert differences(stored, asset) == []
        assert len(differences(stored.replace("desc NULLS last", "desc NULLS first"), asset)) == 1


@pytest.mark.parametrize(("one", "other"), EQUAL)
def test_equal_values_in_different_notations_have_the_same_identity(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert identity_of(join(**one)) == identity_of(join(**other))


CHANGED = [
    pytest.param(join(upper="7 minutes"), ["upper was 600000, and is 420000"], id="a parameter"),
    pytest.param(join(how="inner"), ['how was "full", and is not set'], id="a parameter that is the default now"),
    pytest.param(join(inputs=("r", "l")), ['inputs was ["l", "r"], and is ["r", "l"]'], id="swapped inputs"),
    pytest.param(replace(join(), version="2"), ['version was not set, and is "2"'], id="a version"),
    pytest.param(replace(join(), shape=lambda rows: rows), ["shape was not set, and is true"], id="a function as shape"),
    pytest.param(
        replace(join(), shape=Shape(select="*, k AS key")), ['shape was not set, and is {"select": "*, k AS key"}'], id="another shape"
    ),
]


@pytest.mark.parametrize(("asset", "differing"), CHANGED)
def test_a_changed_parameter_is_described_with_both_values(asset: DerivedAsset, differing: list[str]) -> None:
    assert differences(identity_of(join()), asset) == differing


FIRST_FORMAT = (
    '{"type": "operators.interval_join:IntervalJoin", "on": "k", "lower": "-5 minutes", "upper": "10 minutes", "lower_exclusive": false, '
    '"upper_exclusive": false, "how": "full", "residual": null, "left_time": "event_time", "right_time": "event_time", '
    '"left_prefix": "left_", "right_prefix": "right_"}'
)


def test_an_identity_in_the_first_format_is_compared() -> None:
    """The first format contained modules and defaults, but no inputs."""
    assert differences(FIRST_FORMAT, join()) == []
    assert differences(FIRST_FORMAT, join(upper="7 minutes")) == ["upper was 600000, and is 420000"]
    hot = WindowedAggregate(by="k", window=Sliding(size="10 s", slide="2 s"), aggregates={"type": "count(*)"})
    stored = (
        '{"type": "operators.windowed_aggregate:WindowedAggregate", "by": "k", "window": {"type": "operators.windows:Sliding", '
        '"size": "10 s", "slide": "2 s", "offset": 0}, "aggregates": {"type": "mapping", "items": [["type", "count(*)"]]}, '
        '"allowed_lateness": 0}'
    )
    assert differences(stored, DerivedAsset(name="a", inputs=("rows",), operator=hot)) == []


def test_a_module_in_a_stored_identity_is_compared_and_never_imported(tmp_path: Path) -> None:
    """A writer of a table must not be able to run code in a process that reads its progress."""
    witness = tmp_path / "called"
    stored = json.dumps({"type": "os:system", "command": f"touch {witness}"})
    assert differences(stored, join())[0].startswith('operator was "system", and is "IntervalJoin"')
    lake = Lake(str(tmp_path / "lake"))
    lake.append_small(pa.table({"a": [1]}), "pairs", {"progress": {"step": 1, "seq": 1, "closed_to": 0, "operator": stored}})
    with pytest.raises(ProgressError, match="pairs was made with other settings than it has now: operator was"):
        progress(lake, join())
    assert not witness.exists()


class Mode(Enum):
    FAST, SLOW = "f", "s"


class Plain:
    """A class that the engine does not know."""


@dataclass(frozen=True, kw_only=True)
class WithOption(Aggregate):
    """An operator with a parameter of any type."""

    option: Any = Mode.FAST


def with_option(option: Any, by: str = "k") -> DerivedAsset:
    return DerivedAsset(name="sums", inputs=("l",), operator=WithOption(by=by, aggregates={"n": "count(*)"}, option=option))


def by_sets(*sets: Any) -> DerivedAsset:
    operator = WindowedAggregate(by=("a", "b"), window=Tumbling(size="1 hour"), aggregates={"n": "count(*)"}, grouping_sets=sets)
    return DerivedAsset(name="sums", inputs=("l",), operator=operator)


UNEQUAL = [
    pytest.param(with_option(Mode.SLOW), with_option(Mode.FAST), ['option.value was "SLOW", and is "FAST"'], id="Enum"),
    pytest.param(
        with_option(date(2026, 1, 1)), with_option(date(2027, 1, 1)), ['option.value was "2026-01-01", and is "2027-01-01"'], id="date"
    ),
    pytest.param(with_option(Decimal("0.1")), with_option(Decimal("0.2")), ['option.value was "0.1", and is "0.2"'], id="Decimal"),
    pytest.param(
        with_option(ZoneInfo("UTC")), with_option(ZoneInfo("Asia/Tokyo")), ['option.value was "UTC", and is "Asia/Tokyo"'], id="ZoneInfo"
    ),
    pytest.param(with_option(Path("a")), with_option(Path("b")), ['option.value was "a", and is "b"'], id="Path"),
    pytest.param(
        with_option(UUID(int=1)), with_option(UUID(int=2)), [f'option.value was "{UUID(int=1)}", and is "{UUID(int=2)}"'], id="UUID"
    ),
    pytest.param(with_option(re.compile("a")), with_option(re.compile("b")), ['option.value was "a", and is "b"'], id="pattern"),
    pytest.param(with_option(re.compile("a")), with_option(re.compile("a", re.I)), ["option.flags was 32, and is 34"], id="flags"),
    pytest.param(
        with_option(frozenset({"b", "a"})), with_option(frozenset({"b"})), ['option was ["a", "b"], and is ["b"]'], id="frozenset"
    ),
    pytest.param(
        with_option({"x": (Mode.FAST,)}),
        with_option({"x": (Mode.SLOW,)}),
        ['option.x was [{"type": "Mode", "value": "FAST"}], and is [{"type": "Mode", "value": "SLOW"}]'],
        id="inside of others",
    ),
    pytest.param(
        by_sets({"a"}, {"b"}), by_sets({"b", "a"}, {"a"}), ['grouping_sets was [["a"], ["b"]], and is [["a", "b"], ["a"]]'], id="sets"
    ),
]


@pytest.mark.parametrize(("one", "other", "differing"), UNEQUAL)
def test_a_value_of_any_legal_type_is_compared(one: DerivedAsset, other: DerivedAsset, differing: list[str], tmp_path: Path) -> None:
    assert differences(identity_of(one), other) == differing
    assert differences(identity_of(one), replace(one)) == []
    lake = Lake(str(tmp_path))
    lake.append_small(pa.table({"a": [1]}), results_table(one), Progress(1, 1, 0, identity_of(one)).metadata(Progress()))
    with pytest.raises(ProgressError, match="sums was made with other settings than it has now"):
        progress(lake, other)


TYPES_ONLY = [
    pytest.param(with_option(Mode.FAST), {}, id="a default"),
    pytest.param(with_option(Mode.SLOW), {}, id="another value of the default's type"),
    pytest.param(with_option(Decimal(1)), {"option": {"type": "Decimal"}}, id="Decimal"),
    pytest.param(with_option(ZoneInfo("UTC")), {"option": {"type": "ZoneInfo"}}, id="ZoneInfo"),
    pytest.param(with_option(re.compile(b"a")), {"option": {"type": "Pattern"}}, id="pattern"),
    pytest.param(with_option(Plain()), {"option": {"type": "Plain"}}, id="another object"),
    pytest.param(with_option((date(2026, 1, 1),)), {"option": [{"type": "date"}]}, id="a list of dates"),
]


@pytest.mark.parametrize(("asset", "recorded"), TYPES_ONLY)
def test_a_table_continues_if_an_earlier_version_recorded_only_types(asset: DerivedAsset, recorded: dict[str, Any]) -> None:
    parameters = {"by": ["k"], "aggregates": {"n": "count(*)"}}
    stored = json.dumps({"inputs": ["l"], "operator": "WithOption", "parameters": parameters | recorded})
    assert differences(stored, asset) == []
    other = with_option(vars(asset.operator)["option"], by="j")
    assert differences(stored, other) == ['by was ["k"], and is ["j"]']


def test_sets_of_an_earlier_version_continue() -> None:
    stored = json.loads(identity_of(by_sets({"a"}, {"b"})))
    stored["parameters"]["grouping_sets"] = [{"type": "set"}, {"type": "set"}]
    assert differences(json.dumps(stored), by_sets({"a"}, {"b"})) == []


def test_of_other_objects_only_the_type_is_compared() -> None:
    assert differences(identity_of(with_option(Plain())), with_option(Plain())) == []
    assert differences(identity_of(with_option(Plain())), with_option(object())) == ['option.type was "Plain", and is "object"']


def test_a_missing_table_has_initial_progress(tmp_path: Path) -> None:
    assert progress(Lake(str(tmp_path)), join()) == Progress()


def test_progress_is_read_from_the_newest_commit(tmp_path: Path) -> None:
    lake, asset = Lake(str(tmp_path)), join()
    for step in (1, 2):
        made = Progress(step, step, -step, identity_of(asset))
        lake.append_small(pa.table({"a": [1]}), asset.name, made.metadata(Progress()))
        assert replace(progress(lake, asset), id=None) == made


def test_the_error_of_changed_parameters_names_both_values(tmp_path: Path) -> None:
    lake, asset, other = Lake(str(tmp_path)), join(), join(upper="7 minutes")
    lake.append_small(pa.table({"a": [1]}), asset.name, Progress(1, 1, 0, identity_of(asset)).metadata(Progress()))
    message = r"pairs was made with other settings .*: upper was 600000, and is 420000.*tidemark rebuild pairs --downstream"
    with pytest.raises(ProgressError, match=message):
        progress(lake, other)
    assert stored_progress(lake, other).operator == identity_of(asset)


def _commit(lake: Lake, *steps: Progress | None) -> None:
    """Commit steps to the table of `join()`; None stands for a commit of another writer."""
    for made in steps:
        lake.append_small(pa.table({"a": [1]}), "pairs", {"other": 1} if made is None else {PROGRESS: asdict(made)})


@pytest.fixture
def read_versions(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The versions of the commits that are read."""
    found, infos = list[int](), reads.commits.commit_infos

    def recorded(*of: Any) -> Iterator[tuple[int, dict[str, Any]]]:
        for version, info in infos(*of):
            found.append(version)
            yield version, info

    monkeypatch.setattr(reads.commits, "commit_infos", recorded)
    return found


def test_an_early_step_is_found_without_reading_all_commits_since(tmp_path: Path, read_versions: list[int]) -> None:
    lake = Lake(str(tmp_path))
    _commit(lake, *[Progress(step, id=f"id {step}") for step in range(1, 41)])
    assert [step_id(lake, join(), step) for step in (40, 3, 41)] == ["id 40", "id 3", None]
    read_versions.clear()
    assert step_id(lake, join(), 3) == "id 3"
    assert read_versions == [2], "the newest step is known"


def test_a_step_is_found_among_commits_of_other_writers(tmp_path: Path) -> None:
    lake = Lake(str(tmp_path))
    for step in range(1, 9):
        _commit(lake, *[None] * (step % 3), Progress(step, id=f"id {step}"), *[None] * (step % 2))
    assert [step_id(lake, join(), step) for step in range(1, 9)] == [f"id {step}" for step in range(1, 9)]
    assert step_id(lake, join(), 0) is None


def test_a_step_of_an_earlier_generation_is_found_as_by_reading_all_commits(tmp_path: Path) -> None:
    lake = Lake(str(tmp_path))
    _commit(lake, *[Progress(step, id=f"old {step}") for step in (1, 2, 3, 7, 8)])
    _commit(lake, *[Progress(step, generation=1, id=f"new {step}") for step in (5, 6, 9, 10)])
    found = [step_id(lake, join(), step) for step in range(1, 11)]
    assert found == ["old 1", "old 2", "old 3", None, "new 5", "new 6", None, None, "new 9", "new 10"]


def test_a_step_before_the_oldest_commit_in_the_log_is_not_found(tmp_path: Path) -> None:
    lake = Lake(str(tmp_path))
    _commit(lake, *[Progress(step, id=f"id {step}") for step in range(1, 6)])
    lake.delta("pairs").create_checkpoint()  # pyright: ignore[reportOptionalMemberAccess]
    for version in range(3):
        (tmp_path / "pairs/_delta_log" / f"{version:020}.json").unlink()
    assert [step_id(lake, join(), step) for step in range(1, 6)] == [None, None, None, "id 4", "id 5"]
