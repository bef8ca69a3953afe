"""The runner of the pages: which blocks it runs, writes, compares and refuses."""

from pathlib import Path

import pytest

from tests.docs.commands import check_commands
from tests.docs.page import needs_spark, run


def _page(folder: Path, text: str) -> Path:
    page = folder / "page.md"
    page.write_text(text)
    return page


def _run(folder: Path, text: str) -> None:
    run(_page(folder, text), folder / "page", None)


def test_blocks_share_a_folder_and_a_namespace(tmp_path: Path) -> None:
    text = """
```python title="half.py"
def half(n):
    return n // 2
```

1. a list

    ```python
    import sys; sys.path.append(".")
    from half import half
    x = half(84)
    ```

<!--- invisible-code-block: python
assert x == 42
found = 1
--->

```console
$ export NAME=you
$ echo "hello $NAME"
hello you
$ mkdir sub && cd sub && pwd
...sub
$ ls ..
...half.py
...
```
"""
    _run(tmp_path, text)
    assert (tmp_path / "page/half.py").read_text().startswith("def half")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("```python\nassert 1 == 2\n```\n", ""),
        ("```console\n$ echo a\nb\n```\n", "where the page shows"),
        ("```console\n$ false\n```\n", "ends with 1"),
        ("```console\n$ tidemark nothing\n```\n", "ends with 2"),
        ("```console\necho a\n```\n", "legal: `. `"),
        ("```bash\nmake nothing\n```\n", "no target nothing"),
        ("```bash\ntidemark advance --everything\n```\n", "no option --everything"),
        ("```bash\ntidemark run\n```\n", "no command run"),
        ("```ini\nTIDEMARK_LAKES=/srv/lake\n```\n", "no settings TIDEMARK_LAKES"),
        ("```ini\nTIDEMARK_MAX_FILES=0\n```\n", "illegal values"),
        ("```ini\nTIDEMARK_MAX_FILES=\n```\n", "illegal values"),
        ("```ini\nExecStart=/opt/bin/tidemark run\n```\n", "no command run"),
        ("```rust\nfn main() {}\n```\n", "'rust' is no language"),
        ('```yaml title="../outside.yaml"\na: 1\n```\n', "outside the page's folder"),
        ("<!--- invisible-code-block: python\nassert False\n--->\n", ""),
    ],
)
def test_a_wrong_block_fails(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(AssertionError, match=message or "(?s).*"):
        _run(tmp_path, text)


@pytest.mark.parametrize("opening", ["```", "```python linenums", "```python title=a.py"])
def test_a_block_without_a_language_or_with_an_unknown_attribute_is_refused(tmp_path: Path, opening: str) -> None:
    with pytest.raises(AssertionError, match="is no language of the docs' blocks"):
        _run(tmp_path, f"{opening}\nx\n```\n")


def test_a_page_without_blocks_passes(tmp_path: Path) -> None:
    _run(tmp_path, "# Nothing\n\nto run\n")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("```python\nspark.range(1)\n```\n", True),
        ('```python title="a.py"\nspark.range(1)\n```\n', False),
        ("```console\n$ tidemark status\n```\n", True),
        ("```bash\ntidemark status\n```\n", False),
        ("nothing", False),
    ],
)
def test_a_page_that_runs_spark_is_marked(tmp_path: Path, text: str, expected: bool) -> None:
    assert needs_spark(_page(tmp_path, text)) is expected


def test_commands_are_checked_behind_variables_and_in_other_folders() -> None:
    check_commands("TIDEMARK_LAKE=x .venv/bin/tidemark ingest --every '30 seconds' && make -C .. ui")
    check_commands("tidemark quarantine list orders  # a comment")
