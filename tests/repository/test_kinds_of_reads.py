"""How a table advances is decided in few places: the product rarely asks of which kind an operator's `reads` or `emits` are.

Elsewhere, code uses the members that all kinds have, such as `Reads.closes_ranges`, so that it need not know the kinds.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from operators.steps import Emits, Reads

ROOT = Path(__file__).parents[2]
PACKAGES = ("operators", "assets", "expectations", "platform_defs")
MOST = 10
KINDS = {kind.__name__ for base in (Reads, Emits) for kind in (base, *base.__subclasses__()) if kind.__module__ == Reads.__module__}


def checks_of_kinds(source: str) -> list[int]:
    """The lines with an `isinstance`, an `issubclass`, a comparison of a `type` or a `case` with a kind of reads or emits."""
    tree = ast.parse(source)
    names = _names_of_kinds(tree)
    return sorted(asked.lineno for node in ast.walk(tree) for asked in _asked(node) if _mentions(asked, names))


def _names_of_kinds(tree: ast.Module) -> set[str]:
    """The kinds, the names under which a module imports them, and its constants that contain them, such as a tuple."""
    names = {alias.asname or alias.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in _of_kinds(node)}
    names |= KINDS
    constants = [node for node in tree.body if isinstance(node, ast.Assign) and isinstance(node.value, ast.Tuple | ast.BinOp)]
    return names | {
        target.id for node in constants if _mentions(node.value, names) for target in node.targets if isinstance(target, ast.Name)
    }


def _of_kinds(node: ast.ImportFrom) -> list[ast.alias]:
    return [alias for alias in node.names if alias.name in KINDS]


def _asked(node: ast.AST) -> Iterator[ast.expr]:
    """The classes with which a check compares; none if the node is no check of a class."""
    match node:
        case ast.Call(func=ast.Name(id="isinstance" | "issubclass"), args=[_, classes]):
            yield classes
        case ast.Compare(left=ast.Call(func=ast.Name(id="type")), comparators=[classes]):
            yield classes
        case ast.match_case():
            yield from (inner.cls for inner in ast.walk(node.pattern) if isinstance(inner, ast.MatchClass))


def _mentions(classes: ast.expr, names: set[str]) -> bool:
    """Whether an expression of classes contains one with such a name."""
    used = {
        node.id if isinstance(node, ast.Name) else node.attr for node in ast.walk(classes) if isinstance(node, ast.Name | ast.Attribute)
    }
    return not used.isdisjoint(names)


def test_the_product_asks_for_a_kind_of_reads_or_emits_in_at_most_10_places() -> None:
    assert {"Reads", "NewRows", "ByKey", "ByTimeRange", "Emits", "Append", "Upsert"} == KINDS
    places = [
        f"{path.relative_to(ROOT)}:{line}"
        for package in PACKAGES
        for path in sorted((ROOT / package).rglob("*.py"))
        for line in checks_of_kinds(path.read_text("utf-8"))
    ]
    assert places, "the strategy of a table is chosen by what its operator reads"
    assert len(places) <= MOST, f"use a member of `Reads` or `Emits` instead of asking for its kind: {', '.join(places)}"


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        pytest.param("x = isinstance(reads, NewRows)", [1], id="isinstance"),
        pytest.param("x = isinstance(reads, (str, NewRows))", [1], id="a tuple"),
        pytest.param("x = isinstance(\n    reads,\n    ByKey | None,\n)", [3], id="a union over several lines"),
        pytest.param("x = isinstance(emits, steps.Upsert) or isinstance(emits, steps.Append)", [1, 1], id="two in a line"),
        pytest.param("x = issubclass(kind, Reads)", [1], id="issubclass"),
        pytest.param("x = type(reads) is NewRows", [1], id="a comparison of types"),
        pytest.param("x = type(reads) in (NewRows, ByKey)", [1], id="a type in a tuple"),
        pytest.param("from operators import NewRows as Merged\nx = isinstance(reads, Merged)", [2], id="another name"),
        pytest.param("KINDS = (NewRows, ByKey)\nx = isinstance(reads, KINDS)", [2], id="a constant"),
        pytest.param(
            "match reads:\n    case NewRows():\n        pass\n    case [ByKey(key=key)] if key:\n        pass", [2, 4], id="match"
        ),
        pytest.param("x = NewRows(isinstance(key, tuple))\nmatch x:\n    case str():\n        pass", [], id="no check of a kind"),
        pytest.param("def reads(self) -> NewRows: return NewRows()", [], id="a value"),
    ],
)
def test_checks_of_kinds_are_found(source: str, lines: list[int]) -> None:
    assert checks_of_kinds(source) == lines
