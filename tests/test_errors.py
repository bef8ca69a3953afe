"""Every error of the product has one base class, so that whoever catches it catches all of them."""

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
def test_every_error_has_the_one_base_class(package: str) -> None:
    defined = {
        value
        for module in _modules(package)
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, Exception) and value.__module__.partition(".")[0] == package
    }
    assert [error for error in defined if not issubclass(error, TidemarkError)] == []
    assert package in ("assets", "expectations", "examples") or defined


def test_errors_of_values_are_still_value_errors() -> None:
    assert issubclass(OperatorError, ValueError)
