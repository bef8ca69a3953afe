"""Generates the parts of pages that the code defines, where a page has `<!-- generated: NAME -->`, and says where code may break."""

import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import typer

from assets.factories.metadata import COLUMN_DESCRIPTIONS
from platform_defs.cli.commands import app
from platform_defs.engine.ledger.rows import SCHEMA, SourceBatch
from platform_defs.monitoring.catalog import OF_A_STREAM, OF_THE_LAKE, MetricSpec
from platform_defs.settings import Settings
from platform_defs.settings.shop import ShopSettings
from platform_defs.settings.values import PREFIX, PROJECT

_MARK = re.compile(r"<!-- generated: ([\w-]+) -->")
_LONG_NAME = re.compile(r"(?<=<code>)[^<>\s]{32,}(?=</code>)")
"""A name in code, such as the path of a test, that would make a column of a table too wide."""
_CODE = re.compile(r"(?<=<code>)[^<>]+(?=</code>)")
_WHOLE = re.compile(r"(?<![\w-])--[a-z][a-z-]*|\d{4}-\d\d-\d\d(?:\.{3}\d{4}-\d\d-\d\d)?")
"""A part of code that is read as one word: an option of a command, a date, a range of dates. Browsers break lines after a hyphen."""


def on_page_markdown(markdown: str, **_: object) -> str:
    """Replace each mark of a page by the part that it names."""
    return _MARK.sub(lambda mark: PARTS[mark[1]](), markdown)


def on_page_content(html: str, **_: object) -> str:
    """Let the long names in tables break after punctuation or before an underscore, and not within a word; keep options and dates whole."""
    html = re.sub(r"<td.*?</td>", lambda cell: _LONG_NAME.sub(lambda name: _breakable(name[0]), cell[0]), html, flags=re.DOTALL)
    return _CODE.sub(lambda code: _WHOLE.sub(r'<span class="whole">\g<0></span>', code[0]), html)


def _breakable(name: str) -> str:
    return re.sub(r"(?<=[/:.,])(?=[^/:.,)])|(?=_)", "<wbr>", name)


def settings_table(names: Iterable[str]) -> str:
    """A table of settings: the variable, the default, and the description."""
    rows = ["| variable | default | meaning |", "|---|---|---|"]
    for name in names:
        of = Settings.model_fields[name]
        variables = getattr(of.validation_alias, "choices", None) or [f"{PREFIX}{name.upper()}"]
        rows.append(f"| {'<br>'.join(f'`{v}`' for v in variables)} | {_default(of.default)} | {_cell(of.description or '')} |")
    return "\n".join(rows)


def platform_settings() -> str:
    """The settings of every pipeline."""
    return settings_table(name for name in Settings.model_fields if name not in ShopSettings.model_fields)


def shop_settings() -> str:
    """The settings of the example shop."""
    return settings_table(name for name in Settings.model_fields if name in ShopSettings.model_fields)


def commands() -> str:
    """Every command: its usage, its help, its arguments and options."""
    return "\n\n".join(_command(path, of) for path, of in _leaves(typer.main.get_command(app), ("tidemark",)))


def ledger_columns() -> str:
    """The columns of the ledger."""
    described = _arguments(SourceBatch.__doc__ or "")
    return _columns((field.name, _sql_type(field.type), described[field.name]) for field in SCHEMA)


def engine_columns() -> str:
    """The columns that the engine and the operators add to rows."""
    rows = [f"| `{name}` | {_cell(text)} |" for name, text in COLUMN_DESCRIPTIONS.items()]
    return "\n".join(["| column | content |", "|---|---|", *rows])


def metrics_table(described: Iterable[MetricSpec]) -> str:
    """A table of metrics: name, type, labels and meaning."""
    rows = [f"| `{of.name}` | {of.kind} | {', '.join(f'`{name}`' for name in of.labels)} | {_cell(of.text)} |" for of in described]
    return "\n".join(["| metric | type | labels | meaning |", "|---|---|---|---|", *rows])


def _leaves(command: Any, path: tuple[str, ...]) -> list[tuple[tuple[str, ...], Any]]:
    """The commands below a command, each with its path."""
    below: Mapping[str, Any] = getattr(command, "commands", {})
    return [found for name in sorted(below) for found in _leaves(below[name], (*path, name))] or [(path, command)]


def _command(path: tuple[str, ...], command: Any) -> str:
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    options = [p for p in command.params if p.param_type_name == "option"]
    required = [f"{o.opts[0]} {_metavar(o)}" for o in options if o.required]
    usage = " ".join([*path, *required, *(["[OPTIONS]"] if len(options) > len(required) else []), *map(_metavar, arguments)])
    rows = [f"| `{_metavar(a)}` | | {_cell(getattr(a, 'help', '') or '')} |" for a in arguments]
    rows += [f"| {', '.join(f'`{name}`' for name in o.opts)} | {_option_default(o)} | {_cell(o.help or '')} |" for o in options]
    table = ["", "| argument | default | meaning |", "|---|---|---|", *rows] if rows else []
    return "\n".join([f"## {' '.join(path[1:])}", "", _cell(command.help or ""), "", "```text", usage, "```", *table])


def _metavar(argument: Any) -> str:
    name = argument.metavar or str(argument.name).upper()
    return f"{name if argument.required else f'[{name}]'}{'...' if argument.nargs == -1 else ''}"


def _option_default(option: Any) -> str:
    return "" if option.default is None or option.default is False or callable(option.default) else f"`{option.default}`"


def _default(value: object) -> str:
    if value is None or value == "":
        return "unset"
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return f"`{Path(text).relative_to(PROJECT) if text.startswith(str(PROJECT)) else text}`"


def _cell(text: str) -> str:
    """Text in a cell of a table. A bar in code does not end the cell."""
    parts = " ".join(text.split()).split("`")
    return "`".join(part if number % 2 else part.replace("|", "\\|") for number, part in enumerate(parts))


def _columns(rows: Iterable[tuple[str, str, str]]) -> str:
    cells = [f"| `{name}` | {kind} | {_cell(text)} |" for name, kind, text in rows]
    return "\n".join(["| column | type | content |", "|---|---|---|", *cells])


def _sql_type(kind: pa.DataType) -> str:
    if pa.types.is_list(kind):
        return f"array&lt;{_sql_type(kind.value_type)}&gt;"
    return {"int64": "bigint", "string": "string", "bool": "boolean"}.get(str(kind), "timestamp")


def _arguments(docstring: str) -> dict[str, str]:
    """The descriptions of a Google-style docstring's arguments."""
    listed = docstring.partition("Args:\n")[2]
    indent = re.match(r" *", listed)[0]  # pyright: ignore[reportOptionalSubscript]
    found = re.split(rf"^{indent}(?! )(\w+): ", listed, flags=re.MULTILINE)[1:]
    return {name: " ".join(text.split()) for name, text in zip(found[::2], found[1::2], strict=True)}


PARTS: dict[str, Callable[[], str]] = {
    "commands": commands,
    "engine-columns": engine_columns,
    "lake-metrics": lambda: metrics_table(OF_THE_LAKE),
    "ledger-columns": ledger_columns,
    "platform-settings": platform_settings,
    "shop-settings": shop_settings,
    "stream-metrics": lambda: metrics_table(OF_A_STREAM),
}
