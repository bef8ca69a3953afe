"""Runs the blocks of a page of the docs, in order, in a folder and a namespace of their own. `CONTRIBUTING.md` has the convention."""

import doctest
import io
import os
import re
import runpy
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from pyspark.sql import SparkSession
from sybil import Document, Example, Region
from sybil.evaluators.python import PythonEvaluator
from sybil.parsers.abstract.lexers import LexerCollection
from sybil.parsers.markdown.lexers import DirectiveInHTMLCommentLexer, FencedCodeBlockLexer

from platform_defs.cli.main import main
from platform_defs.settings import PROJECT, settings
from tests.docs.commands import check_commands, check_ini
from tests.support.modules import forget_modules, modules_of

DOCS = PROJECT / "docs"
INFO = re.compile(r'(\w+)(?: title="([^"]+)")?(?: hl_lines="[^"]+")?')
NOT_RUN = {"text", "sql", "toml", "java"}
"""Languages of blocks that are only shown."""
CHECKED: dict[str, Callable[[str], object]] = {"bash": check_commands, "ini": check_ini, "yaml": yaml.safe_load}
"""The check of blocks that are not run, by language."""
SHELL = "/bin/bash"
_OF_THE_SHELL = {"PWD", "OLDPWD", "SHLVL", "COLUMNS", "LINES", "_"}
_ALIKE = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
"""White space may differ: a line with a longer path breaks at another word."""
_COMPARE = doctest.OutputChecker()


@dataclass
class Page:
    """A page that is run: what its blocks share.

    Args:
        folder: the page's folder, which is the current folder at the start.
        here: the current folder of the page's commands.
    """

    folder: Path
    here: Path = field(init=False)

    def __post_init__(self) -> None:
        self.here = self.folder

    def write(self, name: str, text: str) -> None:
        """Write a block with a title to the file of that name."""
        target = self.here / name
        assert target.resolve().is_relative_to(self.folder.resolve()), f"{name} is outside the page's folder"
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")

    def run(self, command: str) -> tuple[int, str]:
        """Run a command of a console; returns its exit code and its output."""
        forget_modules(self.folder)
        settings.cache_clear()
        words = shlex.split(command) if _is_simple(command) else []
        in_process = {"tidemark": _tidemark, "pytest": _pytest, "python": _python}.get(words[0] if words else "")
        return in_process(words[1:]) if in_process else self._in_shell(command)

    def _in_shell(self, command: str) -> tuple[int, str]:
        """Run a command in a shell, and keep the folder and the environment that it leaves."""
        state = self.folder.parent / "state"
        script = f"exec 2>&1\n{command}\nstatus=$?; (pwd; env -0) > {shlex.quote(str(state))}; exit $status"
        done = subprocess.run([SHELL, "-c", script], cwd=self.here, stdout=subprocess.PIPE, text=True, check=False)
        folder, _, variables = state.read_text("utf-8").partition("\n")
        self.here = Path(folder)
        _change_to(self.here)
        for variable in variables.split("\0"):
            name, equals, value = variable.partition("=")
            if equals and name not in _OF_THE_SHELL:
                os.environ[name] = value
        return done.returncode, done.stdout


def _change_to(folder: Path) -> None:
    """Change the current folder, also that of Spark: the JVM has its own, in which a relative path of a table starts."""
    os.chdir(folder)
    spark = SparkSession.getActiveSession() or SparkSession._instantiatedSession  # another session may have been active in the thread
    jvm: Any = getattr(spark, "_jvm", None)  # a session of Spark Connect has none
    if jvm is not None:
        hadoop = jvm.org.apache.hadoop.fs
        hadoop.FileSystem.getLocal(jvm.org.apache.hadoop.conf.Configuration()).setWorkingDirectory(hadoop.Path(folder.as_uri()))


def _is_simple(command: str) -> bool:
    """Whether a command is one program with arguments, without a pipe, a redirection or a second command."""
    lexer = shlex.shlex(command, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    return not any(set(word) <= set("();<>|&") for word in lexer)


def _tidemark(arguments: list[str]) -> tuple[int, str]:
    """Run the command line in this process, so that it uses the session of the tests."""
    return _captured(["tidemark", *arguments], main)


def _python(arguments: list[str]) -> tuple[int, str]:
    """Run a script in this process."""
    return _captured(arguments, lambda: runpy.run_path(arguments[0], run_name="__main__"))


def _pytest(arguments: list[str]) -> tuple[int, str]:
    """Run the tests of the page's folder in this process."""

    def run() -> None:
        options = ["-p", "no:cacheprovider", "-p", "no:xdist", "--rootdir", str(Path.cwd()), "--capture", "sys", "--color", "no"]
        raise SystemExit(int(pytest.main([*options, *arguments])))

    return _captured(["pytest", *arguments], run)


def _captured(arguments: list[str], run: Callable[[], object]) -> tuple[int, str]:
    out, code = io.StringIO(), 0
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(out):
        patch.setattr(sys, "argv", arguments)
        try:
            run()
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 0
    return code, out.getvalue()


def commands_of(text: str) -> list[tuple[str, str]]:
    """The commands of a console block, each with the output that the block shows after it."""
    found: list[tuple[str, list[str]]] = []
    lines = iter(text.splitlines())
    for line in lines:
        if line.startswith("$ "):
            command = line[2:]
            while command.endswith("\\"):
                command = command[:-1] + next(lines).removeprefix("> ").strip()
            found.append((command, []))
        else:
            assert found, f"a console block begins with {line!r}; legal: `$ `, then a command"
            found[-1][1].append(line)
    return [(command, "\n".join(output).strip("\n")) for command, output in found]


def check_output(command: str, expected: str, code: int, printed: str) -> None:
    """Compare the output of a command with the one that the page shows, if it shows one; `...` stands for any text.

    Raises:
        AssertionError: they differ, or the command failed and the page shows no error.
    """
    got = "\n".join(line.rstrip() for line in printed.strip("\n").splitlines()) + "\n"
    wanted = "\n".join(line.rstrip() for line in expected.splitlines()) + "\n"
    same = not expected or _COMPARE.check_output(wanted, got, _ALIKE)
    assert same, f"`{command}` prints\n{got}\nwhere the page shows\n{wanted}"
    assert code == 0 or re.search("error|failed", expected), f"`{command}` ends with {code}:\n{got}"


def _evaluate(example: Example) -> str | None:
    """Run a block by its language and title."""
    page: Page = example.document.page  # pyright: ignore[reportAttributeAccessIssue]
    language, title = example.region.lexemes["language"], example.region.lexemes["title"]
    text = str(example.parsed)
    if title:
        page.write(title, text)
    elif language == "python":
        PythonEvaluator()(example)
    elif language == "console":
        for command, expected in commands_of(text):
            check_output(command, expected, *page.run(command))
    elif language in CHECKED:
        CHECKED[language](text)
    elif language not in NOT_RUN:
        return f"{language!r} is no language of the docs' blocks; CONTRIBUTING.md has them"
    return None


def _blocks(document: Document) -> Iterator[Region]:
    """The fenced blocks of a page, and its hidden ones."""
    fences = FencedCodeBlockLexer(language=".*", mapping={"language": "info", "source": "source"})
    named = {"arguments": "info", "source": "source"}
    hidden = DirectiveInHTMLCommentLexer(directive="invisible-code-block", arguments=".+", mapping=named)
    for region in LexerCollection([fences, hidden])(document):
        info = INFO.fullmatch(region.lexemes["info"].strip())
        language, title = (info[1], info[2]) if info else (region.lexemes["info"], None)
        region.lexemes |= {"language": language, "title": title}
        region.parsed = region.lexemes["source"]
        region.evaluator = _evaluate
        yield region


def _parsed(page: Path) -> Document:
    """The blocks of a page. (Sybil's own `parse` does the same; making a `Sybil` looks through all imported modules for its caller.)"""
    return Document.parse(str(page), _blocks)


def pages(*folders: str) -> list[Any]:
    """The pages of folders below docs/, and README.md for an empty name, as parameters of a test; marked if they need Spark."""
    found: list[Path] = []
    for folder in folders:
        found += sorted((DOCS / folder).rglob("*.md")) if folder else [PROJECT / "README.md", *sorted(DOCS.glob("*.md"))]
    return [pytest.param(p, id=str(p.relative_to(PROJECT)), marks=[pytest.mark.spark] if needs_spark(p) else []) for p in found]


def needs_spark(page: Path) -> bool:
    """Whether a page runs something that needs a session."""
    return any(
        example.region.lexemes["title"] is None
        and (
            (example.region.lexemes["language"] == "python" and re.search(r"\bspark\b|Sandbox|make_lake", example.parsed))
            or (example.region.lexemes["language"] == "console" and re.search(r"^\$ (tidemark|pytest|python)", example.parsed, re.M))
        )
        for example in _parsed(page).examples()
    )


@contextmanager
def _isolated(folder: Path) -> Iterator[None]:
    """Work in a folder with its own settings but for JARs and Java; then restore the environment, the current folder and the modules."""
    before, here = dict(os.environ), Path.cwd()
    for name in [name for name in os.environ if name.startswith("TIDEMARK_") and name not in ("TIDEMARK_JARS", "TIDEMARK_JAVA_HOME")]:
        del os.environ[name]
    own = {"LAKE": folder / "lake", "DAGSTER_HOME": folder / "dagster", "SHUFFLE_PARTITIONS": 2}
    os.environ |= {f"TIDEMARK_{name}": str(value) for name, value in own.items()} | {"COLUMNS": "80"}
    _change_to(folder)
    try:
        with modules_of(folder):
            yield
    finally:
        _change_to(here)
        os.environ.clear()
        os.environ.update(before)
        settings.cache_clear()


def run(page: Path, folder: Path, spark: SparkSession | None) -> None:
    """Run the blocks of a page in a new folder; without a session, the blocks have no name `spark`."""
    document = _parsed(page)
    folder.mkdir()
    document.page = Page(folder)  # pyright: ignore[reportAttributeAccessIssue]
    document.namespace |= {"__name__": "__main__"} | ({} if spark is None else {"spark": spark})
    with _isolated(folder):
        for example in document.examples():
            example.evaluate()
