"""The folder of Dagster's instance, `DAGSTER_HOME`: its configuration file `dagster.yaml`, and the event log that this names."""

from platform_defs.dagster_home.instance import IntegrationError, main, prepare

__all__ = ["IntegrationError", "main", "prepare"]
