"""The setting TIDEMARK_PIPELINE: a user's own pipeline in place of the shop, with all its assets, checks, jobs and sensors."""

import importlib
import re
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

from assets.contract_checks import ContractError
from platform_defs.configured_engine import make_engine
from platform_defs.declared.pipeline import DeclaredError
from platform_defs.definitions import build
from platform_defs.pipelines import PipelineError, configured_pipeline, load
from platform_defs.pipelines.user_code import UserCodeError
from platform_defs.settings import Settings
from tests.support.modules import modules_of

TEXT = """
from great_expectations import ExpectationSuite
from great_expectations.expectations import ExpectColumnValuesToNotBeNull

from assets.contracts import DerivedAsset, SourceContract
from assets.pipeline import Pipeline
from operators import Aggregate, Tumbling, WindowedAggregate
from schemas_of_rides import RIDE

pipeline = Pipeline(
    sources=[SourceContract(name="rides", schema=RIDE, event_time="started_at")],
    tables=[
        DerivedAsset(
            name="rides_per_hour",
            inputs=("rides",),
            operator=WindowedAggregate(by="zone", window=Tumbling(size="1 hour"), aggregates={"rides": "count(*)"}),
            group="reports",
        ),
        DerivedAsset(name="rides_so_far", inputs=("rides",), operator=Aggregate(by="zone", aggregates={"rides": "count(*)"})),
    ],
    suites={
        "rides": ExpectationSuite(
            name="rides", expectations=[ExpectColumnValuesToNotBeNull(column="zone", meta={"check": "zone_not_null"})]
        )
    },
)


def made():
    return pipeline


number = 1
"""
SCHEMA = """
from pyspark.sql.types import StructType

RIDE = StructType().add("zone", "string", metadata={"comment": "where it began"}).add("started_at", "timestamp")
"""


@pytest.fixture
def file(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "rides_pipeline.py").write_text(TEXT)
    (tmp_path / "schemas_of_rides.py").write_text(SCHEMA)
    with modules_of(tmp_path):
        yield tmp_path / "rides_pipeline.py"


@pytest.fixture
def values(file: Path, tmp_path: Path) -> Settings:
    return Settings(lake=str(tmp_path / "lake"), pipeline=str(file))


@pytest.mark.parametrize("name", ["", ":pipeline", ":made"])
def test_a_pipeline_is_loaded_from_a_file(file, name):
    assert [*load(f"{file}{name}").tables_by_name] == ["rides_per_hour", "rides_so_far"]


def test_a_pipeline_is_loaded_from_a_module(file, monkeypatch):
    monkeypatch.syspath_prepend(file.parent)
    assert [*load("rides_pipeline:pipeline").sources_by_name] == ["rides"]


def test_without_the_setting_the_pipeline_is_the_shop(tmp_path):
    assert "payment_order_wide" in configured_pipeline(Settings(lake=str(tmp_path))).tables_by_name


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("{file}:pipelines", "has no 'pipelines'"),
        ("{file}:number", "'number' is a int, not a Pipeline"),
        ("{folder}/absent.py", "there is no file"),
        ("no_such_module:pipeline", "there is no module 'no_such_module'; is its folder on PYTHONPATH"),
        ("os.nothing:pipeline", "there is no module 'os.nothing'"),
    ],
)
def test_what_is_no_pipeline_is_refused_with_the_legal_forms(file, target, message):
    with pytest.raises(PipelineError, match=rf"TIDEMARK_PIPELINE is .*{message}.*legal: MODULE or MODULE:NAME"):
        load(target.format(file=file, folder=file.parent))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("import no_such_library", "line 2: ModuleNotFoundError: No module named 'no_such_library'"),
        ("x = 1\npipeline = y", "line 3: NameError: name 'y' is not defined"),
        ("pipeline = Pipeline(", "line 2: SyntaxError: '(' was never closed"),
        ("import of_bad_syntax", r"line 2: SyntaxError: invalid syntax (of_bad_syntax.py, line 2)"),
        ("import of_bad_name", "line 2: NameError: name 'z' is not defined"),
        ("def pipeline():\n    import json\n    return json.loads('{')", "line 4: JSONDecodeError: Expecting property name"),
        ("raise ValueError('two\\n\\n lines')", "line 2: ValueError: two lines"),
    ],
)
@pytest.mark.parametrize("form", ["file", "module"])
def test_an_error_of_the_users_code_names_the_line_in_the_users_file(file, monkeypatch, form, text, message):
    monkeypatch.syspath_prepend(file.parent)
    (file.parent / "of_bad_syntax.py").write_text("x = 1\nx = =\n")
    (file.parent / "of_bad_name.py").write_text("\n\n\nz\n")
    file.write_text(f"from assets.pipeline import Pipeline\n{text}\n")
    target = str(file) if form == "file" else "rides_pipeline:pipeline"
    with pytest.raises(UserCodeError, match=rf"^TIDEMARK_PIPELINE is '{target}': {file}, {re.escape(message)}") as raised:
        load(target)
    assert type(raised.value.__cause__).__name__ in message


@pytest.mark.parametrize("form", ["file", "module"])
def test_an_error_of_tidemark_in_the_users_module_is_raised_with_its_line(file, monkeypatch, form):
    monkeypatch.syspath_prepend(file.parent)
    file.write_text("from assets.contract_checks import ContractError\nraise ContractError('too late')\n")
    with pytest.raises(ContractError, match=rf"^too late\n{file}, line 2$"):  # pytest adds the note to the message
        load(str(file) if form == "file" else "rides_pipeline:pipeline")


def test_a_file_that_was_corrected_after_an_error_is_imported_anew(file):
    text = file.read_text()
    file.write_text("pipeline = y\n")
    with pytest.raises(UserCodeError, match="name 'y' is not defined"):
        load(str(file))
    file.write_text(text)
    assert [*load(str(file)).sources_by_name] == ["rides"]
    assert [*importlib.import_module("rides_pipeline").pipeline.sources_by_name] == ["rides"]


@pytest.mark.parametrize(("text", "reason"), [(b"\xff", "invalid start byte"), (None, "No such file or directory")])
def test_a_declared_pipeline_that_cannot_be_read_is_refused_with_the_reason(tmp_path, text, reason):
    file = tmp_path / ("a" * 200) / "pipeline.yml"
    file.parent.mkdir()
    if text is not None:
        file.write_bytes(text)
    with pytest.raises(PipelineError, match=f"the file cannot be read: .*{reason}; legal"):
        load(str(file))


def test_a_byte_order_mark_is_not_a_part_of_a_declared_pipeline(tmp_path):
    file = tmp_path / "pipeline.sql"
    file.write_text("CREATE", "utf-8-sig")
    with pytest.raises(DeclaredError) as with_mark:  # noqa: PT011 - the text is compared below
        load(str(file))
    file.write_text("CREATE", "utf-8")
    with pytest.raises(DeclaredError, match=re.escape(str(with_mark.value))):
        load(str(file))


def test_a_folders_name_may_contain_a_colon(file):
    (file.parent / "a:b").mkdir()
    moved = file.rename(file.parent / "a:b" / file.name)
    (file.parent / "schemas_of_rides.py").rename(moved.parent / "schemas_of_rides.py")
    assert load(f"{moved}:made").tables


def test_the_code_location_has_the_assets_checks_jobs_and_sensors_of_the_pipeline(values):
    repository = build(values).get_repository_def()
    graph = repository.asset_graph
    assert {k.to_user_string() for k in graph.get_all_asset_keys()} == {"events/rides", "rides_per_hour", "rides_so_far"}
    assert {(c.asset_key.to_user_string(), c.name) for c in graph.asset_check_keys} == {
        ("events/rides", "zone_not_null"),
        ("rides_per_hour", "conservation_law"),
        ("rides_per_hour", "days_finalized"),
        ("rides_per_hour", "event_times_in_partitions"),
        ("rides_so_far", "conservation_law"),
        ("rides_so_far", "changelog_folds_to_the_table"),
    }
    assert graph.get(dg.AssetKey("rides_per_hour")).group_name == "reports"
    assert {job.name for job in repository.get_all_jobs()} >= {"ingest", "advance", "full_checks", "maintenance"}
    assert {node.name for node in repository.get_job("advance").nodes} >= {"rides_per_hour", "rides_so_far"}
    assert {sensor.name for sensor in repository.sensor_defs} == {"new_input", "ledger_moved", "stream_supervisor", "alerts"}


def test_a_columns_comment_is_its_description(values):
    schema = build(values).get_repository_def().asset_graph.get(dg.AssetKey(["events", "rides"])).metadata["dagster/column_schema"]
    found = {column.name: column.description for column in schema.columns}
    assert (found["zone"], found["started_at"]) == ("where it began", None)


def test_a_pipeline_of_sources_only_has_no_job_that_advances_tables(values, file):
    file.write_text(TEXT.replace("tables=[", "tables=[] and ["))
    repository = build(values).get_repository_def()
    assert not repository.has_job("advance")
    assert {sensor.name for sensor in repository.sensor_defs} == {"new_input", "stream_supervisor", "alerts"}


def test_the_engine_is_that_of_the_pipeline(values):
    engine = make_engine(values)
    assert (set(engine.sources), set(engine.assets)) == ({"rides"}, {"rides_per_hour", "rides_so_far"})
    assert engine.folders == {"rides": f"{values.lake}/landing/rides"}
