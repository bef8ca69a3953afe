"""The start of the command line."""

import gc
import sys
import tomllib
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_loader
from pkgutil import resolve_name
from types import ModuleType

import pytest

from platform_defs import cli
from platform_defs.cli import start
from platform_defs.settings import PROJECT


class CommandLine(MetaPathFinder, Loader):
    """Stands in for the module of the command line, and records whether garbage collection is enabled."""

    def __init__(self) -> None:
        self.enabled = list[tuple[str, bool]]()

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        return spec_from_loader(fullname, self) if fullname == "platform_defs.cli.main" else None

    def exec_module(self, module: ModuleType) -> None:
        self.enabled.append(("import", gc.isenabled()))
        vars(module)["main"] = lambda: self.enabled.append(("command", gc.isenabled()))


def test_garbage_is_collected_while_a_command_runs_but_not_during_its_imports(monkeypatch: pytest.MonkeyPatch):
    command_line = CommandLine()
    monkeypatch.setattr(cli, "main", None, raising=False)
    monkeypatch.delitem(sys.modules, "platform_defs.cli.main", raising=False)
    monkeypatch.setattr(sys, "meta_path", [command_line, *sys.meta_path])
    monkeypatch.setattr(gc, "freeze", lambda: None)  # the objects of other tests are not frozen
    start.main()
    assert command_line.enabled == [("import", False), ("command", True)]


def test_the_installed_command_is_this_one():
    scripts = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]["scripts"]
    assert resolve_name(scripts["tidemark"]) is start.main
