"""A pipeline in YAML: the same sources, tables and expectations as in Python, except functions."""

import dataclasses
import importlib
from collections.abc import Sequence
from functools import cache
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
_WORDS = {
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
    """A pipeline in YAML is not valid."""

    @classmethod
    def of_values(cls, error: ValidationError, document: object) -> "DeclaredError":
        """Values that the schema does not allow, each with its path in the document."""
        found: dict[str, list[str]] = {}
        for one in error.errors():
            kind = "key" if one["loc"][-1:] == ("[key]",) else one["type"]
            words = _WORDS.get(kind, one["msg"].removeprefix("Value error, ").replace("Input should be ", "legal: "))
            faults = found.setdefault(_document_path(one["loc"], kind, document), [])
            faults += [words] if words not in faults else []
        return cls("; ".join(f"{path}: {', or '.join(faults)}" for path, faults in found.items()))

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
        description="the least share of matched rows of a join, for each day and side, below which a day is a warning: a number, or by the "
        "name of a table a number, or `warn_below` and `error_below`, each a number or one by the name of an input",
    )
    freshness: str | dict[str, str] | None = Field(
        None, description="how long a table may wait to reflect rows: a duration, or one by the name of a table; by default no limit"
    )
    first_day: str | None = Field(None, description="the first daily partition; by default the first day of the year of the oldest event")
    last_day: str | None = Field(
        None, description="the last day of the events, if the data are complete; by default the partitions have no end"
    )

    def pipeline(self) -> Pipeline:
        """The pipeline.

        Raises:
            DeclaredError: a source or a table is not legal.
            ContractError: sources and tables do not fit together, or a suite is of neither.
        """
        parts = cast(Any, self)  # of `document_model`
        made = Pipeline(
            sources=_specifications("source", parts.sources),
            tables=_specifications("table", parts.tables),
            suites=self._suites,
            completeness=_completeness(self.completeness),
            freshness=self.freshness,
            first_day=self.first_day,
            last_day=self.last_day,
        )
        made.check_suites(self.suites)
        return made

    def _suites(self) -> "dict[str, ExpectationSuite]":
        from great_expectations import ExpectationSuite

        return {
            name: ExpectationSuite(name=name, expectations=[_expectation(name, one) for one in expectations])
            for name, expectations in self.suites.items()
        }


def _completeness(given: Any) -> Any:
    """The required shares: a number, or by the name of a table a number or a `Completeness`.

    Raises:
        ContractError: a key is neither `warn_below` nor `error_below`.
    """
    if not isinstance(given, dict):
        return given
    known = [field.name for field in dataclasses.fields(Completeness)]
    for parts in given.values():
        if isinstance(parts, dict) and (unknown := next((name for name in parts if name not in known), None)) is not None:
            raise ContractError.bad_value("completeness", unknown, f"{' and '.join(known)}{did_you_mean(unknown, known)}")
    return {table: Completeness(**parts) if isinstance(parts, dict) else parts for table, parts in given.items()}


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
    """The parts of a pipeline.

    Raises:
        DeclaredError: there are other parts or values than in the schema.
    """
    try:
        return document_model().model_validate(values)
    except ValidationError as error:
        raise DeclaredError.of_values(error, values) from error


def read(text: str) -> Pipeline:
    """The pipeline of a YAML document: its parts, or a `defs.yaml` of Dagster with the parts as `attributes`.

    Raises:
        DeclaredError: the text is not YAML, or the document has other parts or values than the schema.
        ContractError: sources and tables do not fit together.
    """
    try:
        found = parse(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise DeclaredError(f"it is not one YAML document: {' '.join(str(error).split())}") from error
    return validate(found.get(_ATTRIBUTES) if isinstance(found, dict) and {_TYPE, _ATTRIBUTES} <= {*found} else found).pipeline()


def _specifications(kind: str, declared: Sequence[Declared]) -> list[Any]:
    found: list[Any] = []
    for one in declared:
        try:
            found.append(one.specification())
        except TidemarkError as error:
            raise DeclaredError.of_entry(kind, getattr(one, "name", ""), error) from error
    return found


def _expectation(table: str, one: Expectation) -> Any:
    from great_expectations.exceptions.exceptions import GreatExpectationsError
    from great_expectations.expectations.expectation_configuration import ExpectationConfiguration
    from great_expectations.expectations.registry import list_registered_expectation_implementations

    importlib.import_module("expectations.completeness")  # Great Expectations knows an expectation once its module is imported

    try:
        return ExpectationConfiguration(**one.model_dump()).to_domain_obj()  # pyright: ignore[reportArgumentType]
    except (GreatExpectationsError, ValueError) as error:
        known = list_registered_expectation_implementations()
        hint = "" if one.type in known else did_you_mean(one.type, known)
        raise DeclaredError.of_entry(f"expectation {one.type} of", table, f"{error}{hint}") from error


def _document_path(location: Sequence[object], kind: str, document: object) -> str:
    """The path of a value, such as `tables[2].operator.top_k`, without parts that pydantic adds, such as the alternatives of a union."""
    path, value = "", document
    for number, part in enumerate(location[:-2] if kind == "key" else location):
        is_missing = kind == "missing" and number == len(location) - 1
        if is_missing or (isinstance(value, dict) and part in value):
            path, value = f"{path}.{part}" if path else str(part), None if is_missing else cast(Any, value)[part]
        elif isinstance(value, list) and isinstance(part, int):
            path, value = f"{path}[{part}]", value[part]
    return path or "the document"
