"""Defers the imports of libraries that only a few expectations use, to the first use."""

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType
from typing import Any


class DeferredModule(ModuleType):
    """Stands in for a module, and imports it when one of its attributes is first read."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # the import system asks for these names, and so do modules that look through `sys.modules`
            raise AttributeError(name)
        _remove(self)
        return getattr(import_module(self.__name__), name)


@contextmanager
def deferred(*names: str) -> Iterator[None]:
    """Give `DeferredModule`s to the modules that are imported while the block runs, and to no others.

    A module that has been imported before is not deferred. Garbage collection is disabled during the block: imports leave almost no
    garbage, and collecting it takes a fifth of their time.

    Args:
        names: the full names of modules. If an attribute of one is read during the imports, it is imported at once.
    """
    modules = [DeferredModule(name) for name in names if name not in sys.modules]
    for module in modules:
        sys.modules[module.__name__] = module
        package, _, attribute = module.__name__.rpartition(".")
        if package:
            setattr(import_module(package), attribute, module)
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
        for module in modules:
            _remove(module)


def _remove(module: ModuleType) -> None:
    """Let the next import of the module's name load the real one."""
    if sys.modules.get(module.__name__) is module:
        del sys.modules[module.__name__]
    package, _, attribute = module.__name__.rpartition(".")
    if package and vars(import_module(package)).get(attribute) is module:
        delattr(import_module(package), attribute)
