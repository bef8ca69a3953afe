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
            f"{_VARIABLE} is {shortened(target)!r}: {shortened(reason)}; legal: MODULE:NAME of an importable module, or a path FILE.yaml, "
            f"FILE.sql, FILE.py or FILE.py:NAME, where NAME (by default {DEFAULT_NAME!r}) is a Pipeline, or a function without "
            "parameters that returns one"
        )


def configured_pipeline(values: Settings) -> Pipeline:
    """The pipeline of the settings.

    Raises:
        PipelineError: the module or the name does not exist, or is no pipeline.
        UserCodeError: the module's code raises an error.
        OperatorError: the pipeline is not valid; its message names the parameter.
    """
    return shop(values) if values.pipeline is None else load(values.pipeline)


def load(target: str) -> Pipeline:
    """The pipeline of a module or a file: `MODULE:NAME`, `FILE.py`, `FILE.py:NAME`, `FILE.yaml` or `FILE.sql`.

    Raises:
        UserCodeError: the module has a syntax error or raises an error, which is the cause. Errors of Tidemark are raised as they are.
        PipelineError: the module, the file or the name does not exist, or is no pipeline.
        DeclaredError: the YAML has other parts or values than its schema, or the SQL has a statement that is refused.
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
        text = file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise PipelineError.of(target, f"{file} cannot be read: {error}") from error
    try:
        return parse(text)
    except TidemarkError as error:
        raise DeclaredError(f"{file}: {error}") from error


def _import_file(target: str, file: Path) -> ModuleType:
    """Import a Python file as a module; it can import modules of its own folder."""
    if not file.is_file():
        raise PipelineError.of(target, f"there is no file {file}")
    folder = str(file.parent.resolve())
    if folder not in sys.path:
        sys.path.append(folder)
    spec = importlib.util.spec_from_file_location(file.stem, file)
    if spec is None or spec.loader is None:
        raise PipelineError.of(target, f"{file} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(file.stem, module)
    with locating_errors(_VARIABLE, target, file):
        spec.loader.exec_module(module)
    return module
