"""Fail on identifiers that are too vague to say what they name."""

import ast
import sys
from pathlib import Path

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
FOLDERS = ("operators", "assets", "expectations", "platform_defs", "tests", "benchmarks", "examples", "docs")


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


def main() -> int:
    """Print each banned identifier; returns 1 if there is one, else 0."""
    found = 0
    for path in sorted(p for folder in FOLDERS for p in Path(folder).rglob("*.py")):
        of_module = [(1, path.stem)] if path.stem.strip("_") in BANNED_MODULES else []
        for line, name in [*of_module, *banned_names(ast.parse(path.read_text("utf-8")))]:
            print(f"{path}:{line}: `{name}` is too vague: say what it is here")
            found += 1
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
