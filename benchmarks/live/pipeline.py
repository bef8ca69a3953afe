"""The pipeline of the live benchmarks: one topic of events, a table of closed windows and an upserted table."""

from assets.contracts import BoundedOutOfOrderness, DerivedAsset, SourceContract
from assets.pipeline import Pipeline
from operators import Aggregate, Tumbling, WindowedAggregate

EVENTS, WINDOWS, TOTALS = "measurements", "windows", "totals"
WINDOW_MS, BOUND_MS = 250, 1_000
AGGREGATES = {"events": "count(*)", "last_id": "max(id)", "sum": "sum(v)"}

measurements = SourceContract(
    name=EVENTS,
    schema="id LONG NOT NULL, k STRING NOT NULL, at TIMESTAMP, v INT",
    event_time="at",
    watermark=BoundedOutOfOrderness(f"{BOUND_MS} milliseconds"),
)
windows = DerivedAsset(
    name=WINDOWS,
    inputs=(EVENTS,),
    operator=WindowedAggregate(by="k", window=Tumbling(size=f"{WINDOW_MS} milliseconds"), aggregates=AGGREGATES),
)
totals = DerivedAsset(name=TOTALS, inputs=(EVENTS,), operator=Aggregate(by="k", aggregates=AGGREGATES))
pipeline = Pipeline(sources=[measurements], tables=[windows, totals])
