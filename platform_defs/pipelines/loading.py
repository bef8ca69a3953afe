"""Loads the configured pipeline: the one that `TIDEMARK_PIPELINE` names, or the example shop."""

import importlib
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from assets.pipeline import Pipeline
from operators.errors import TidemarkError
from platform_defs.declared.pipeline import DeclaredError, read
from platform_defs.declared.sql_pipeline import read_sql
from platform_defs.pipelines.user_code import locating_errors
from platform_defs.safe_text import shortened
from platform_defs.settings import Settings
from platform_defs.settings.values import SQL_ENDING, YAML_ENDINGS
from platform_defs.shop import shop

DEFAULT_NAME = "pipeline"
_VARIABLE = "TIDEMARK_PIPELINE"


class PipelineError(TidemarkError, ValueError):
    """The configured pipeline cannot be loaded."""

    @classmethod
    def of(cls, target: str, reason: str) -> "PipelineError":
        """The setting names nothing that can be loaded as a pipeline."""
        return cls(
            f"{_VARIABLE} is {shortened(target)!r}: {shortened(reason)}; legal: MODULE or MODULE:NAME of an importable module, or a path "
            f"FILE.yaml, FILE.yml, FILE.sql, FILE.py or FILE.py:NAME, where NAME (by default {DEFAULT_NAME!r}) is a Pipeline, or a "
            "function without parameters that returns one"
        )


def configured_pipeline(values: Settings) -> Pipeline:
    """The pipeline of the settings.

    Raises:
        PipelineError: the module, the file or the name does not exist or cannot be read, or is no pipeline.
        UserCodeError: the module's code raises an error.
        DeclaredError: the YAML or the SQL is not a valid pipeline.
        OperatorError: the pipeline is not valid; its message names the parameter.
    """
    return shop(values) if values.pipeline is None else load(values.pipeline)


def load(target: str) -> Pipeline:
    """The pipeline of a module or a file: `MODULE`, `MODULE:NAME`, `FILE.py`, `FILE.py:NAME`, `FILE.yaml`, `FILE.yml` or `FILE.sql`.

    Raises:
        UserCodeError: the module has a syntax error or raises an error, which is the cause. Errors of Tidemark are raised as they are.
        PipelineError: the module, the file or the name does not exist or cannot be read, or is no pipeline.
        DeclaredError: the YAML has other parts or values than its schema, the SQL has a statement that is refused, or the sources and
            tables of either do not fit together.
    """
    if target.endswith((*YAML_ENDINGS, SQL_ENDING)):
        return _read_declared(target, Path(target), read_sql if target.endswith(SQL_ENDING) else read)
    module_name, _, name = target.rpartition(":") if not target.endswith(".py") and ":" in target else (target, "", "")
    module = _import_file(target, Path(module_name)) if module_name.endswith(".py") else _import_module(target, module_name)
    attribute: Any = getattr(module, name or DEFAULT_NAME, None)
    if attribute is None:
        raise PipelineError.of(target, f"{module_name} has no {name or DEFAULT_NAME!r}")
    with locating_errors(_VARIABLE, target, Path(module.__file__) if module.__file__ else None):
        pipeline = attribute() if callable(attribute) else attribute
    if not isinstance(pipeline, Pipeline):
        raise PipelineError.of(target, f"{name or DEFAULT_NAME!r} is a {type(pipeline).__name__}, not a Pipeline")
    return pipeline


def _import_module(target: str, name: str) -> ModuleType:
    if not all(part.isidentifier() for part in name.split(".")):
        raise PipelineError.of(target, f"{name!r} is not the name of a module")
    with locating_errors(_VARIABLE, target, None):
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name is None or not f"{name}.".startswith(f"{error.name}."):  # a module that this one imports
                raise
            raise PipelineError.of(target, f"there is no module {error.name!r}; is its folder on PYTHONPATH?") from error


def _read_declared(target: str, file: Path, parse: Callable[[str], Pipeline]) -> Pipeline:
    try:
        text = file.read_text("utf-8-sig")  # editors of Windows may add a byte order mark
    except (OSError, UnicodeDecodeError) as error:
        reason = (isinstance(error, OSError) and error.strerror) or str(error)
        raise PipelineError.of(target, f"the file cannot be read: {reason}") from error
    try:
        return parse(text)
    except TidemarkError as error:
        raise DeclaredError.of_file(file, error) from error


def _import_file(target: str, file: Path) -> ModuleType:
    """Import a Python file as a module.

    It can import the modules of its folder, but none whose name another importable module has, such as Tidemark's own package `assets`.
    """
    if not file.is_file():
        raise PipelineError.of(target, f"there is no file {file}")
    folder = str(file.parent.resolve())
    if folder not in sys.path:
        sys.path.append(folder)
    spec = importlib.util.spec_from_file_location(file.stem, file)
    if spec is None or spec.loader is None:
        raise PipelineError.of(target, f"{file} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    is_new_name = file.stem not in sys.modules
    if is_new_name:
        sys.modules[file.stem] = module
    try:
        with locating_errors(_VARIABLE, target, file):
            spec.loader.exec_module(module)
    except BaseException:
        if is_new_name:  # as Python's own import does, so that the next one loads the file again
            sys.modules.pop(file.stem, None)
        raise
    return module
