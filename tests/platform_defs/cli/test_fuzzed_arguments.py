"""Any text as any argument of any command is a valid value, or a one-line error that names the argument. No test starts Spark.

The commands and the engine are made once, because this takes longer than a command that is refused.
"""

import io
import json
import os
import re
import sys
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import NoReturn

import pytest
import typer
from hypothesis import example, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from operators import TidemarkError
from platform_defs.cli import commands as cli
from platform_defs.cli import demo, query, tables, watch
from platform_defs.cli.main import main
from platform_defs.configured_engine import make_engine
from platform_defs.settings import Settings, settings
from tests.support.example_counts import example_count

COMMANDS = {
    "ingest --every": ["ingest", "--every", "{}"],
    "advance assets": ["advance", "{}"],
    "backfill --from": ["backfill", "--from", "{}", "--to", "2026-03-01"],
    "backfill --to": ["backfill", "--from", "2026-03-01", "--to", "{}"],
    "drain assets": ["drain", "{}"],
    "status assets": ["status", "{}"],
    "query": ["query", "{}"],
    "watch assets": ["watch", "{}"],
    "watch --every": ["watch", "order_wide", "--every", "{}"],
    "query --limit": ["query", "SELECT 1", "--limit", "{}"],
    "publish asset": ["publish", "{}", "/tmp/x"],
    "publish folder": ["publish", "seller_leaderboard", "{}"],
    "late source": ["late", "{}"],
    "late source --asset": ["late", "orders", "--asset", "{}"],
    "late --limit": ["late", "orders", "--limit", "{}"],
    "demo --data": ["demo", "--data", "{}"],
    "demo --orders": ["demo", "--orders", "{}"],
    "demo --parts": ["demo", "--parts", "{}"],
    "demo --seed": ["demo", "--seed", "{}"],
    "demo --arrival": ["demo", "--arrival", "{}"],
    "demo --lake": ["demo", "--lake", "{}"],
    "no command": ["{}"],
    "no option": ["status", "--{}"],
}
LIKELY = [
    *(
        "",
        " ",
        "0",
        "1",
        "-1",
        "10001",
        "9" * 400,
        "1e3",
        "nan",
        "٣",
        "/",
        "~",
        "~x",
        ".",
        "..",
        "/x",
        "x" * 300,
        "file:/x",
        "hdfs:/x",
        "s3a://b",
    ),
    *("s3a://u:s3cret@b/x", "http://u:s3cret@h", "30 seconds", "0 s", "-1 s", "99999 weeks", "9" * 5_000 + " s", "1.5 s", "2026-03-01"),
    *(
        "0001-01-01",
        "9999-12-31",
        "9998-12-31",
        "20260301",
        "orders",
        "payment_order_wide",
        "seller_leaderboard",
        "--help",
        "-",
        "--",
        "-x",
        "--json",
    ),
    *("\x1b[31m", "\u202e", "\x9b2J", "[bold]", "[/]", "\udc80", "a\nb", "by_time", "\\", "%s", "{}", "$HOME", "`id`"),
]
TEXTS = st.one_of(st.sampled_from(LIKELY), st.text(st.characters(exclude_characters="\0"), max_size=30))


class Reached(BaseException):
    """The arguments were valid: the command reached Spark, or started the demo."""


def _reached(*_: object, **__: object) -> NoReturn:
    raise Reached


@pytest.fixture(scope="module", autouse=True)
def _no_spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    lake = tmp_path_factory.mktemp("lake")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TIDEMARK_LAKE", str(lake))
        patch.setattr(typer.main, "get_command", cache(typer.main.get_command))
        patch.setattr(demo, "run", _reached)
        patch.setattr(watch, "time", SimpleNamespace(sleep=_reached))
        engine = make_engine(Settings(), connect=_reached)
        for module in (cli, tables, query, watch):
            patch.setattr(module, "_engine", lambda: engine)
        settings.cache_clear()
        yield
    settings.cache_clear()


def _run(arguments: list[str]) -> tuple[int | str | None, str, str]:
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.setattr(sys, "argv", ["tidemark", *arguments])
        try:
            main()
            code = 0
        except Reached:
            code = "reached"
        except SystemExit as end:
            code = end.code
    return code, out.getvalue(), err.getvalue()


@pytest.mark.parametrize("name", COMMANDS)
@hypothesis_settings(max_examples=example_count(30), database=None)
@given(text=TEXTS)
@example(text="9" * 5_000 + " s")
def test_any_text_is_a_valid_value_or_a_one_line_error(name: str, text: str) -> None:
    try:
        os.fsencode(text)  # no process can receive other text
    except UnicodeEncodeError:
        return
    code, out, err = _run([part.replace("{}", text) for part in COMMANDS[name]])
    if code in (0, "reached"):
        line = (
            r"Watching [^\n]* every [^\n]*\. Ctrl-C ends it\.\n\s*Ended after 0 batches with 0 accepted rows\."
            if name == "ingest --every"
            else ""
        )
        assert re.fullmatch(line if code == "reached" else "", err.strip())
        assert code or "Usage" in out or "Nothing" in out or "nothing" in out or "Result" in out or "--json" in text, out
        return
    assert code in (1, 2)
    assert out == ""
    assert err.startswith("error: ")
    assert err.endswith("\n")
    assert err[:-1].isprintable()
    assert "s3cret" not in err
    unreadable = ("No such option", "No such command", "Missing argument", "unexpected extra argument", "requires an argument")
    assert any(word.strip("-") in err for word in name.split()) or any(words in err for words in unreadable)


def test_errors_contain_no_terminal_control_characters(monkeypatch: pytest.MonkeyPatch) -> None:
    """An error message can quote a row, a file name, or the holder of a lock."""

    def fail() -> None:
        raise TidemarkError("row \x1b]0;title\x07 [bold]x[/bold] \u202e http://user:s3cret@host/")

    monkeypatch.setattr(cli, "_engine", fail)
    code, out, err = _run(["status"])
    assert (code, out) == (1, "")
    assert err == "error: row \\x1b]0;title\\x07 [bold]x[/bold] \\u202e http://***@host/\n"


def test_json_output_contains_no_control_characters(capsys: pytest.CaptureFixture[str]) -> None:
    row = {"a": "\x1b[31m\x7f\x9b\u202e"}
    cli.render.show(True, row, lambda _: None)
    out = capsys.readouterr().out
    assert out.replace("\n", "").isascii()
    assert out.replace("\n", "").isprintable()
    assert json.loads(out) == row


def test_a_relative_publish_folder_is_resolved_from_the_working_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    folders: list[str] = []
    views = SimpleNamespace(publish=lambda asset, folder: folders.append(folder) or 3)
    monkeypatch.setattr("platform_defs.engine.Engine.views", views)
    code, out, _ = _run(["publish", "seller_leaderboard", "[out]"])
    assert (code, folders) == (0, [f"{tmp_path}/[out]"])
    assert f"{tmp_path}/[out] contains seller_leaderboard up to step 3\n" in out, "a path is not broken at the width of the terminal"
