"""The metrics that are exported: their names, kinds, labels and meanings."""

from dataclasses import dataclass
from typing import Any, Literal

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

PREFIX = "tidemark_"


@dataclass(frozen=True)
class Described:
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
    Described("up", "Whether the lake could be read for this scrape."),
    Described("scrape_seconds", "How long it took to read the lake for this scrape."),
    Described("ledger_batches_total", "Batches of the ledger.", kind="counter"),
    Described("ledger_batch_timestamp_seconds", "When the newest batch of the ledger was committed."),
    Described("ingest_failed", "Whether an ingest has failed, and none has committed a batch or found nothing to ingest since."),
    Described("source_read_rows_total", "Rows that were read.", _SOURCE, "counter"),
    Described(
        "source_rows_total",
        "Rows that were read, by their outcome: accepted, duplicate, quarantined or marker.",
        (*_SOURCE, "outcome"),
        "counter",
    ),
    Described("source_warned_rows_total", "Accepted rows that violate a rule whose action is to warn.", _SOURCE, "counter"),
    Described("source_watermark_timestamp_seconds", "The source's watermark.", _SOURCE),
    Described("source_watermark_lag_seconds", "How far the source's watermark is behind the clock.", _SOURCE),
    Described("source_event_timestamp_seconds", "The newest event time of the source.", _SOURCE),
    Described("source_active_timestamp_seconds", "When rows were last read, or the watermark was last set.", _SOURCE),
    Described("source_idle", "Whether the source is idle and does not hold back watermarks.", _SOURCE),
    Described(
        "source_waits_for_info",
        "1 for the source of its alignment group for which the source waits, and is not read.",
        (*_SOURCE, "behind"),
    ),
    Described("source_ahead_seconds", "How far the source is ahead of that one; left out if that one has no watermark yet.", _SOURCE),
    Described("source_failed", "Whether some input of the source cannot be read, or a topic is refused.", _SOURCE),
    Described("table_steps_total", "Committed steps; a rebuild starts again.", _TABLE, "counter"),
    Described("table_step_timestamp_seconds", "When the newest step was committed.", _TABLE),
    Described("table_watermark_timestamp_seconds", "The table's watermark, up to which its results could be final.", _TABLE),
    Described("table_finalized_timestamp_seconds", "The event time up to which results are final.", _TABLE),
    Described("table_lag_seconds", "How far the final results are behind the table's watermark, in event time.", _TABLE),
    Described("table_unhandled_rows", "Accepted rows of its own sources in batches that the table has not handled.", _TABLE),
    Described("table_stale_seconds", "For how long the table has not reflected rows of its sources; 0 if it is fresh.", _TABLE),
    Described(
        "table_state_rows",
        "Rows of the data files in which a later step may read rows again, by part: table, kept_rows, event_log or input_table.",
        (*_TABLE, "part"),
    ),
    Described("table_state_bytes", "Bytes of the data files that `table_state_rows` counts, by part.", (*_TABLE, "part")),
    Described(
        "table_held_back_by_info", "1 for the source that holds back the watermark, if the table waits for several.", (*_TABLE, *_SOURCE)
    ),
    Described("table_held_back_seconds", "How far that source's watermark is behind the next one; left out if it has none yet.", _TABLE),
    Described(
        "table_waits_for_info", "1 for each table that must be advanced before this one can reach its watermark.", (*_TABLE, "upstream")
    ),
    Described("table_readable", "Whether the table's log could be read; if not, the table has no other metric.", _TABLE),
    Described("table_refused", "Whether the table is refused until it is rebuilt.", _TABLE),
    Described("table_failed", "Whether the table has failed, and no advance has made a step or found nothing to do since.", _TABLE),
    Described("table_failure_timestamp_seconds", "When the table failed; left out if `table_failed` is 0.", _TABLE),
    Described("sink_failed", "Whether the newest publish of the table to its Kafka topic has failed.", _TABLE),
    Described("table_law_holds", "Whether the conservation law held in the last account.", _TABLE),
    Described("table_account_timestamp_seconds", "When the oldest part of the last account was computed.", _TABLE),
    Described("table_account_age_seconds", "The age of the oldest part of the last account.", _TABLE),
    Described("table_account_rows", "Rows of a side by term, in the last account.", (*_TABLE, "side", "term")),
)
OF_A_STREAM = (
    Described("step_seconds", "How long a step took, including the check of the conservation law for its rows.", _TABLE, "histogram"),
    Described("step_failures_total", "Failed tries to advance a table.", _TABLE, "counter"),
)
_BY_NAME = {metric.name: metric for metric in (*OF_THE_LAKE, *OF_A_STREAM)}


def metric_named(name: str) -> Described:
    """The metric of a name without the prefix."""
    return _BY_NAME[name]


def family(name: str, value: float | None = None) -> Any:
    """An empty family of a metric of the lake; with a value if it has no labels."""
    metric = metric_named(name)
    kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
    return kind(metric.full_name, metric.text, value=value, labels=metric.labels or None)
