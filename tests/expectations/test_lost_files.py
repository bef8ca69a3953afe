"""Checks of a table that lacks a data file end with the error that names the file, the table and what to do."""

from pathlib import Path

import dagster as dg
import great_expectations as gx
import pytest

from assets.contracts import DerivedAsset
from expectations.checks import suite_checks
from expectations.leaderboards import leaderboard_checks
from operators import Aggregate
from platform_defs.engine import Engine
from platform_defs.engine.lake.errors import LakeError
from tests.conftest import MakeEngine
from tests.support.small_sources import Event, replay, source

SUMS = DerivedAsset(name="sums", inputs=("l",), operator=Aggregate(by="k", aggregates={"n": "count(*)"}))
SUITE = gx.ExpectationSuite(name="rows", expectations=[gx.expectations.ExpectColumnValuesToNotBeNull(column="k", severity="critical")])
LOG = dg.AssetKey(["events", "l"])


@pytest.fixture(scope="module")
def engine(make_module_engine: MakeEngine) -> Engine:
    """A lake whose log and changelog have lost their data files."""
    engine = make_module_engine([source("l")], [SUMS])
    replay(engine, [{"l": [Event("a", 1, 0)]}])
    engine.advance("sums")
    for table in ("events/l", "changelog/sums"):
        delta = engine.lake.delta(table)
        assert delta is not None
        for uri in delta.file_uris():
            Path(uri.removeprefix("file://")).unlink()
    return engine


@pytest.mark.parametrize(
    ("table", "key", "checks"),
    [
        ("changelog/sums", dg.AssetKey("sums"), leaderboard_checks(SUMS)),
        ("events/l", LOG, suite_checks(LOG, "events/l", SUITE)),
    ],
    ids=["a leaderboard's changelog", "a suite's table"],
)
def test_a_check_names_a_lost_file(engine: Engine, table: str, key: dg.AssetKey, checks: dg.AssetChecksDefinition) -> None:
    job = dg.define_asset_job("checks", selection=dg.AssetSelection.all_asset_checks())
    defs = dg.Definitions(assets=[dg.AssetSpec(key)], asset_checks=[checks], jobs=[job], resources={"engine": engine})
    with pytest.raises(LakeError, match=rf"^{table} lacks a data file: .*\.parquet.*Restore the file from a backup"):
        defs.resolve_job_def("checks").execute_in_process()
