"""A pipeline's sources and tables are checked against each other, and their folders when an engine is made."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.types import StringType, StructField, StructType

from assets.contracts import ContractError, DerivedAsset, SourceContract
from operators import Aggregate, Deduplicate, TopN, Tumbling, WindowJoin
from operators.contract import Operator
from platform_defs.engine import Engine
from platform_defs.engine.lake.tables import Lake
from tests.support.small_sources import ROW, join, source


def no_session() -> Any:
    raise AssertionError("no session is needed")


def engine(root: Path, sources: list[SourceContract], assets: list[DerivedAsset], **folders: str) -> Engine:
    """An engine, without a session."""
    named = {s.name: s for s in sources}, {a.name: a for a in assets}
    return Engine(Lake(str(root / "lake")), *named, no_session, folders=folders)


def asset(name: str, operator: Operator, *inputs: str) -> DerivedAsset:
    """An asset of one input."""
    return DerivedAsset(name=name, inputs=inputs or ("l",), operator=operator)


TOTAL = Aggregate(by="k", aggregates={"n": "count(*)"})
BEST = TopN(by="k", order_by="n DESC", rank_end=1, unique_key="k", change="change")
L, R = source("l"), source("r")


def test_an_asset_is_ordered_after_its_inputs(tmp_path: Path) -> None:
    given = [asset("best", BEST, "total"), asset("other", TOTAL), asset("total", TOTAL)]
    assert list(engine(tmp_path, [L], given).assets) == ["total", "best", "other"]


def test_a_missing_input_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ContractError, match="`inputs` is 'r'; legal: names of sources and tables: l, pairs; 'pairs' reads it"):
        engine(tmp_path, [L], [join()])


def test_an_asset_that_reads_itself_is_refused(tmp_path: Path) -> None:
    cycle = [asset("a", BEST, "b"), asset("b", BEST, "c"), asset("c", BEST, "a")]
    with pytest.raises(ContractError, match="`inputs` is 'a -> b -> c -> a'; legal: assets that do not read each other in a cycle"):
        engine(tmp_path, [L], cycle)


@pytest.mark.parametrize("name", ["l", "L"])
def test_a_name_used_twice_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ContractError, match=f"`name` is '{name}'; legal: .*differ in more than case"):
        engine(tmp_path, [L], [asset(name, TOTAL)])
    with pytest.raises(ContractError, match="`name` is 'x'; legal: 'l', the name of the source or table under this key"):
        Engine(Lake(str(tmp_path)), {"x": L}, {}, no_session)


@pytest.mark.parametrize("column", ["change", "Changed_At", "step"])
def test_a_column_of_the_changelog_is_refused_before_any_row_is_read(tmp_path: Path, column: str) -> None:
    contract = source("l", schema=StructType([*ROW.fields]).add(column, StringType()))
    for operator in (Deduplicate(by="k"), TopN(order_by="v", rank_end=1), Aggregate(by=column, aggregates={"n": "count(*)"})):
        with pytest.raises(ContractError, match=f"`operator` is '{column}'; legal: columns other than change, changed_at and step"):
            engine(tmp_path, [contract], [asset("kept", operator)])
    legal = [asset("total", TOTAL), join()]
    assert engine(tmp_path, [contract, R], legal).assets.keys() == {"total", "pairs"}
    top = TopN(by="k", order_by="v", rank_end=1, change=column)
    assert "kept" in engine(tmp_path, [contract], [asset("kept", top)]).assets


def test_a_change_column_that_the_changelog_contains_is_refused(tmp_path: Path) -> None:
    top = TopN(by="k", order_by="k", rank_end=1, unique_key="k", change="N")
    with pytest.raises(ContractError, match="`change` is 'N'; legal: a name that is no column of 'total'"):
        engine(tmp_path, [L], [asset("total", TOTAL), asset("best", top, "total")])


def test_folders_do_not_overlap(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "in")
    for one, other in [("in", "in"), ("in", "in/r"), ("in/l/deep", "in"), ("in/r", "link/r"), ("link", "in/r")]:
        with pytest.raises(ContractError, match=r"`folders` is \{'r': .*legal: a folder of its own: that of 'l'"):
            engine(tmp_path, [L, R], [], l=str(tmp_path / one), r=str(tmp_path / other))
    for one, other in [("s3://b/in", "s3://b/in/r/"), ("s3://b/in/", "s3://b/in")]:
        with pytest.raises(ContractError, match="a folder of its own"):
            engine(tmp_path, [L, R], [], l=one, r=other)
    engine(tmp_path, [L, R], [], l=str(tmp_path / "in"), r=str(tmp_path / "in2"))
    engine(tmp_path, [L, R], [], l="s3://b/in", r="s3://b/in2")


@pytest.mark.parametrize("inside", ["", "lake", "lake/events/l", "lake/pairs", "lake/_checkpoints"])
def test_a_landing_folder_that_is_or_contains_a_table_is_refused(tmp_path: Path, inside: str) -> None:
    with pytest.raises(ContractError, match=r"`folders` is .*legal: a folder (that does not contain the lake|outside the lake's tables)"):
        engine(tmp_path, [L, R], [join()], l=str(tmp_path / inside))
    engine(tmp_path, [L, R], [join()], l=str(tmp_path / "lake/landing/l"))


@pytest.mark.parametrize(
    ("right", "why"),
    [
        ("V", r"`inputs` is \('l', 'r'\); legal: .*operator of 'pairs' accepts: .*V.* choose other `left_prefix` / `right_pre"),
        ("K", "^table 'pairs': `on` is 'k'; legal: the columns of 'r' are K, v, ts, event_time, seq, arrival; did you mean 'K'"),
    ],
)
def test_columns_that_differ_only_in_case_are_refused_before_any_row_is_read(tmp_path: Path, right: str, why: str) -> None:
    fields = [f if f.name != right.lower() else StructField(right, f.dataType) for f in ROW.fields]
    other = source("r", schema=StructType(fields))
    windows = WindowJoin(on="k", window=Tumbling(size="1 minute"), how="semi")
    for made in (join(), join(residual="k > ''"), replace(join(), shape=lambda rows: rows), asset("pairs", windows, "l", "r")):
        with pytest.raises(ContractError, match=why):
            engine(tmp_path, [L, other], [made])
    assert "pairs" in engine(tmp_path, [L, R], [join()]).assets
