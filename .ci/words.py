"""Fail on identifiers that are too vague to say what they name."""

import ast
import sys
from pathlib import Path

BANNED = {"told", "said", "place", "placed", "due", "touched", "gone", "came", "there", "what", "books"}
BANNED |= {"let_in", "put_right", "tend"}
FOLDERS = ("operators", "assets", "expectations", "platform_defs", "tests", "benchmarks", "examples")


def names(tree: ast.AST) -> list[tuple[int, str]]:
    """Every identifier that a module gives to a value, a parameter or a definition, with its line."""
    found: list[tuple[int, str]] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.append((node.lineno, node.id))
        elif isinstance(node, ast.arg):
            found.append((node.lineno, node.arg))
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.append((node.lineno, node.name))
    return found


def main() -> int:
    """Print each banned identifier; returns 1 where there is one."""
    found = 0
    for path in sorted(p for folder in FOLDERS for p in Path(folder).rglob("*.py")):
        for line, name in names(ast.parse(path.read_text("utf-8"))):
            if name.strip("_") in BANNED:
                print(f"{path}:{line}: `{name}` is too vague: say what it is here")
                found += 1
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
