"""Fail on identifiers that are too vague to say what they name."""

import ast
import sys
from pathlib import Path

BANNED = {"told", "said", "place", "placed", "due", "touched", "gone", "came", "there", "what", "books"}
BANNED |= {"let_in", "put_right", "tend"}
BANNED_MODULES = BANNED | {"sides"}
FOLDERS = ("operators", "assets", "expectations", "platform_defs", "tests", "benchmarks", "examples", "docs")


def names(tree: ast.AST) -> list[tuple[int, str]]:
    """Every identifier that a module gives to a value, an attribute, a parameter, an import or a definition, with its line."""
    return [(node.lineno, name) for node in ast.walk(tree) if (name := _name(node))]


def _name(node: ast.AST) -> str | None:
    match node:
        case ast.Name(ctx=ast.Store(), id=name) | ast.Attribute(ctx=ast.Store(), attr=name):
            return name
        case ast.arg(arg=name) | ast.alias(asname=name):
            return name
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return name
        case ast.ExceptHandler(name=name) | ast.MatchAs(name=name) | ast.MatchStar(name=name) | ast.MatchMapping(rest=name):
            return name
    return None


def main() -> int:
    """Print each banned identifier; returns 1 if there is one, else 0."""
    found = 0
    for path in sorted(p for folder in FOLDERS for p in Path(folder).rglob("*.py")):
        vague = [(1, path.stem)] if path.stem.strip("_") in BANNED_MODULES else []
        vague += [(line, name) for line, name in names(ast.parse(path.read_text("utf-8"))) if name.strip("_") in BANNED]
        for line, name in vague:
            print(f"{path}:{line}: `{name}` is too vague: say what it is here")
        found += len(vague)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
