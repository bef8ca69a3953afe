"""Describes an error that a user's pipeline code raises in one line, with the line of the user's file."""

import importlib
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from operators.errors import TidemarkError
from platform_defs.safe_text import shortened


class UserCodeError(TidemarkError):
    """The code of a pipeline raised an error, which is the cause of this one."""

    @classmethod
    def of(cls, variable: str, target: str, file: Path | None, error: BaseException) -> "UserCodeError":
        """An error, with the last line of the user's file that led to it.

        Args:
            variable: the setting that names the file or module.
            target: its value.
            file: the user's file; None to take the user's outermost file in the traceback.
            error: the error.
        """
        lines, text = _lines(error), str(error)
        if isinstance(error, SyntaxError) and error.filename and (not lines or _is_same(Path(error.filename), file)):
            lines, text = [(Path(error.filename), error.lineno or 1)], error.msg
        file = file or next((path for path, _ in lines), None)
        line = next((f", line {line}" for path, line in reversed(lines) if _is_same(path, file)), "")
        location = f"{file}{line}: " if file else ""
        return cls(f"{variable} is {shortened(target)!r}: {location}{type(error).__name__}: {shortened(' '.join(text.split()))}")


@contextmanager
def locating_errors(variable: str, target: str, file: Path | None) -> Iterator[None]:
    """Raise an error of the user's code as a `UserCodeError`, with the error as its cause; see `UserCodeError.of` for the arguments.

    Errors of Tidemark stay as they are, since they name a parameter; a note adds the line of the user's file. Errors of Spark stay as
    they are too, since their text may quote rows.
    """
    try:
        yield
    except TidemarkError as error:
        lines = _lines(error)
        users_file = file or next((path for path, _ in lines), None)
        for line in [line for path, line in lines if _is_same(path, users_file)][-1:]:
            error.add_note(f"{users_file}, line {line}")
        raise
    except (PySparkException, Py4JJavaError):
        raise
    except (Exception, SystemExit) as error:  # code that ends the process would let a command succeed that has done nothing
        raise UserCodeError.of(variable, target, file, error) from error


def _lines(error: BaseException) -> list[tuple[Path, int]]:
    """The files and lines of the user's code that led to an error, the outermost first."""
    frames = [(frame.f_code.co_filename, line) for frame, line in traceback.walk_tb(error.__traceback__)]
    return [(Path(file), line) for file, line in frames if _is_users(file)]


def _is_users(file: str) -> bool:
    """Whether a stack frame's file is the user's: not Python's import machinery, nor a module of Tidemark that imports the user's file."""
    return not file.startswith("<") and Path(file) not in (
        Path(importlib.__file__),
        Path(__file__),
        Path(__file__).with_name("loading.py"),
    )


def _is_same(file: Path, other: Path | None) -> bool:
    return other is not None and file.resolve() == other.resolve()
