"""Runs a command of the command line, and prints its errors."""

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn, cast

import typer
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from rich.markup import escape

from operators.errors import TidemarkError
from platform_defs.cli.commands import app
from platform_defs.cli.failures import without_rows
from platform_defs.cli.render import errors, print_warning
from platform_defs.cli.unloaded_settings import warn_of_unloaded_settings
from platform_defs.engine.lake.lost_jvm import lost_jvm
from platform_defs.pipelines.user_code import UserCodeError
from platform_defs.safe_text import without_credentials
from platform_defs.settings import settings

_UsageError = cast(type[Exception], typer.BadParameter.__base__)
"""The error that Typer raises for a command line that it cannot parse."""
_OF_SPARK = (PySparkException, Py4JJavaError)


@contextmanager
def _naming_a_lost_jvm() -> Iterator[None]:
    """If the JVM has ended, replace the error that follows from it by `JvmLostError`, unless `TIDEMARK_TRACEBACK` is true."""
    logging.getLogger().addFilter(_is_no_lost_call)
    try:
        yield
    except Exception as error:
        jvm_error = lost_jvm(error)
        if jvm_error is None or settings().traceback:
            raise
        raise jvm_error from error
    finally:
        logging.getLogger().removeFilter(_is_no_lost_call)


def _is_no_lost_call(record: logging.LogRecord) -> bool:
    """Whether to log a record. Py4J's traceback of a call that the JVM did not answer is left out, since Py4J also raises an error."""
    return record.msg != "Exception while sending command." or settings().traceback


def main() -> None:
    """Run the command line. Errors that a user can fix, and errors of Spark, are printed in one line.

    With `TIDEMARK_TRACEBACK=1`, the traceback is shown for errors of Spark, errors that Spark caused, and errors of the pipeline's code.
    """
    warn_of_unloaded_settings(sys.argv[1:], print_warning)
    try:
        with _naming_a_lost_jvm():
            code = typer.main.get_command(app).main(standalone_mode=False)
    except _UsageError as error:
        _exit_with_usage_error(cast(Any, error))
    except typer.Abort:
        _exit_with_error("interrupted")
    except (PySparkException, Py4JJavaError, TidemarkError) as error:
        if _has_traceback(error) and settings().traceback:
            raise
        _exit_with_error(_message(error))
    else:
        if code:
            raise SystemExit(code)


def _has_traceback(error: Exception) -> bool:
    """Whether an error's traceback tells more than its message: for errors of Spark, caused by Spark, or of the pipeline's code."""
    return isinstance(error, (*_OF_SPARK, UserCodeError)) or isinstance(error.__cause__, _OF_SPARK)


def _message(error: Exception) -> str:
    if isinstance(error, _OF_SPARK):
        return without_rows(error)
    notes = () if isinstance(error, UserCodeError) else getattr(error, "__notes__", ())
    return " ".join([str(error), *(f"({note})" for note in notes)])


def _exit_with_usage_error(error: Any) -> NoReturn:
    """Exit with the error of an illegal command line, or with the help if there is no command."""
    if type(error).__name__ == "NoArgsIsHelpError":
        error.show()
        raise SystemExit(error.exit_code)
    commands = getattr(error.ctx.command, "commands", {}) if error.ctx else {}
    text = error.format_message().replace("\n", " ")
    if text == "Missing command." and commands:
        text = f"`{error.ctx.command_path}` needs a command; legal: {', '.join(sorted(commands))}"
    _exit_with_error(text, error.exit_code)


def _exit_with_error(message: str, code: int = 1) -> NoReturn:
    errors.print(f"[bold red]error:[/] {escape(without_credentials(message))}", highlight=False, soft_wrap=True)
    raise SystemExit(code) from None


__all__ = ["main"]
