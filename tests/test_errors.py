"""All errors of the product derive from `TidemarkError`, so that a caller can catch them all."""

import importlib
import pkgutil
from types import ModuleType

import pytest

from operators import OperatorError, TidemarkError

PACKAGES = ("operators", "assets", "expectations", "platform_defs", "examples")


def _modules(package: str) -> list[ModuleType]:
    root = importlib.import_module(package)
    names = [found.name for found in pkgutil.walk_packages(root.__path__, f"{package}.") if not found.name.endswith("__main__")]
    return [root, *map(importlib.import_module, names)]


@pytest.mark.parametrize("package", PACKAGES)
def test_every_error_derives_from_tidemark_error(package: str) -> None:
    defined = {
        value
        for module in _modules(package)
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, Exception) and value.__module__.partition(".")[0] == package
    }
    assert [error for error in defined if not issubclass(error, TidemarkError)] == []
    assert defined or package in ("expectations", "examples"), "no error was found, so the test checks nothing"


def test_an_operator_error_is_a_value_error() -> None:
    assert issubclass(OperatorError, ValueError)
