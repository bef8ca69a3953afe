"""A pipeline in YAML: the same sources, tables and expectations as in Python, except functions."""

import dataclasses
import importlib
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

import yaml
from pydantic import Field, ValidationError, create_model

from assets.completeness import Completeness
from assets.contract_checks import ContractError
from assets.contracts import DerivedAsset, SourceContract
from assets.pipeline import DEFAULT_COMPLETENESS, Pipeline
from operators.errors import TidemarkError, did_you_mean
from platform_defs.declared.models import KEYS, Declared, Strict, model_of
from platform_defs.declared.text import parse

if TYPE_CHECKING:
    from great_expectations import ExpectationSuite

_TYPE, _ATTRIBUTES = "type", "attributes"
_FAULT_TEXTS = {
    "extra_forbidden": "there is no such parameter",
    "missing": "is missing",
    "model_type": "legal: a mapping",
    "dict_type": "legal: a mapping",
    "list_type": "legal: a list",
    "string_type": "legal: text; write it in quotes",
    "int_type": "legal: a whole number",
    "bool_type": "legal: true or false",
    "key": KEYS,
}
"""The text for each of pydantic's kinds of errors."""


class DeclaredError(TidemarkError, ValueError):
    """A pipeline in YAML or SQL is not valid."""

    @classmethod
    def of_values(cls, error: ValidationError, document: object) -> "DeclaredError":
        """Values that the schema does not allow, each with its path in the document."""
        faults_by_path: dict[tuple[str, ...], list[str]] = {}
        for detail in error.errors():
            kind = "key" if detail["loc"][-1:] == ("[key]",) else detail["type"]
            words = _FAULT_TEXTS.get(kind, detail["msg"].removeprefix("Value error, ").replace("Input should be ", "legal: "))
            faults = faults_by_path.setdefault(_document_path(detail["loc"], kind, document), [])
            faults += [words] if words not in faults else []
        # if a part of a value has a fault, the faults of the value itself are those of alternatives that do not apply
        inner = [path for path, faults in faults_by_path.items() if KEYS in faults or not _has_part_in(path, faults_by_path)]
        texts = {path: "".join(path).removeprefix(".") or "the document" for path in inner}
        return cls("; ".join(f"{text}: {_combined(faults_by_path[path])}" for path, text in texts.items()))

    @classmethod
    def of_file(cls, file: Path, error: TidemarkError) -> "DeclaredError":
        """A file of YAML or SQL is not a valid pipeline."""
        return cls(f"{file}: {error}")

    @classmethod
    def of_entry(cls, kind: str, name: object, error: object) -> "DeclaredError":
        """A source, a table or an expectation is not legal."""
        return cls(f"{kind} {name!r}: {' '.join(str(error).split())}")


class Expectation(Strict):
    """An expectation of Great Expectations, as it serializes them.

    Args:
        type: its name, such as `expect_column_values_to_not_be_null`.
        kwargs: its parameters.
        meta: further data; `check` is the name of the asset check.
        description: what the check shows.
        severity: the severity of a failure.
    """

    type: str
    kwargs: dict[str, Any] = Field(default_factory=dict)
    meta: dict[str, Any] = Field(default_factory=dict)
    description: str | None = None
    severity: Literal["critical", "warning", "info"] = "critical"


class Document(Strict):
    """The parts of a pipeline, except sources and tables."""

    suites: dict[str, list[Expectation]] = Field(
        default_factory=dict, description="by the name of a source or table, the expectations for its rows"
    )
    completeness: float | dict[str, float | dict[str, float | dict[str, float]]] = Field(
        DEFAULT_COMPLETENESS,
        description="the least share of matched rows of a join, for each day and side; a day below it is a warning. It is one number, "
        "or by the name of a table a number, or `warn_below` and `error_below`; each of these is a number, or one by the name of an input",
    )
    freshness: str | dict[str, str] | None = Field(
        None, description="how long a table may wait to reflect rows: one duration, or one for each table by its name; by default no limit"
    )
    first_day: str | None = Field(None, description="the first daily partition; by default the first day of the year of the oldest event")
    last_day: str | None = Field(
        None, description="the last day of the events, if the data are complete; by default the partitions have no end"
    )

    def pipeline(self) -> Pipeline:
        """The pipeline.

        Raises:
            DeclaredError: a source or a table is not legal.
            ContractError: sources and tables do not fit together, or a suite has the name of neither a source nor a table.
        """
        parts = cast(Any, self)  # an instance of `document_model()`, which has sources and tables
        pipeline = Pipeline(
            sources=_specifications("source", parts.sources),
            tables=_specifications("table", parts.tables),
            suites=self._suites,
            completeness=_required_shares(self.completeness),
            freshness=self.freshness,
            first_day=self.first_day,
            last_day=self.last_day,
        )
        pipeline.check_suites(self.suites)
        return pipeline

    def _suites(self) -> "dict[str, ExpectationSuite]":
        from great_expectations import ExpectationSuite

        return {
            name: ExpectationSuite(name=name, expectations=[_make_expectation(name, expectation) for expectation in expectations])
            for name, expectations in self.suites.items()
        }


def _required_shares(completeness: Any) -> Any:
    """The required shares: a number, or by the name of a table a number or a `Completeness`.

    Raises:
        ContractError: a key is neither `warn_below` nor `error_below`.
    """
    if not isinstance(completeness, dict):
        return completeness
    parameters = [field.name for field in dataclasses.fields(Completeness)]
    for parts in completeness.values():
        if isinstance(parts, dict) and (unknown := next((name for name in parts if name not in parameters), None)) is not None:
            raise ContractError.bad_value("completeness", unknown, f"{' and '.join(parameters)}{did_you_mean(unknown, parameters)}")
    return {table: Completeness(**parts) if isinstance(parts, dict) else parts for table, parts in completeness.items()}


@cache
def document_model() -> type[Document]:
    """The schema of a pipeline in YAML."""
    lists = cast(Any, list)
    return create_model(
        "TidemarkPipeline",
        __base__=Document,
        __doc__="Sources, the tables that are computed from them, and the expectations that their rows must meet.",
        sources=(lists[model_of(SourceContract)], Field(description="the sources")),
        tables=(lists[model_of(DerivedAsset)], Field(default_factory=list, description="the tables, in any order")),
    )


def validate(values: object) -> Document:
    """Validate the parts of a pipeline.

    Raises:
        DeclaredError: a part or a value is not in the schema, or a required part is missing.
    """
    try:
        return document_model().model_validate(values)
    except ValidationError as error:
        raise DeclaredError.of_values(error, values) from error


def read(text: str) -> Pipeline:
    """The pipeline of a YAML document: its parts, or a `defs.yaml` of Dagster with the parts as `attributes`.

    Raises:
        DeclaredError: the text is not YAML, or the document has other parts or values than the schema.
        ContractError: sources and tables do not fit together, or a suite has the name of neither a source nor a table.
    """
    try:
        document = parse(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise DeclaredError(f"it is not one YAML document: {' '.join(str(error).split())}") from error
    is_component = isinstance(document, dict) and {_TYPE, _ATTRIBUTES} <= {*document}
    return validate(document.get(_ATTRIBUTES) if is_component else document).pipeline()


def _specifications(kind: str, declared: Sequence[Declared]) -> list[Any]:
    specifications: list[Any] = []
    for declaration in declared:
        try:
            specifications.append(declaration.specification())
        except TidemarkError as error:
            raise DeclaredError.of_entry(kind, getattr(declaration, "name", ""), error) from error
    return specifications


def _make_expectation(table: str, declared: Expectation) -> Any:
    from great_expectations.exceptions.exceptions import GreatExpectationsError
    from great_expectations.expectations.expectation_configuration import ExpectationConfiguration
    from great_expectations.expectations.registry import list_registered_expectation_implementations

    importlib.import_module("expectations.completeness")  # Great Expectations knows an expectation once its module is imported

    try:
        return ExpectationConfiguration(**declared.model_dump()).to_domain_obj()  # pyright: ignore[reportArgumentType]
    except (GreatExpectationsError, ValueError) as error:
        known_types = list_registered_expectation_implementations()
        hint = "" if declared.type in known_types else did_you_mean(declared.type, known_types)
        raise DeclaredError.of_entry(f"expectation {declared.type} of", table, f"{error}{hint}") from error


def _has_part_in(path: tuple[str, ...], paths: Iterable[tuple[str, ...]]) -> bool:
    """Whether one of the paths is that of a part of the value at `path`."""
    return any(other[: len(path)] == path and len(other) > len(path) for other in paths)


def _combined(faults: Sequence[str]) -> str:
    """The faults of a value, with one `legal:` for alternatives; or only that its keys are not text."""
    text = KEYS if KEYS in faults else ", or ".join(faults)
    return text.replace(", or legal: ", ", or ") if text.startswith("legal: ") else text


def _document_path(location: Sequence[object], kind: str, document: object) -> tuple[str, ...]:
    """The path of a value, such as `.tables`, `[2]` and `.operator`, without parts that pydantic adds, such as alternatives of a union."""
    path, value = (), document
    for number, part in enumerate(location[:-2] if kind == "key" else location):
        is_missing = kind == "missing" and number == len(location) - 1
        if is_missing or (isinstance(value, dict) and part in value):
            path, value = (*path, f".{part}"), None if is_missing else cast(Any, value)[part]
        elif isinstance(value, list) and isinstance(part, int):
            path, value = (*path, f"[{part}]"), value[part]
    return path
