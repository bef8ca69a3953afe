"""An operator as text, and back; an asset's progress from its own commits."""

from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from operators import Deduplicate, IntervalJoin, Sliding, TopK, Tumbling, WindowedAggregate
from operators.contract import Operator
from platform_defs.engine.progress import Progress, ProgressError, describe, progress, restore, stored_progress
from platform_defs.resources.lake import Lake
from tests.support.shopkeeping import join
from tests.support.toys import RunningTotal, Spread

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
    pytest.param(RunningTotal(), id="a user's own, folding"),
    pytest.param(Spread(), id="a user's own, by key"),
]


@pytest.mark.parametrize("operator", OPERATORS)
def test_an_operator_comes_back_as_it_was_described(operator: Operator) -> None:
    again = restore(describe(operator))
    assert type(again) is type(operator)
    assert describe(again) == describe(operator)
    assert (again.reads, again.emits) == (operator.reads, operator.emits)
    assert again == operator


def test_bounds_as_timedeltas_come_back_as_long() -> None:
    operator = IntervalJoin(on="k", lower=timedelta(minutes=-5), upper=timedelta(days=2, milliseconds=1))
    again = restore(describe(operator))
    assert isinstance(again, IntervalJoin)
    assert again.interval == operator.interval
    assert describe(again) == describe(operator)


def test_no_table_stands_at_the_beginning(tmp_path: Path) -> None:
    assert progress(Lake(str(tmp_path)), join()) == Progress()


def test_progress_is_the_newest_commits(tmp_path: Path) -> None:
    lake, asset = Lake(str(tmp_path)), join()
    for step in (1, 2):
        said = Progress(step, step, -step, describe(asset.operator))
        lake.append_small(pa.table({"a": [1]}), asset.name, said.metadata())
        assert progress(lake, asset) == said


def test_other_parameters_are_named_on_both_sides(tmp_path: Path) -> None:
    lake, asset, other = Lake(str(tmp_path)), join(), join(upper="7 minutes")
    lake.append_small(pa.table({"a": [1]}), asset.name, Progress(1, 1, 0, describe(asset.operator)).metadata())
    with pytest.raises(ProgressError, match=r'pairs was made with .*"10 minutes".* now say .*"7 minutes"'):
        progress(lake, other)
    assert stored_progress(lake, other).operator == describe(asset.operator)
