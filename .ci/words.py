"""Fail on identifiers that are too vague to say what they name."""

import ast
import sys
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BANNED = {"told", "said", "place", "placed", "due", "touched", "gone", "came", "there", "what", "books"}
BANNED |= {"let_in", "put_right", "tend", "touches", "chosen", "broken", "pinned", "is_pinned", "pin_versions"}
BANNED |= {"distrust", "not_ours", "made_anew", "is_news", "why_not", "way_out_of", "moving_back", "moved_back", "unranked"}
BANNED |= {"on_entry", "source_entry", "ledger_entry", "print_entries"}
CLASSES = {"Entry", "Entries", "SourceEntry", "OnEntry", "Ahead", "Truth", "Patience", "Tries", "Streak", "LawInTurn", "Complete"}
CLASSES |= {"Collected", "Numbered", "Described", "Naming", "Reading", "Written", "Landed", "Failed", "Waiting", "Fact", "Counting", "Done"}
"""Names that are too vague for a class."""
FUNCTIONS = {"of", "is", "do", "any", "and", "like", "take", "short", "known", "held", "holds", "turn", "note", "from", "in_turn", "result"}
FUNCTIONS |= {"fails", "stay", "looked_at_again"}
"""Names that are too vague for a private function. A public one may be read with its class or module, such as `ClosedRange.of`."""
BANNED_MODULES = BANNED | {"sides"}
FOLDERS = (".ci", "operators", "assets", "expectations", "platform_defs", "tests", "benchmarks", "examples", "docs")


def banned_names(tree: ast.AST) -> list[tuple[int, str]]:
    """The banned identifiers that a module gives to a value, an attribute, a parameter, an import or a definition, with their lines."""
    return [(node.lineno, name) for node in ast.walk(tree) if (name := _name(node)) and _is_banned(node, name)]


def _is_banned(node: ast.AST, name: str) -> bool:
    is_class, is_function = isinstance(node, ast.ClassDef), isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    word = name.strip("_")
    return word in BANNED or (is_class and word in CLASSES) or (is_function and name.startswith("_") and word in FUNCTIONS)


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


def main(root: Path = ROOT, folders: Iterable[str] = FOLDERS) -> int:
    """Print each banned identifier, and each folder without a Python file; returns 1 if there is one, else 0."""
    faults = list[str]()
    for folder in folders:
        modules = sorted((root / folder).rglob("*.py"))
        if not modules:
            faults.append(f"{root / folder} has no Python file: correct `FOLDERS` in .ci/words.py")
        for path in modules:
            of_module = [(1, path.stem)] if path.stem.strip("_") in BANNED_MODULES else []
            names = [*of_module, *banned_names(ast.parse(path.read_text("utf-8")))]
            faults += [f"{path.relative_to(root)}:{line}: `{name}` is too vague: say what it is here" for line, name in names]
    print(*faults, sep="\n", end="\n" if faults else "")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
