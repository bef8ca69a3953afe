"""The examples in the operators' docstrings run."""

import doctest
import importlib
import pkgutil
from dataclasses import is_dataclass

import pytest

import operators

MODULES = [operators.__name__, *(m.name for m in pkgutil.walk_packages(operators.__path__, f"{operators.__name__}."))]


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples_run(name: str):
    result = doctest.testmod(importlib.import_module(name), raise_on_error=False)
    assert result.failed == 0


def test_every_operator_has_an_example():
    public = {name: getattr(operators, name) for name in operators.__all__}
    made = {name: one for name, one in public.items() if is_dataclass(one) and hasattr(one, "emits")}
    assert [name for name, one in made.items() if not any(found.examples for found in doctest.DocTestFinder().find(one))] == []
    assert len(made) > 10
