"""The lake of the settings, with the options of its store."""

from operators.timing import length_ms
from platform_defs.connections.file import connections
from platform_defs.connections.s3 import store_of
from platform_defs.engine.lake.tables import Lake
from platform_defs.settings import Settings


def lake_of(values: Settings) -> Lake:
    """The lake of the settings.

    Raises:
        ConnectionsError: the connections are not legal, or name an environment variable that is not set.
    """
    store = store_of(values, connections(values).s3)
    return Lake(values.lake, length_ms(values.lease, "lease") / 1000, storage_options=store.storage_options if store else None)
