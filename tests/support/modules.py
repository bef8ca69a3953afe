"""Imports modules that a test has written into a folder."""

import importlib
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def forget_modules(folder: Path) -> None:
    """Forget the imported modules whose file is in a folder, so that the next import of the same name finds another file."""
    inside = f"{folder}{os.sep}"
    for name, module in [*sys.modules.items()]:
        if str(getattr(module, "__file__", None) or "").startswith(inside):
            del sys.modules[name]
    importlib.invalidate_caches()


@contextmanager
def modules_of(folder: Path) -> Iterator[None]:
    """The block may import modules of a folder. Afterwards they are forgotten, and `sys.path` is as before."""
    path = [*sys.path]
    try:
        yield
    finally:
        sys.path[:] = path
        forget_modules(folder)
