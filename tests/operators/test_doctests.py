"""The examples in the operators' docstrings run."""

import doctest
import importlib
import pkgutil

import pytest

import operators

MODULES = [operators.__name__, *(m.name for m in pkgutil.walk_packages(operators.__path__, f"{operators.__name__}."))]


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples_run(name: str):
    result = doctest.testmod(importlib.import_module(name), raise_on_error=False)
    assert result.failed == 0


def test_docstrings_have_examples():
    finder = doctest.DocTestFinder()
    assert sum(len(t.examples) for name in MODULES for t in finder.find(importlib.import_module(name))) >= 3
