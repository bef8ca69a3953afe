"""The part of a status that names code that the engine cannot compare, in tables without a `version`."""

from collections.abc import Mapping
from typing import Any

from assets.contracts import DerivedAsset
from assets.uncompared_code import code_without_version
from platform_defs.cli.render import out, plain

_PARTS = "code_without_version"


def of_table(table: DerivedAsset) -> dict[str, Any]:
    """The parts of a table's definition that the engine cannot compare, as `code_without_version`; empty if there are none."""
    parts = code_without_version(table)
    return {_PARTS: [*parts]} if parts else {}


def print_uncompared(tables: Mapping[str, Mapping[str, Any]]) -> None:
    """Print the tables with code that the engine cannot compare, in one line."""
    named = [f"{name} ({', '.join(table[_PARTS])})" for name, table in tables.items() if table.get(_PARTS)]
    if named:
        text = (
            f"The engine cannot compare the code of tables without a `version`: {', '.join(named)}. When you change that code, give the "
            "table a `version`, and run `tidemark rebuild NAME --downstream`."
        )
        out.print(plain(text), highlight=False, soft_wrap=True)
