"""The exported metrics, with their names, types, labels and meanings."""

from dataclasses import dataclass
from typing import Any, Literal

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

PREFIX = "tidemark_"


@dataclass(frozen=True)
class MetricSpec:
    """A metric.

    Args:
        name: its name without the prefix.
        text: its meaning.
        labels: its labels.
        kind: its type in Prometheus.
    """

    name: str
    text: str
    labels: tuple[str, ...] = ()
    kind: Literal["gauge", "counter", "histogram"] = "gauge"

    @property
    def full_name(self) -> str:
        """The name with the prefix."""
        return f"{PREFIX}{self.name}"


_SOURCE, _TABLE = ("source",), ("table",)
OF_THE_LAKE = (
    MetricSpec(
        "up", "Whether the lake could be read for this scrape; if not, only `scrape_seconds` of the lake's other metrics is exported."
    ),
    MetricSpec("scrape_seconds", "How long it took to read the lake for this scrape."),
    MetricSpec("ledger_batches_total", "Batches of the ledger.", kind="counter"),
    MetricSpec("ledger_batch_timestamp_seconds", "When the newest batch of the ledger was committed."),
    MetricSpec("ingest_failed", "Whether an ingest has failed, and no later ingest has committed a batch or found nothing to ingest."),
    MetricSpec("source_read_rows_total", "Rows that were read.", _SOURCE, "counter"),
    MetricSpec(
        "source_rows_total",
        "Rows that were read, by their outcome: accepted, duplicate, quarantined or marker.",
        (*_SOURCE, "outcome"),
        "counter",
    ),
    MetricSpec("source_warned_rows_total", "Accepted rows that violate a rule whose action is to warn.", _SOURCE, "counter"),
    MetricSpec("source_watermark_timestamp_seconds", "The source's watermark.", _SOURCE),
    MetricSpec("source_watermark_lag_seconds", "How far the source's watermark is behind the clock.", _SOURCE),
    MetricSpec("source_event_timestamp_seconds", "The newest event time of the source.", _SOURCE),
    MetricSpec("source_active_timestamp_seconds", "When rows were last read, or the watermark was last set.", _SOURCE),
    MetricSpec("source_idle", "Whether the source is idle and does not hold back watermarks.", _SOURCE),
    MetricSpec(
        "source_waits_for_info",
        "1 if the source is not read because it waits for the source `behind`, of the same alignment group.",
        (*_SOURCE, "behind"),
    ),
    MetricSpec(
        "source_ahead_seconds",
        "How far the source is ahead of the source for which it waits; left out if that has no watermark yet.",
        _SOURCE,
    ),
    MetricSpec("source_failed", "Whether an input of the source cannot be read, or one of its topics is refused.", _SOURCE),
    MetricSpec("table_steps_total", "Committed steps; a rebuild continues the count.", _TABLE, "counter"),
    MetricSpec("table_step_timestamp_seconds", "When the newest step was committed.", _TABLE),
    MetricSpec("table_watermark_timestamp_seconds", "The table's watermark; results up to it can be made final.", _TABLE),
    MetricSpec("table_finalized_timestamp_seconds", "The event time up to which results are final.", _TABLE),
    MetricSpec("table_lag_seconds", "How far the final results are behind the table's watermark, in event time.", _TABLE),
    MetricSpec("table_unhandled_rows", "Accepted rows of the table's own sources, in batches that it has not handled.", _TABLE),
    MetricSpec(
        "table_stale_seconds", "How long rows of the table's sources have not been reflected in the table; 0 if it is fresh.", _TABLE
    ),
    MetricSpec(
        "table_state_rows",
        "Rows of the data files that a later step may read again, by part: table, kept_rows, event_log or input_table.",
        (*_TABLE, "part"),
    ),
    MetricSpec("table_state_bytes", "Bytes of the data files that `table_state_rows` counts, by part.", (*_TABLE, "part")),
    MetricSpec("table_state_files", "Number of the data files that `table_state_rows` counts, by part.", (*_TABLE, "part")),
    MetricSpec("table_skipped_files", "Other data files of the same tables, which data skipping leaves out, by part.", (*_TABLE, "part")),
    MetricSpec(
        "table_held_back_by_info",
        "1 for the source that holds back the watermark, if the table waits for several sources.",
        (*_TABLE, *_SOURCE),
    ),
    MetricSpec(
        "table_held_back_seconds",
        "How far the watermark of that source is behind the next lowest one; left out if the source has none yet.",
        _TABLE,
    ),
    MetricSpec(
        "table_waits_for_info", "1 for each table that must be advanced before this one can reach its watermark.", (*_TABLE, "upstream")
    ),
    MetricSpec(
        "table_readable",
        "Whether the table's log could be read; if not, the lake's other metrics of the table are left out, except `sink_failed`.",
        _TABLE,
    ),
    MetricSpec("table_refused", "Whether the table is refused until it is rebuilt.", _TABLE),
    MetricSpec(
        "table_failed", "Whether an advance of the table has failed, and no later one has made a step or found nothing to do.", _TABLE
    ),
    MetricSpec("table_failure_timestamp_seconds", "When the table failed; left out if `table_failed` is 0.", _TABLE),
    MetricSpec("sink_failed", "Whether the newest publish of the table to its Kafka topic has failed.", _TABLE),
    MetricSpec("table_law_holds", "Whether the conservation law held in the newest account.", _TABLE),
    MetricSpec("table_account_timestamp_seconds", "When the oldest part of the newest account was computed.", _TABLE),
    MetricSpec("table_account_age_seconds", "The age of the oldest part of the newest account.", _TABLE),
    MetricSpec("table_account_rows", "Rows of a side by term, in the newest account.", (*_TABLE, "side", "term")),
)
OF_A_STREAM = (
    MetricSpec("step_seconds", "How long a step took, including the check of the conservation law for its rows.", _TABLE, "histogram"),
    MetricSpec("step_failures_total", "Failed attempts to advance a table.", _TABLE, "counter"),
)
_BY_NAME = {metric.name: metric for metric in (*OF_THE_LAKE, *OF_A_STREAM)}


def metric_named(name: str) -> MetricSpec:
    """The metric with a name, which is given without the prefix."""
    return _BY_NAME[name]


def family(name: str, value: float | None = None) -> Any:
    """A family of one of the lake's metrics: with `value` if the metric has no labels, otherwise without samples."""
    metric = metric_named(name)
    kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
    return kind(metric.full_name, metric.text, value=value, labels=metric.labels or None)
