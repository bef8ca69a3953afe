"""Leaves out the tables that cannot be read, so that the other tables are advanced meanwhile."""

from collections.abc import Mapping
from dataclasses import replace

from platform_defs.engine import Engine, ProgressError
from platform_defs.engine.inputs.changelog_reader import APPLIED
from platform_defs.engine.inputs.progress import readers_of
from platform_defs.engine.lake.errors import UnreadableLogError

UNREADABLE = (UnreadableLogError, ProgressError)
"""The errors of a table that cannot be read until somebody acts; a fault of the store that may pass is another `LakeError`."""


def readable_tables(engine: Engine) -> tuple[Engine, Mapping[str, str]]:
    """Leave out the tables whose Delta log cannot be read, and those that read them.

    Returns:
        The engine without these tables, and the reason for each table whose log cannot be read. If every log can be read, the engine is the
        given one.
    """
    reasons = {name: reason for name in engine.assets if (reason := _reason(engine, name)) is not None}
    left_out = {*reasons, *readers_of(engine.assets, reasons)}
    if not left_out:
        return engine, reasons
    assets = {name: asset for name, asset in engine.assets.items() if name not in left_out}
    return replace(engine, assets=assets, earlier=engine), reasons


def _reason(engine: Engine, name: str) -> str | None:
    """Why the progress of a table cannot be read; None if it can."""
    try:
        engine.pending.progress(name)
        if engine.assets[name].operator.emits.upserts:  # their progress is in the log of the changelog, so the table's own log is read too
            engine.lake.newest_commit(name, APPLIED)
    except UNREADABLE as error:
        return str(error)
    return None
