"""The Dagster asset keys of event logs and tables, and the names of the steps that check them."""

from collections.abc import Sequence

import dagster as dg


def input_keys(inputs: Sequence[str], sources: Sequence[str]) -> list[dg.AssetKey]:
    """The asset keys of a derived table's inputs: event logs for those that are sources, tables for the others."""
    return [event_key(name) if name in sources else dg.AssetKey(name) for name in inputs]


def check_step_name(name: str, kind: str) -> str:
    """The name of a step that checks an asset. It starts with `_`, unlike the name of any table's step."""
    return f"_{name}_{kind}"


def event_key(source: str) -> dg.AssetKey:
    """The asset key of a source's event log."""
    return dg.AssetKey(["events", source])
