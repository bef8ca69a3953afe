"""The folder of Dagster's instance, `DAGSTER_HOME`: its configuration file `dagster.yaml`, and the event log that this names.

Each process of Dagster imports the event log, so nothing is imported here: importing the settings would take seconds.
"""
