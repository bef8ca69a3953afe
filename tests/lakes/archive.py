"""What a lake in an archive consists of: its sources, its tables, and the rows that are ingested before and after it is packed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from assets.contracts import DerivedAsset, SourceContract
from tests.support.small_sources import Event

Batch = Mapping[str, Sequence[Event]]


@dataclass(frozen=True, kw_only=True)
class Archive:
    """The lake in `tests/lakes/<name>.tar.gz`, by values only, so that a checkout of an earlier version can read it too.

    Args:
        sources: the sources.
        tables: the tables, each after the tables that it reads.
        batches: the rows by source that were ingested before the lake was packed. Each batch was followed by an advance of every table.
        later: the rows that a later version ingests. After them, early results no longer depend on earlier steps.
        pause: how long (ms) after a batch the next one is ingested, by the ledger's clock.
    """

    sources: Sequence[SourceContract]
    tables: Sequence[DerivedAsset]
    batches: Sequence[Batch]
    later: Batch
    pause: int = 0
