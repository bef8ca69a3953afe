"""Every commit by deltalake in the product has the options of `commits.commit_options`."""

import ast
import inspect
from collections.abc import Iterator
from pathlib import Path

import deltalake
import pytest
from deltalake import transaction
from deltalake.table import TableAlterer, TableOptimizer

ROOT = Path(__file__).parents[3]
PACKAGES = ("assets", "expectations", "operators", "platform_defs")
OWNER = "platform_defs/engine/lake/commits.py"
OPTION_TYPES = {"CommitProperties", "PostCommitHookProperties", "Transaction"}
COMMITTING = {
    name
    for owner in (deltalake.DeltaTable, TableAlterer, TableOptimizer, deltalake, transaction)
    for name, member in inspect.getmembers(owner, lambda member: inspect.isfunction(member) or inspect.ismethod(member))
    if "commit_properties" in inspect.signature(member).parameters
}
"""The names of deltalake's functions and methods that commit."""
COMMON = {"create", "compact", "delete", "merge", "repair", "restore", "update", "vacuum"}
"""The names among them that other objects have too; they are looked for only in modules that import deltalake's tables."""
OTHERS = {"commits.create", "obstore.delete", "self.compact", "self.lake.vacuum", "self.ledger.compact", "target.merge"}
"""Functions with these names in those modules that are not deltalake's: of `commits`, the lake, the ledger, Spark's table, `obstore`."""


def commits_without_options(source: str) -> list[str]:
    """The committing functions that a module uses without `**options` or `**commit_options(...)`, and its imports of the options' types."""
    if not any(name in source for name in {"deltalake", *OPTION_TYPES, *(COMMITTING - COMMON)}):
        return []
    tree = ast.parse(source)
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and _is_deltalake(node) for alias in node.names}
    names = COMMITTING if imported & {"DeltaTable", "write_deltalake"} else COMMITTING - COMMON
    with_options = {ast.unparse(function) for call in _calls(tree) if _has_options(call) for function in (call.func, *call.args)}
    used = {ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.Attribute) and node.attr in names}
    used |= {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and node.id in imported & COMMITTING}
    return sorted((imported & OPTION_TYPES) | (used - with_options - OTHERS))


def _is_deltalake(node: ast.ImportFrom) -> bool:
    return (node.module or "").split(".")[0] == "deltalake"


def _calls(tree: ast.AST) -> Iterator[ast.Call]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.Call))


def _has_options(call: ast.Call) -> bool:
    splats = [ast.unparse(keyword.value).split("(")[0].split(".")[-1] for keyword in call.keywords if keyword.arg is None]
    return not {"options", "commit_options", "_options"}.isdisjoint(splats)


def test_every_commit_has_the_options() -> None:
    files = [path for package in PACKAGES for path in (ROOT / package).rglob("*.py")]
    found = {str(path.relative_to(ROOT)): commits_without_options(path.read_text()) for path in files}
    assert found.pop(OWNER) == sorted(OPTION_TYPES)
    assert {path: names for path, names in found.items() if names} == {}


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("from deltalake import DeltaTable\nDeltaTable('t').delete('a')", ["DeltaTable('t').delete"]),
        ("from deltalake import DeltaTable\ntable.delete('a', **commit_options({}))", []),
        ("delta.alter.add_columns(columns)", ["delta.alter.add_columns"]),
        ("partial(delta.alter.add_columns, columns, **options)", []),
        ("from deltalake import CommitProperties, write_deltalake", ["CommitProperties"]),
        ("from deltalake import write_deltalake\npartial(write_deltalake, target)", ["write_deltalake"]),
        ("values.update(others)", []),
    ],
)
def test_commits_without_the_options_are_found(source: str, found: list[str]) -> None:
    assert commits_without_options(source) == found
