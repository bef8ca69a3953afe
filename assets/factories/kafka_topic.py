"""The factory of assets for Kafka topics to which tables are published."""

from collections.abc import Iterator

import dagster as dg

from assets.contracts import DerivedAsset
from assets.factories.pool import SPARK
from assets.ports import EnginePort, PublishedPort


def topic_key(table: str) -> dg.AssetKey:
    """The asset key of the topic to which a table is published."""
    return dg.AssetKey(["kafka", table])


def published_metadata(publication: PublishedPort) -> dict[str, str | int]:
    """The metadata of a topic's materialization."""
    return {"topic": publication.topic, "step": publication.step, "steps": publication.steps, "records": publication.records}


def topic_asset(derived: DerivedAsset, topic: str) -> dg.AssetsDefinition:
    """Make the Kafka topic of a table an asset without partitions, downstream of the table.

    Materializing it publishes the steps that the topic does not have yet.

    Args:
        derived: the table.
        topic: the topic's name.
    """
    content = "changes" if derived.operator.emits.upserts else "final results, and their corrections,"

    @dg.asset(
        key=topic_key(derived.name),
        deps=[dg.AssetKey(derived.name)],
        backfill_policy=dg.BackfillPolicy.single_run(),  # else Dagster's command line refuses a range of days for `advance`
        group_name=derived.group,
        kinds={"kafka"},
        owners=derived.owners,
        tags=derived.tags,
        pool=SPARK,
        description=f"The {content} of `{derived.name}`, in the Kafka topic `{topic}`.",
        metadata={"topic": topic},
    )
    def published(engine: dg.ResourceParam[EnginePort]) -> Iterator[dg.MaterializeResult]:
        publication = engine.views.publish_to_topic(derived.name)
        yield dg.MaterializeResult(metadata=published_metadata(publication))

    return published
