"""Parses the arguments of the command line. An error names the argument, its value and what is legal."""

from collections.abc import Callable, Iterable
from datetime import date
from typing import Annotated

import typer

from assets.days import read_day
from operators.errors import TidemarkError
from operators.timing import DAY_MS, duration_ms
from platform_defs.paths import PathError
from platform_defs.safe_text import shortened, without_credentials

AssetNames = Annotated[list[str] | None, typer.Argument(metavar="ASSET", help="The assets; by default all of them.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]


class ArgumentError(TidemarkError, ValueError):
    """An argument of the command line has a value that is not legal."""

    @classmethod
    def bad_value(cls, argument: str, value: str, legal: str) -> "ArgumentError":
        """`argument` has a value that is not legal."""
        return cls(f"`{argument}` is {value!r}; legal: {legal}")

    @classmethod
    def both_given(cls, option: str, other_option: str) -> "ArgumentError":
        """Two options exclude each other."""
        return cls(f"`{option}` and `{other_option}` are both given; legal: at most one of them")


def day(option: str, text: str) -> date:
    """A day of a range of days.

    Raises:
        ArgumentError: the text is not a day, has another form than YYYY-MM-DD, or no day comes after it.
    """
    parsed = read_day(text)
    if parsed is None:
        raise ArgumentError.bad_value(option, text, "a day, YYYY-MM-DD")
    if parsed.year > 9998:  # the day after a range must be a day too
        raise ArgumentError.bad_value(option, text, "a day up to 9998-12-31")
    return parsed


def interval(option: str, text: str | None) -> str | None:
    """An interval as the engine reads it, such as `30000 milliseconds`; None for None.

    Raises:
        DurationError: the text is not a duration.
        ArgumentError: the duration is not between 1 ms and a day.
    """
    if text is None:
        return None
    length = duration_ms(shortened(text), option)
    if not 0 < length <= DAY_MS:
        raise ArgumentError.bad_value(option, text, "a duration of more than zero, and at most a day")
    return f"{length} milliseconds"


def canonical_folder(option: str, text: str, resolve: Callable[[str], str]) -> str:
    """The canonical path of a folder; a relative path starts from the current folder.

    Args:
        option: the argument's name, for an error.
        text: the argument.
        resolve: `canonical`, or another function of `paths` that returns the canonical path.

    Raises:
        ArgumentError: the text is not a legal folder.
    """
    try:
        return resolve(text)
    except PathError as error:
        raise ArgumentError.bad_value(option, without_credentials(text), error.legal) from None


def require_known(argument: str, name: str, legal: Iterable[str]) -> None:
    """Raise `ArgumentError` unless a name is one of the legal ones."""
    if name not in legal:
        raise ArgumentError.bad_value(argument, name, ", ".join(legal))


def known_assets(assets: Iterable[str], names: list[str] | None) -> list[str]:
    """The named assets, by default all of them.

    Raises:
        ArgumentError: there is no asset of a name.
    """
    for name in names or []:
        require_known("assets", name, assets)
    return names or [*assets]
