"""A pipeline in YAML: the same sources, tables and expectations as in Python, except functions."""

from collections.abc import Sequence
from datetime import date
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, cast

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model

from assets.contracts import DerivedAsset, SourceContract
from assets.pipeline import DEFAULT_COMPLETENESS, Pipeline
from operators.errors import TidemarkError
from platform_defs.declared.models import Declared, model_of

if TYPE_CHECKING:
    from great_expectations import ExpectationSuite

_TYPE, _ATTRIBUTES = "type", "attributes"
_WORDS = {"extra_forbidden": "there is no such parameter", "missing": "is missing", "model_type": "legal: a mapping"}
"""Words for pydantic's own kinds of errors."""


class DeclaredError(TidemarkError, ValueError):
    """A pipeline in YAML is not valid."""

    @classmethod
    def of_values(cls, error: ValidationError) -> "DeclaredError":
        """Values of other types than the schema has, each with its place in the document."""
        found = [(_place(one["loc"]), _WORDS.get(one["type"], one["msg"].removeprefix("Value error, "))) for one in error.errors()]
        return cls("; ".join(f"{place}: {fault}" for place, fault in found))

    @classmethod
    def of_entry(cls, kind: str, name: object, error: Exception) -> "DeclaredError":
        """A source, a table or an expectation is not legal."""
        return cls(f"{kind} {name!r}: {' '.join(str(error).split())}")


class Expectation(BaseModel):
    """An expectation of Great Expectations, as it serializes them.

    Args:
        type: its name, such as `expect_column_values_to_not_be_null`.
        kwargs: its parameters.
        meta: further data; `check` is the name of the asset check.
        description: what the check shows.
        severity: the severity of a failure.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)
    type: str
    kwargs: dict[str, Any] = Field(default_factory=dict)
    meta: dict[str, Any] = Field(default_factory=dict)
    description: str | None = None
    severity: Literal["critical", "warning", "info"] = "critical"


class Document(BaseModel):
    """The parts of a pipeline, except sources and tables."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    suites: dict[str, list[Expectation]] = Field(
        default_factory=dict, description="by the name of a source or table, the expectations for its rows"
    )
    completeness: float | dict[str, float] = Field(
        DEFAULT_COMPLETENESS,
        description="the least share of matched rows of a join, for each day and side: a number, or one by the name of a table",
    )
    first_day: date | None = Field(None, description="the first daily partition; by default the first day of the year of the oldest event")

    def pipeline(self) -> Pipeline:
        """The pipeline.

        Raises:
            DeclaredError: a source or a table is not legal.
            ContractError: sources and tables do not fit together.
        """
        parts = cast(Any, self)  # of `document_model`
        return Pipeline(
            sources=_made("source", parts.sources),
            tables=_made("table", parts.tables),
            suites=self._suites,
            completeness=self.completeness,
            first_day=None if self.first_day is None else str(self.first_day),
        )

    def _suites(self) -> "dict[str, ExpectationSuite]":
        from great_expectations import ExpectationSuite

        return {
            name: ExpectationSuite(name=name, expectations=[_expectation(name, one) for one in expectations])
            for name, expectations in self.suites.items()
        }


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


def read(text: str) -> Pipeline:
    """The pipeline of a YAML document: its parts, or a `defs.yaml` of Dagster with the parts as `attributes`.

    Raises:
        DeclaredError: the text is no YAML, or the document has other parts or values than the schema.
        ContractError: sources and tables do not fit together.
    """
    try:
        found = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise DeclaredError(f"it is no YAML: {' '.join(str(error).split())}") from error
    values = found.get(_ATTRIBUTES) if isinstance(found, dict) and {_TYPE, _ATTRIBUTES} <= {*found} else found
    try:
        return document_model().model_validate(values).pipeline()
    except ValidationError as error:
        raise DeclaredError.of_values(error) from error


def _made(kind: str, declared: Sequence[Declared]) -> list[Any]:
    found: list[Any] = []
    for one in declared:
        try:
            found.append(one.made())
        except TidemarkError as error:
            raise DeclaredError.of_entry(kind, getattr(one, "name", ""), error) from error
    return found


def _expectation(table: str, one: Expectation) -> Any:
    from great_expectations.exceptions.exceptions import GreatExpectationsError
    from great_expectations.expectations.expectation_configuration import ExpectationConfiguration

    try:
        return ExpectationConfiguration(**one.model_dump()).to_domain_obj()  # pyright: ignore[reportArgumentType]
    except (GreatExpectationsError, ValueError) as error:
        raise DeclaredError.of_entry(f"expectation {one.type} of", table, error) from error


def _place(location: Sequence[object]) -> str:
    """A place in the document, such as `tables[2].operator.top_k`."""
    found = ""
    for part in location:
        found += f"[{part}]" if isinstance(part, int) else f".{part}" if found else str(part)
    return found or "the document"
