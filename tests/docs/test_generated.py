"""The parts of pages that are generated from the code."""

import ast
import importlib.util
from pathlib import Path

import pytest
import typer

from platform_defs.cli.commands import app
from platform_defs.engine.ledger.rows import SCHEMA
from platform_defs.settings import Settings
from platform_defs.settings.shop import ShopSettings
from platform_defs.settings.values import PREFIX, PROJECT

_SPEC = importlib.util.spec_from_file_location("docs_hooks", PROJECT / "docs" / "hooks.py")
hooks = importlib.util.module_from_spec(_SPEC)  # pyright: ignore[reportArgumentType]
_SPEC.loader.exec_module(hooks)  # pyright: ignore[reportOptionalMemberAccess]


def test_every_setting_is_in_one_of_the_tables() -> None:
    shown = hooks.platform_settings() + hooks.shop_settings()
    missing = [name for name in Settings.model_fields if f"`{PREFIX}{name.upper()}`" not in shown]
    assert missing == []
    assert all(field.description for field in Settings.model_fields.values())


def test_the_settings_of_the_shop_are_those_that_its_pipeline_reads() -> None:
    tree = ast.parse((PROJECT / "platform_defs/shop.py").read_text("utf-8"))
    read = {n.attr for n in ast.walk(tree) if isinstance(n, ast.Attribute) and isinstance(n.value, ast.Name) and n.value.id == "values"}
    assert read == {*ShopSettings.model_fields}


def test_every_command_has_a_section_with_its_options() -> None:
    sections = {name: text for name, _, text in (part.partition("\n") for part in f"\n{hooks.commands()}".split("\n## ")[1:])}
    commands = {}
    for name, found in typer.main.get_command(app).commands.items():  # pyright: ignore[reportAttributeAccessIssue]
        parts = getattr(found, "commands", None)
        commands |= {f"{name} {part}": command for part, command in parts.items()} if parts else {name: found}
    assert sections.keys() == commands.keys()
    for name, command in commands.items():
        assert [o for p in command.params for o in p.opts if o.startswith("--") and f"`{o}`" not in sections[name]] == [], name


def test_the_usage_of_a_command_has_the_options_that_it_requires() -> None:
    assert "\ntidemark backfill --from DAY --to DAY [OPTIONS]\n" in hooks.commands()
    assert "\ntidemark rebuild [OPTIONS] ASSET...\n" in hooks.commands()
    assert "\ntidemark advance [OPTIONS] [ASSET]...\n" in hooks.commands()


def test_every_column_of_the_ledger_is_described() -> None:
    rows = hooks.ledger_columns().splitlines()[2:]
    assert [row.split("`")[1] for row in rows] == SCHEMA.names
    assert not [row for row in rows if row.endswith("|  |")]


@pytest.mark.parametrize(("text", "cell"), [("a | b", "a \\| b"), ("`a|b` | c", "`a|b` \\| c"), ("two\n  lines", "two lines")])
def test_a_cell_keeps_its_bars(text: str, cell: str) -> None:
    assert hooks._cell(text) == cell


@pytest.mark.parametrize(
    ("html", "shown"),
    [
        (
            "<td><code>tests/engine/test_a.py::test_of_a</code></td>",
            "<td><code>tests/<wbr>engine/<wbr>test<wbr>_a.<wbr>py::<wbr>test<wbr>_of<wbr>_a</code></td>",
        ),
        ("<td><code>TIDEMARK_SHUFFLE_PARTITIONS</code></td>", "<td><code>TIDEMARK_SHUFFLE_PARTITIONS</code></td>"),
        ("<p><code>tests/engine/test_a.py::test_of_a</code></p>", "<p><code>tests/engine/test_a.py::test_of_a</code></p>"),
    ],
    ids=["a path in a cell", "a short name", "not in a table"],
)
def test_a_long_name_in_a_table_may_break(html: str, shown: str) -> None:
    assert hooks.on_page_content(html) == shown


def test_options_and_dates_in_code_do_not_break() -> None:
    shown = hooks.on_page_content("<p>a --b <code>run --partition-range 2026-03-01...2026-03-04 a-b</code></p>")
    whole = [f'<span class="whole">{part}</span>' for part in ("--partition-range", "2026-03-01...2026-03-04")]
    assert shown == f"<p>a --b <code>run {' '.join(whole)} a-b</code></p>"


def test_each_mark_of_a_page_names_a_part() -> None:
    marks = {mark for page in Path(PROJECT / "docs").rglob("*.md") for mark in hooks._MARK.findall(page.read_text("utf-8"))}
    assert marks == {*hooks.PARTS}
    assert "TIDEMARK_LAKE" in hooks.on_page_markdown("# x\n\n<!-- generated: platform-settings -->\n")
