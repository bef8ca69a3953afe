"""The commands that the docs name: each `make` target, and each `tidemark` command and option, exists."""

import re
import shlex

import typer
from pydantic import ValidationError

from platform_defs.cli.commands import app
from platform_defs.settings import PROJECT, Settings, unknown_variables
from platform_defs.settings.values import PREFIX

TARGETS = {*re.findall(r"^([a-z0-9-]+):", (PROJECT / "Makefile").read_text("utf-8"), re.MULTILINE)}
_NAMED = re.compile(r"`(?:[\w./]*/)?((?:make|tidemark) [^`]+)`")


def check_commands(text: str) -> None:
    """Check each line of a block that runs `make` or `tidemark`.

    Raises:
        AssertionError: a target, a command or an option does not exist.
    """
    for line in text.replace("\\\n", " ").splitlines():
        for command in re.split(r"&&|;|\|", line.removeprefix("$ ")):
            check_command(command.strip())


def check_command(command: str) -> None:
    """Check one command; commands of other programs pass."""
    words = [word for word in _split(command) if not re.fullmatch(r"[A-Z_]+=.*", word)]
    program = words[0].rsplit("/", 1)[-1] if words else ""
    if program == "make":
        _check_make(command, words[1:])
    elif program == "tidemark":
        _check_tidemark(command, words[1:])


def check_ini(text: str) -> None:
    """Check the settings and the commands of a settings file or of a systemd unit.

    Raises:
        AssertionError: there is no such setting, target, command or option, or a value is illegal.
    """
    lines = [line.partition("=") for line in text.splitlines()]
    variables = {name: "".join(shlex.split(value)[:1]) for name, _, value in lines if name.startswith(PREFIX)}
    assert not unknown_variables(variables), f"there are no settings {', '.join(unknown_variables(variables))}"
    try:
        Settings(**{name.removeprefix(PREFIX).lower(): value for name, value in variables.items()})
    except ValidationError as error:
        raise AssertionError(f"illegal values of settings: {error}") from None
    for name, _, value in lines:
        if name.startswith("Exec"):
            check_command(value)


def named_commands(text: str) -> list[str]:
    """The commands that a page names in its prose."""
    return _NAMED.findall(text)


def _split(command: str) -> list[str]:
    try:
        return shlex.split(command, comments=True)
    except ValueError:  # a quote that another part of the line closes
        return command.split()


def _check_make(command: str, words: list[str]) -> None:
    skipped = {i + 1 for i, word in enumerate(words) if word in ("-C", "-f", "-j")}
    for word in (w for i, w in enumerate(words) if i not in skipped and not w.startswith("-")):
        assert word in TARGETS or not re.fullmatch(r"[a-z][a-z0-9-]*", word), f"`{command}`: the Makefile has no target {word}"


def _check_tidemark(command: str, words: list[str]) -> None:
    found = typer.main.get_command(app)
    while words and not words[0].startswith("-") and (of := getattr(found, "commands", None)):
        assert words[0] in of, f"`{command}`: there is no command {words[0]}"
        found, words = of[words[0]], words[1:]
    options = {option for parameter in found.params for option in (*parameter.opts, *parameter.secondary_opts)} | {"--help"}
    for word in words:
        name = word.strip("[]").partition("=")[0]
        assert not name.startswith("--") or name in options, f"`{command}`: there is no option {name}"
