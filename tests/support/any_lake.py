"""Lands input and advances tables, in a lake on this machine or in S3."""

from pathlib import Path

import obstore

from platform_defs.engine import Engine
from platform_defs.engine.lake.objects import store_at


def put_input(engine: Engine, source: str, file: str, content: str) -> None:
    """Land a file in a source's folder."""
    if engine.lake.is_local:
        path = Path(engine.folders[source], file)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")
    else:
        obstore.put(store_at(engine.folders[source], engine.lake.storage_options), file, content.encode())


def advance_all(engine: Engine) -> None:
    """Advance all tables, and check the conservation law of each step."""
    for name in engine.assets:
        for _ in engine.steps(name, checked=True):
            pass
