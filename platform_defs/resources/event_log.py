"""The former module of the event log, which a `dagster.yaml` of an earlier version names.

Tidemark writes its own files anew, but a file that a user has changed keeps this name: without the module, Dagster would not start.
"""

from platform_defs.dagster_home.event_log import EventLogStorage

__all__ = ["EventLogStorage"]
