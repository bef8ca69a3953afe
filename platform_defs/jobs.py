"""The jobs: let in what has landed; advance the derived tables."""

import dagster as dg

from assets.keys import ORDERS, PAYMENT_ORDER_WIDE, PAYMENTS, event_key

RANGE_START, RANGE_END = "dagster/asset_partition_range_start", "dagster/asset_partition_range_end"

ingest_job = dg.define_asset_job(
    "ingest", selection=dg.AssetSelection.assets(event_key(ORDERS), event_key(PAYMENTS)), description="Let in what has landed."
)


advance_job = dg.define_asset_job(
    "advance",
    selection=dg.AssetSelection.assets(PAYMENT_ORDER_WIDE),
    description="Close what the watermark allows, up to the end of the last day asked for.",
)


def over(first: object, last: object) -> dict[str, str]:
    """The tags of a run over days."""
    return {RANGE_START: str(first), RANGE_END: str(last)}
