"""Arguments of the command line: a text becomes a working value, or an error that names the argument."""

from collections.abc import Callable

from operators.timing import DAY_MS, duration_ms
from platform_defs.paths import PathError
from platform_defs.safe_text import shortened, without_credentials


def interval(option: str, text: str | None) -> str | None:
    """An interval in milliseconds, in words.

    Raises:
        ValueError: the text is no duration, or not between 1 ms and a day.
    """
    if text is None:
        return None
    length = duration_ms(shortened(text), option)
    if not 0 < length <= DAY_MS:
        raise ValueError(f"`{option}` is {text!r}; legal: a duration of more than zero, and at most a day")
    return f"{length} milliseconds"


def one_folder(option: str, text: str, spelled: Callable[[str], str]) -> str:
    """The one spelling of a folder; a relative one starts from the current folder, as in any command.

    Raises:
        ValueError: the text names no folder.
    """
    try:
        return spelled(text)
    except PathError as error:
        raise ValueError(f"`{option}` is {without_credentials(text)!r}; legal: {error.legal}") from None
