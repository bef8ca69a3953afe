"""A pipeline in YAML is the same value as in Python, is checked against a schema, and is a Dagster component."""

import dataclasses
import warnings
from importlib.metadata import entry_points
from pathlib import Path

import dagster as dg
import pytest
import yaml
from click.testing import CliRunner, Result
from dagster.components.core import package_entry
from dagster_dg_cli.cli import cli

from assets.contracts import BoundedOutOfOrderness, ContractError, DerivedAsset, Preparation, Punctuated, RowRule, Shape, SourceContract
from assets.pipeline import Pipeline
from expectations.finding import check_name
from operators import (
    Consecutive,
    CountEvictor,
    CountWindowAggregate,
    Deduplicate,
    EveryInterval,
    EveryStep,
    ProcessCountWindow,
    ProcessWindow,
    Select,
    Session,
    TimeEvictor,
    TopK,
    TopN,
    Tumbling,
    WindowedAggregate,
    WindowJoin,
)
from platform_defs.cli.new import TEMPLATE
from platform_defs.component import TidemarkPipeline
from platform_defs.declared.models import OPERATORS, model_of, name_of
from platform_defs.declared.pipeline import DeclaredError, document_model, read, validate
from platform_defs.declared.text import parse
from platform_defs.pipelines import load
from platform_defs.settings import settings
from tests.support.modules import modules_of

TEXT = (TEMPLATE / "pipeline.yaml").read_text()


def test_the_template_is_the_same_pipeline_in_yaml_and_in_python():
    made, expected = load(str(TEMPLATE / "pipeline.yaml")), load(str(TEMPLATE / "pipeline.py"))
    assert (made.sources, made.tables) == (expected.sources, expected.tables)
    for found, other in zip(made.suites_by_name()["fares"].expectations, expected.suites_by_name()["fares"].expectations, strict=True):
        assert (check_name(found), found.configuration, found.severity) == (check_name(other), other.configuration, other.severity)


EVERYTHING = """
sources:
  - name: l
    schema: k STRING, v INT, ts TIMESTAMP
    event_time: ts
    watermark: {bounded_out_of_orderness: {bound: 5 seconds}}
    unique_key: [k, v]
    duplicate_horizon: 1 day
    idle_timeout: 10 minutes
    future_skew: null
    rules: [{name: small, condition: v < 90, action: warn}]
    options: {header: "false", sep: ;}
    new_columns: add
  - name: r
    schema: k STRING, v INT, ts TIMESTAMP
    event_time: ts
    watermark: {punctuated: {watermark: ts, marker: v IS NULL}}
tables:
  - name: joined
    inputs: [l, r]
    operator: {window_join: {on: k, window: {session: {gap: 1 minute, longest: 2 hours}}, residual: left_v > right_v}}
    group: joins
    version: "2"
  - name: counts
    inputs: [l]
    prepare: {l: {where: v > 0, select: "k AS id, v"}}
    shape: {where: n > 1, select: "*, n * 2 AS twice"}
    operator:
      windowed_aggregate:
        by: [id]
        window: {tumbling: {size: 60000 ms, offset: 1 second}}
        aggregates: {n: count(*)}
        evictor: {count_evictor: {rows: 5}}
        early: {every_step: }
  - name: added
    inputs: [l]
    operator: {process_window: {window: {tumbling: {size: 1 hour}}, purging: {every_interval: {interval: 5 minutes}}}}
  - name: third
    inputs: [l]
    operator: {process_count_window: {by: k, size: 3, rows: elements, evictor: {time_evictor: {within: 1 minute}}}}
  - name: ended
    inputs: [l]
    operator: {count_window_aggregate: {by: k, ends_with: v IS NULL, aggregates: {n: count(*)}}}
  - name: newest
    inputs: [l]
    operator: {deduplicate: {by: k, keep: last}}
  - name: board
    inputs: [r]
    operator: {top_n: {by: k, order_by: [v DESC, ts], rank_end: 3, ttl: 1 day}}
  - name: best
    inputs: [l]
    operator:
      consecutive:
        of: {windowed_aggregate: {by: k, window: {tumbling: {size: 1 hour}}, aggregates: {n: count(*)}, allowed_lateness: 1 minute}}
        then: {top_k: {k: 3, order_by: [n DESC, k]}}
  - name: best_pairs
    inputs: [l, r]
    operator: {consecutive: {of: {window_join: {on: k, window: {tumbling: {size: 1 hour}}}}, then: {top_k: {k: 1, order_by: left_v}}}}
  - name: all
    inputs: [l]
    operator: {select: }
  - name: selected
    inputs: [l]
    prepare: {l: {where: v > 0, select: "k, v * 2 AS twice"}}
    operator: {select: {allowed_lateness: 1 hour}}
completeness: {joined: 0.75}
freshness: {joined: 10 minutes}
first_day: 2026-03-01
last_day: 2026-03-04
"""


def test_every_kind_of_parameter_can_be_written():
    made = read(EVERYTHING)
    assert made.sources == (
        SourceContract(
            name="l",
            schema="k STRING, v INT, ts TIMESTAMP",
            event_time="ts",
            watermark=BoundedOutOfOrderness("5 seconds"),
            unique_key=("k", "v"),
            duplicate_horizon="1 day",
            idle_timeout="10 minutes",
            future_skew=None,
            rules=(RowRule("small", "v < 90", "warn"),),
            options={"header": "false", "sep": ";"},
            new_columns="add",
        ),
        SourceContract(
            name="r", schema="k STRING, v INT, ts TIMESTAMP", event_time="ts", watermark=Punctuated(watermark="ts", marker="v IS NULL")
        ),
    )
    sessions = Session(gap="1 minute", longest="2 hours")
    counts = WindowedAggregate(
        by=("id",),
        window=Tumbling(size="60000 ms", offset="1 second"),
        aggregates={"n": "count(*)"},
        evictor=CountEvictor(rows=5),
        early=EveryStep(),
    )
    hour = Tumbling(size="1 hour")
    by_hour = WindowedAggregate(by="k", window=hour, aggregates={"n": "count(*)"}, allowed_lateness="1 minute")
    pairs = WindowJoin(on="k", window=hour)
    assert made.tables == (
        DerivedAsset(
            name="joined",
            inputs=("l", "r"),
            operator=WindowJoin(on="k", window=sessions, residual="left_v > right_v"),
            group="joins",
            version="2",
        ),
        DerivedAsset(
            name="counts",
            inputs=("l",),
            prepare={"l": Preparation(where="v > 0", select="k AS id, v")},
            operator=counts,
            shape=Shape(where="n > 1", select="*, n * 2 AS twice"),
        ),
        DerivedAsset(name="added", inputs=("l",), operator=ProcessWindow(window=hour, purging=EveryInterval("5 minutes"))),
        DerivedAsset(
            name="third",
            inputs=("l",),
            operator=ProcessCountWindow(by="k", size=3, rows="elements", evictor=TimeEvictor("1 minute")),
        ),
        DerivedAsset(
            name="ended", inputs=("l",), operator=CountWindowAggregate(by="k", ends_with="v IS NULL", aggregates={"n": "count(*)"})
        ),
        DerivedAsset(name="newest", inputs=("l",), operator=Deduplicate(by="k", keep="last")),
        DerivedAsset(name="board", inputs=("r",), operator=TopN(by="k", order_by=("v DESC", "ts"), rank_end=3, ttl="1 day")),
        DerivedAsset(name="best", inputs=("l",), operator=Consecutive(of=by_hour, then=TopK(k=3, order_by=("n DESC", "k")))),
        DerivedAsset(name="best_pairs", inputs=("l", "r"), operator=Consecutive(of=pairs, then=TopK(k=1, order_by="left_v"))),
        DerivedAsset(name="all", inputs=("l",), operator=Select()),
        DerivedAsset(
            name="selected",
            inputs=("l",),
            prepare={"l": Preparation(where="v > 0", select="k, v * 2 AS twice")},
            operator=Select(allowed_lateness="1 hour"),
        ),
    )
    assert made.freshness == {"joined": "10 minutes"}
    assert (made.completeness, made.first_day, made.last_day) == ({"joined": 0.75}, "2026-03-01", "2026-03-04")


def test_the_former_name_of_a_parameter_is_read() -> None:
    yaml = EVERYTHING.replace("rank_end: 3, ttl: 1 day", "rank_end: 3, unique_key: k, improving: true")
    assert read(yaml).tables_by_name["board"].operator == TopN(
        by="k", order_by=("v DESC", "ts"), rank_end=3, unique_key="k", monotonic=True
    )


@pytest.mark.parametrize("kind", [SourceContract, DerivedAsset, Preparation, Shape, *OPERATORS, TimeEvictor, EveryInterval], ids=name_of)
def test_the_schema_has_every_parameter_with_its_description(kind: type) -> None:
    fields = {name.rstrip("_"): field for name, field in model_of(kind).model_fields.items()}
    assert {*fields} == {field.name for field in dataclasses.fields(kind) if field.init} - {"rises"}  # the pipeline sets it
    assert all(field.description for field in fields.values())
    assert model_of(kind).__doc__


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("sources:", "sources: [", r"^it is not one YAML document: "),
        ("k: 3", "k: three", r"^tables\[2\]\.operator\.top_k\.k: legal: a whole number$"),
        ("k: 3", "k: 0", r"^table 'busy_zones': `k` is 0; legal: a whole number of at least 1"),
        ("k: 3", "k: true", r"\.top_k\.k: legal: a whole number$"),
        ("k: 3", "k: 3.0", r"\.top_k\.k: legal: a whole number$"),
        ("k: 3,", "k: 3, by: true,", r"\.top_k\.by: legal: text; write it in quotes, or a list$"),
        ("unique_key: [ride_id]", "unique_key:", r"^sources\[0\]\.unique_key: legal: a list$"),
        ("unique_key: [ride_id]", "rules: null", r"^sources\[0\]\.rules: legal: a list$"),
        ("size: 1 hour", "size: 3600000", r"\.tumbling\.size: legal: text with a unit, such as 90 s or 5 minutes, or 0$"),
        ("size: 1 hour", "size: '3600000'", r"`size` is '3600000'; legal: whole milliseconds"),
        ("upper: 2 hours", "upper: -5", r"\.interval_join\.upper: legal: text with a unit, such as 90 s or 5 minutes, or 0$"),
        ("{size: 1 hour}", "", r"\.tumbling\.size: is missing$"),
        ("k: 3,", "k: 3, k: 4,", r"^it is not one YAML document: .*the key 'k' is given twice"),
        ("suites:", "first_day: 2026-02-30\nsuites:", r"`first_day` is '2026-02-30'; legal: a day"),
        ("suites:", "completeness: true\nsuites:", r"^completeness: legal: a valid number, or a mapping$"),
        (
            "suites:",
            "completeness: {t: {warn_below: abc}}\nsuites:",
            r"^completeness\.t\.warn_below: legal: a valid number, or a mapping$",
        ),
        (
            "suites:",
            "completeness: {t: abc, t.u: abc}\nsuites:",
            r"^completeness\.t: legal: a valid number, or a mapping; completeness\.t\.u: legal: a valid number, or a mapping$",
        ),
        (
            "suites:",
            "completeness: {true: 0.5}\nsuites:",
            r"^completeness: legal: keys that are text; YAML may read on[^;]*, so write them in quotes$",
        ),
        ("rides: count(*)", "true: count(*)", r"\.aggregates: legal: keys that are text; YAML may read on"),
        (
            "interval_join:",
            "intervall_join:",
            r"^tables\[0\]\.operator: 'intervall_join' is unknown; legal: a mapping with one key, of select, interval_join, as_of_join, "
            r"window_join, co_group, windowed_aggregate, process_window, count_window_aggregate, process_count_window, "
            r"aggregate, top_k, top_n, deduplicate, consecutive; did you mean 'interval_join'\?$",
        ),
        ("tumbling:", "hopping:", r"\.window: 'hopping' is unknown; legal: a mapping with one key, of tumbling, sliding, cumulative"),
        ("event_time: paid_at", "event_tim: paid_at", r"^sources\[1\]\.event_time: is missing; sources\[1\]\.event_tim: there is no such"),
        ("upper: 2 hours", "upper: 2 hourz", r"^table 'ride_fares': `upper` is '2 hourz'; legal: whole milliseconds"),
        (
            "tumbling:",
            "session: {gap: 1 hour}\n          tumbling:",
            r"\.window: legal: a mapping with one key, of tumbling, sliding,",
        ),
        ("schema: ride_id STRING NOT NULL, amount", "schema: ride_id TEXTUAL, amount", r"^source 'fares': .*TEXTUAL"),
        (
            "suites:\n  fares:",
            "suites:\n  farez:",
            r"^`suites` is 'farez'; legal: names of sources and tables: .*; did you mean 'fares'\?$",
        ),
        ("suites:", "suite:", r"^suite: there is no such parameter$"),
        ("sources:", "others:", r"^sources: is missing; others: there is no such parameter$"),
    ],
)
def test_an_error_names_the_path_the_value_and_what_is_legal(old: str, new: str, message: str) -> None:
    assert old in TEXT
    with pytest.raises((DeclaredError, ContractError), match=message):
        read(TEXT.replace(old, new, 1))


@pytest.mark.parametrize(
    ("of", "then", "message"),
    [
        ("{window_join: {}}", "{top_k: {k: 3, order_by: n}}", r"^tables\[2\]\.operator\.consecutive\.of\.window_join\.on: is missing; "),
        (
            "{deduplicate: {by: zone}}",
            "{top_k: {k: 3, order_by: n}}",
            r"^table 'busy_zones': `of` is Deduplicate\(.*; legal: an operator of",
        ),
        ("{consecutive: {}}", "{top_k: {k: 3, order_by: n}}", r"\.of: 'consecutive' is unknown; legal: a mapping with one key, of select"),
        ("{process_window: {window: {tumbling: {size: 1 hour}}}}", "{top_k: {k: three, order_by: n}}", r"\.then\.top_k\.k: legal: a whole"),
    ],
)
def test_an_error_of_one_of_two_consecutive_operators_names_its_path(of: str, then: str, message: str) -> None:
    with pytest.raises(DeclaredError, match=message):
        read(TEXT.replace("top_k: {k: 3, order_by: rides DESC}", f"consecutive: {{of: {of}, then: {then}}}"))


@pytest.mark.parametrize("text", ["", "[]", "a", "type: x\nattributes:"])
def test_what_is_no_mapping_is_refused(text: str) -> None:
    with pytest.raises(DeclaredError, match=r"^the document: legal: a mapping$"):
        read(text)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("expect_column_values_to_be_between", "expect_magic", r"^expectation expect_magic of 'fares': expect_magic not found"),
        (
            "expect_column_values_to_be_between",
            "expect_column_value_to_be_between",
            r"not found; did you mean 'expect_column_values_to_be_between'\?$",
        ),
        ("column: amount, max", "colum: amount, max", r"^expectation expect_column_values_to_be_between of 'fares': .*colum extra fields"),
    ],
)
def test_an_expectation_that_does_not_exist_is_refused(old: str, new: str, message: str) -> None:
    with pytest.raises(DeclaredError, match=message):
        read(TEXT.replace(old, new)).suites_by_name()


def test_an_unquoted_on_is_the_parameter_unless_dagster_has_read_it_as_true():
    assert read(TEXT.replace('"on"', "on")).tables == read(TEXT).tables
    by_dagster = yaml.safe_load(TEXT.replace('"on"', "on"))
    with pytest.raises(DeclaredError, match=r"^tables\[0\]\.operator\.interval_join: legal: keys that are text; YAML may read on"):
        validate(by_dagster)


def test_a_parameter_that_is_null_has_its_default() -> None:
    assert read(TEXT.replace("k: 3,", "k: 3, window: null,", 1)).tables == read(TEXT).tables


@pytest.mark.parametrize("text", ["True", "FALSE", "Null", "NULL", "0x1F", "0o17", "0b1", ".inf", "-.inf", ".nan", "yes", "1_000"])
def test_what_is_not_listed_is_text(text: str):
    assert parse(text) == text


@pytest.mark.parametrize(
    "text", ["!!bool x", "!!timestamp x", "!!int ''", "!!int s3cret", "!!float ''", "!!map [b]", "1" * 5_000, f"!!float 1{200 * ':1'}"]
)
def test_a_value_without_the_type_of_its_tag_is_an_error_that_does_not_quote_it(text: str):
    with pytest.raises(yaml.YAMLError, match=r"^a value does not have the type of its tag, or is a number with too many digits$"):
        parse(f"a: {text}")


def test_few_scalars_are_no_text():
    found = parse("{a: on, b: no, c: 10:30, d: 010, e: 2026-03-01, f: 1.5, g: -3, h: true, i: null, j: , k: 1_000, l: '3'}")
    assert [*found.values()] == ["on", "no", "10:30", "010", "2026-03-01", 1.5, -3, True, None, None, "1_000", "3"]


def test_parts_that_do_not_fit_together_are_refused(tmp_path: Path) -> None:
    (tmp_path / "rides.yml").write_text(TEXT.replace("[rides_per_hour]", "[ridez]"))
    with pytest.raises(DeclaredError, match=rf"^{tmp_path}/rides\.yml: `inputs` is 'ridez'; legal: names of sources and tables"):
        load(str(tmp_path / "rides.yml"))
    (tmp_path / "rides.yml").write_text(TEXT.replace("k: 3", "k: 0"))
    with pytest.raises(DeclaredError, match=rf"^{tmp_path}/rides\.yml: table 'busy_zones': `k` is 0"):
        load(str(tmp_path / "rides.yml"))


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TIDEMARK_LAKE", str(tmp_path / "lake"))
    settings.cache_clear()
    return tmp_path / "lake"


@pytest.mark.usefixtures("lake")
def test_the_component_makes_all_definitions_and_other_assets_can_read_the_tables() -> None:
    context = dg.ComponentTree.for_test().load_context
    attributes = document_model().model_validate({"sources": [{"name": "r", "schema": "k STRING, ts TIMESTAMP", "event_time": "ts"}]})
    assert isinstance(TidemarkPipeline.load(attributes, context).pipeline, Pipeline)
    with pytest.raises(DeclaredError, match=r"^sources: is missing$"):
        TidemarkPipeline.load(None, context)
    made = TidemarkPipeline(read(TEXT)).build_defs(context)

    @dg.asset(deps=["busy_zones"])
    def report() -> None:
        """A user's own asset."""

    repository = dg.Definitions.merge(made, dg.Definitions(assets=[report])).get_repository_def()
    graph = repository.asset_graph
    assert graph.get(dg.AssetKey("report")).parent_keys == {dg.AssetKey("busy_zones")}
    assert {"amount_is_plausible", "conservation_law", "join_completeness"} <= {check.name for check in graph.asset_check_keys}
    assert {job.name for job in repository.get_all_jobs()} >= {"ingest", "advance", "maintenance"}
    assert {sensor.name for sensor in repository.sensor_defs} == {"new_input", "ledger_moved", "stream_supervisor", "alerts"}


def _dg(project: Path, *arguments: str) -> Result:
    """Run `dg` in a project, in this process, which has imported Dagster already.

    `dg` finds Tidemark's component as in any project, but no components of other packages: it would import and describe each of them.
    """
    with pytest.MonkeyPatch.context() as patch, modules_of(project), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Dagster imports components that are in preview
        patch.chdir(project)
        patch.syspath_prepend(project)
        patch.delenv("DAGSTER_HOME", raising=False)
        patch.setattr(package_entry, "get_entry_points_from_python_environment", lambda group: entry_points(group=group, name="tidemark"))
        return CliRunner().invoke(cli, arguments)


def test_dg_writes_the_component_and_checks_its_yaml(tmp_path: Path, lake: Path) -> None:
    (tmp_path / "mine" / "defs").mkdir(parents=True)
    (tmp_path / "mine" / "__init__.py").touch()
    (tmp_path / "pyproject.toml").write_text(
        '[project]\nname = "mine"\nversion = "1"\n[tool.dg]\ndirectory_type = "project"\n[tool.dg.project]\nroot_module = "mine"\n'
    )
    scaffolded = _dg(tmp_path, "scaffold", "defs", "platform_defs.component.TidemarkPipeline", "rides")
    assert scaffolded.exit_code == 0, scaffolded.output
    file = tmp_path / "mine" / "defs" / "rides" / "defs.yaml"
    assert load(str(file)).tables == read(TEXT).tables
    file.write_text(file.read_text().replace("event_time: paid_at", "event_tim: paid_at"))
    checked = _dg(tmp_path, "check", "yaml")
    assert checked.exit_code == 1
    assert "'event_time' is a required property" in checked.output
