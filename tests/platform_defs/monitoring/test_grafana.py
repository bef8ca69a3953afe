"""The dashboard and the alerting rules query only metrics and labels that are exported. No test starts Spark."""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import date
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from assets.contracts import Alignment
from platform_defs.engine.accounting.day_accounts import DayAccount
from platform_defs.engine.operations.sink import Sink
from platform_defs.monitoring.catalog import OF_A_STREAM, OF_THE_LAKE
from platform_defs.monitoring.lake_metrics import LakeMetrics
from platform_defs.monitoring.stream_metrics import StreamMetrics
from platform_defs.settings import PROJECT
from tests.support.bare_lake import bare_engine, commit_batch, commit_step
from tests.support.clock import Clock
from tests.support.recorded_accounts import record_accounts
from tests.support.small_sources import HOUR, START, join, source

DASHBOARD = json.loads((PROJECT / "grafana/tidemark.json").read_text("utf-8"))
RULES = yaml.safe_load((PROJECT / "grafana/alert-rules.yaml").read_text("utf-8"))["groups"][0]["rules"]
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
_METRIC = re.compile(r"\btidemark_\w+")
_SELECTOR = re.compile(r"(tidemark_\w+)\{([^}]*)\}")
_LABELS_OF_PROMETHEUS = {"le", "instance", "job"}


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """The labels of each exported metric; in the lake of this fixture, each metric has a value."""
    sources = [source(name, alignment=Alignment("g", "1 hour"), idle_timeout="1 day") for name in ("l", "r")]
    engine = bare_engine(
        tmp_path_factory.mktemp("lake"),
        Clock(),
        sources,
        [join(), join("wide", ("pairs", "r"), left_prefix="pair_", right_prefix="other_")],
    )
    commit_batch(engine, {"l": {"watermark": START + 2 * HOUR}, "r": {"watermark": START}})
    commit_step(engine, "pairs", closed_to=START - HOUR)
    record_accounts(engine, "pairs", [DayAccount("l", date(2026, 3, 1), accepted=1)])
    with pytest.raises(AssertionError, match="a session is started"):
        engine.advance("pairs")
    registry = CollectorRegistry(auto_describe=False)
    registry.register(LakeMetrics(replace(engine, sinks={"pairs": Sink(topic="pairs", options={})})))
    stream = StreamMetrics(registry)
    with pytest.raises(ValueError, match="failed"):
        [*stream.measure_steps("pairs", _failing())]
    samples = [s for family in text_string_to_metric_families(generate_latest(registry).decode()) for s in family.samples]
    return {name: set().union(*(s.labels for s in samples if s.name == name)) for name in {s.name for s in samples}}


def _failing() -> Iterator[Any]:
    yield "a step"
    raise ValueError("failed")


def _panel_expressions() -> list[str]:
    return [target["expr"] for panel in PANELS for target in panel["targets"]]


def _expressions() -> list[str]:
    variables = [v["query"]["query"] for v in DASHBOARD["templating"]["list"] if v["type"] == "query"]
    return [*_panel_expressions(), *variables, *(rule["expr"] for rule in RULES)]


@pytest.mark.parametrize("expression", _expressions())
def test_an_expression_queries_exported_metrics_and_labels(exported: dict[str, set[str]], expression: str) -> None:
    named = _METRIC.findall(expression)
    assert named
    assert {*named} <= exported.keys()
    for metric, selector in _SELECTOR.findall(expression):
        assert {part.strip().partition("=")[0].rstrip("!~") for part in selector.split(",")} <= exported[metric]
    known = set().union(*(exported[name] for name in named)) | _LABELS_OF_PROMETHEUS
    grouped = re.findall(r"\bby \(([^)]*)\)", expression) + re.findall(r"label_values\(\w+, (\w+)\)", expression)
    assert {label.strip() for labels in grouped for label in labels.split(",")} <= known
    assert expression.count("(") == expression.count(")")


@pytest.mark.parametrize("expression", _expressions())
def test_two_endpoints_of_a_lake_are_not_counted_twice(expression: str) -> None:
    """`tidemark metrics` and a stream serve the same metrics, each with its own label `instance`."""
    of_a_lake = "|".join(metric.full_name for metric in OF_THE_LAKE)
    for found in re.finditer(rf"\b({of_a_lake})\b", expression):
        before = expression[: found.start()]
        assert re.search(r"(\b(max|min)( by \([^)]*\) )?\((rate\(|increase\()?|absent\(|label_values\()$", before), before


def test_a_missing_endpoint_alerts() -> None:
    assert "absent(tidemark_up)" in {rule["expr"] for rule in RULES}


def test_the_dashboard_shows_every_metric_that_an_operator_acts_on(exported: dict[str, set[str]]) -> None:
    shown = {name for expression in _panel_expressions() for name in _METRIC.findall(expression)}
    not_shown = {name.removeprefix("tidemark_") for name in exported.keys() - shown}
    assert not_shown == {
        "ledger_batches_total",
        "scrape_seconds",
        "source_active_timestamp_seconds",
        "source_event_timestamp_seconds",
        "source_watermark_timestamp_seconds",
        "step_seconds_count",
        "step_seconds_sum",
        "table_account_timestamp_seconds",
        "table_failure_timestamp_seconds",
        "table_finalized_timestamp_seconds",
        "table_steps_total",
        "table_watermark_timestamp_seconds",
    }


def test_a_stat_has_a_value_if_a_metric_has_no_series() -> None:
    """A panel without a value would keep its last one. So the lake's counts are 0, and the lake is shown as unreadable."""
    stats = {panel["title"]: panel["targets"][0]["expr"] for panel in PANELS if panel["type"] == "stat"}
    assert {title for title, expression in stats.items() if "or vector(0)" not in expression} == {"Most stale table", "Newest batch"}
    assert stats["Failing"].count(" or vector(0)") == 4


def test_the_catalog_has_every_exported_metric_with_its_labels(exported: dict[str, set[str]]) -> None:
    of_histograms = {f"step_seconds_{part}" for part in ("bucket", "count", "sum")}
    described = {metric.full_name: set(metric.labels) for metric in (*OF_THE_LAKE, *OF_A_STREAM) if metric.kind != "histogram"}
    assert described == {name: labels for name, labels in exported.items() if name.removeprefix("tidemark_") not in of_histograms}


def test_legends_and_summaries_name_labels_of_the_result() -> None:
    for panel in PANELS:
        for target in panel["targets"]:
            for label in re.findall(r"{{(\w+)}}", target["legendFormat"]):
                assert re.search(rf"\bby \([^)]*\b{label}\b|tidemark_\w+{{{label}=~", target["expr"]), f"{panel['title']} has no {label}"
    assert all(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"]) in ([], ["table"], ["source"]) for rule in RULES)


def test_panels_have_their_own_number_and_do_not_overlap() -> None:
    panels = DASHBOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    boxes = [panel["gridPos"] for panel in panels]
    assert all(box["x"] + box["w"] <= 24 for box in boxes)
    for a, b in combinations(boxes, 2):
        beside = a["x"] + a["w"] <= b["x"] or b["x"] + b["w"] <= a["x"]
        assert beside or a["y"] + a["h"] <= b["y"] or b["y"] + b["h"] <= a["y"]


def test_every_panel_reads_the_data_source_that_is_selected() -> None:
    sources = {json.dumps(part["datasource"]) for panel in PANELS for part in [panel, *panel["targets"]]}
    assert sources == {json.dumps({"type": "prometheus", "uid": "${datasource}"})}
    assert Path(PROJECT, "grafana", "tidemark.json").read_text("utf-8").endswith("}\n")
