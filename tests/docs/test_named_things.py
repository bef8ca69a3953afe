"""What the docs name exists: commands, files and sections behind links, pages of the navigation. Every block is fenced, so it is run."""

import re
from pathlib import Path

import pytest

from platform_defs.settings import PROJECT
from tests.docs.commands import check_command, named_commands

PAGES = [PROJECT / "README.md", PROJECT / "CONTRIBUTING.md", *sorted((PROJECT / "docs").rglob("*.md"))]
IDS = [str(page.relative_to(PROJECT)) for page in PAGES]
_LINK = re.compile(r"\]\((?!\w+:)([^)#\s]*)(#[^)\s]+)?\)")
_CONTAINER = re.compile(r"\s*(?:[-*+] |\d+[.)] |!!! |\?\?\? |=== |\[\^)")


def _prose(page: Path) -> str:
    """A page without its fenced blocks."""
    return re.sub(r"^( *)(```+).*?^\1\2$", "", page.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_the_commands_that_a_page_names_exist(page: Path) -> None:
    indented = [line for line in _prose(page).splitlines() if line.startswith("    ")]
    for command in [*named_commands(_prose(page)), *indented]:
        check_command(command.strip())


@pytest.mark.parametrize("page", [PROJECT / "README.md", PROJECT / "CONTRIBUTING.md", PROJECT / "CHANGELOG.md"], ids=lambda p: p.name)
def test_links_of_pages_outside_the_site_name_files_and_their_sections(page: Path) -> None:
    for file, section in _LINK.findall(_prose(page)):
        target = page.parent / file if file else page
        assert target.exists(), f"{page.name} links to {file}, which does not exist"
        of_an_object = "." in section  # such as `#operators.Select`, which the reference's generator makes
        if section and target.suffix == ".md" and not of_an_object:
            assert section[1:] in _sections(target), f"{page.name} links to {file}{section}, which has no such section"


def _sections(page: Path) -> set[str]:
    """The names of a page's sections in links, as GitHub and MkDocs make them from the headings."""
    headings = re.findall(r"^#+ (.+?)(?: \{#([\w-]+)\})?$", _prose(page), re.MULTILINE)
    return {name or re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", heading).strip().lower()) for heading, name in headings}


@pytest.mark.parametrize("page", [p for p in PAGES if p.name != "CONTRIBUTING.md"], ids=[i for i in IDS if i != "CONTRIBUTING.md"])
def test_a_page_has_only_fenced_blocks(page: Path) -> None:
    """A block that is only indented has no language, so it would not be run."""
    container, before = False, ""
    for line in _prose(page).splitlines():
        if line.strip() and not line.startswith(" "):
            container = bool(_CONTAINER.match(line))
        assert container or before.strip() or not line.startswith("    ") or not line.strip(), f"{page}: fence the block with {line!r}"
        before = line


def test_the_navigation_lists_every_page_once() -> None:
    """MkDocs only warns of a missing or unknown page, and only `make docs` makes the warning an error. This test builds no site."""
    listed = re.findall(r"[\w/-]+\.md$", (PROJECT / "mkdocs.yml").read_text("utf-8"), re.MULTILINE)
    assert sorted(listed) == sorted(str(page.relative_to(PROJECT / "docs")) for page in (PROJECT / "docs").rglob("*.md"))


def test_units_of_systemd_that_start_a_jvm_stop_only_the_main_process() -> None:
    """By default systemd also sends SIGTERM to the JVM, which then ends in the middle of a commit. `tidemark metrics` starts no JVM."""
    blocks = [block for page in PAGES for block in re.findall(r"^```ini\n(.*?)^```", page.read_text("utf-8"), re.DOTALL | re.MULTILINE)]
    units = [block for block in blocks if "[Service]" in block and "bin/tidemark metrics" not in block]
    assert len(units) == 3
    assert [unit for unit in units if "KillMode=mixed\n" not in unit] == []
