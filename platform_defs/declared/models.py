"""Makes pydantic models from the dataclasses of specifications (sources, tables, operators): the schema of a pipeline in YAML.

A field of a model has the name, the type and the description of the dataclass's field, so a parameter is described in one place. Values are
not converted. Where a field may be one of several specifications, its YAML is a mapping with one key, the specification's name, as in
`window: {tumbling: {size: 1 hour}}`.
"""

import dataclasses
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from functools import cache, reduce
from operator import or_
from types import UnionType
from typing import Annotated, Any, ClassVar, Literal, Union, cast, get_args, get_origin, get_type_hints

from pydantic import (
    AliasChoices,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    create_model,
    model_validator,
)
from pyspark.sql.types import StructType

from operators import (
    Aggregate,
    AsOfJoin,
    CoGroup,
    Consecutive,
    CountWindowAggregate,
    Deduplicate,
    Evictor,
    IntervalJoin,
    Operator,
    ProcessCountWindow,
    ProcessWindow,
    Select,
    TopK,
    TopN,
    Trigger,
    WindowedAggregate,
    WindowJoin,
)
from operators.contract import FORMER_NAME
from operators.errors import did_you_mean
from operators.evictors import EVICTORS
from operators.triggers import TRIGGERS
from platform_defs.safe_text import shortened

OPERATORS = (
    Select,
    IntervalJoin,
    AsOfJoin,
    WindowJoin,
    CoGroup,
    WindowedAggregate,
    ProcessWindow,
    CountWindowAggregate,
    ProcessCountWindow,
    Aggregate,
    TopK,
    TopN,
    Deduplicate,
    Consecutive,
)
KEYS = "legal: keys that are text; YAML may read on, yes and no as true and false, so write them in quotes"
_PROTOCOLS: dict[Any, tuple[type, ...]] = {Operator: OPERATORS, Trigger: TRIGGERS, Evictor: EVICTORS}
"""The specifications of each protocol that YAML can name. A user's own specification can only be given in Python."""
_NOT_DECLARED = {"rises"}
"""Parameters that follow from the pipeline, so that YAML does not give them."""


class Strict(BaseModel):
    """A mapping with known keys, whose values are not converted."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    @model_validator(mode="before")
    @classmethod
    def _require_text_keys(cls, values: Any) -> Any:
        if isinstance(values, dict) and not all(isinstance(key, str) for key in values):
            raise ValueError(KEYS)
        return values


class Declared(Strict):
    """The YAML of a specification."""

    kind: ClassVar[type]

    def specification(self) -> Any:
        """The specification.

        Raises:
            OperatorError: a value is not legal; the message names the parameter.
        """
        return self.kind(**{name.rstrip("_"): _to_specification(getattr(self, name)) for name in self.model_fields_set})


class OneOf(Declared):
    """The YAML of one of several specifications: a mapping with one key."""

    @model_validator(mode="before")
    @classmethod
    def _require_one_key(cls, values: Any) -> Any:
        if not isinstance(values, dict) or len(values) != 1:
            raise ValueError(f"legal: a mapping with one key, of {', '.join(cls.model_fields)}")
        [name] = values
        if isinstance(name, str) and name not in cls.model_fields:
            legal = f"a mapping with one key, of {', '.join(cls.model_fields)}{did_you_mean(name, cls.model_fields)}"
            raise ValueError(f"{shortened(name)!r} is unknown; legal: {legal}")
        return {name: {} if value is None else value for name, value in values.items()}

    def specification(self) -> Any:
        """The specification."""
        [name] = self.model_fields_set
        return _to_specification(getattr(self, name))


@cache
def model_of(kind: type) -> type[Declared]:
    """The model of a specification's class."""
    hints, fields = get_type_hints(kind), dict[str, Any]()
    for field in dataclasses.fields(kind):
        if field.init and field.name not in _NOT_DECLARED:
            is_required = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
            former_name = field.metadata.get(FORMER_NAME)
            names = [field.name] if former_name is None else [field.name, former_name]
            model_field = Field(
                ... if is_required else None, validation_alias=AliasChoices(*names), description=_descriptions(kind).get(field.name)
            )
            fields[_field_name(field.name)] = (_field_type(hints[field.name], kind), model_field)
    return _model(kind.__name__, Declared, (inspect.getdoc(kind) or "").partition("\n")[0], kind, fields)


def one_of(kinds: Sequence[type]) -> type[OneOf]:
    """The model of one of several specifications."""
    fields = {name_of(kind): (model_of(kind), Field(None, description=model_of(kind).__doc__)) for kind in kinds}
    return _model("_or_".join(name_of(kind) for kind in kinds)[:60], OneOf, "", object, fields)


def name_of(kind: type) -> str:
    """The name of a specification in YAML.

    >>> name_of(WindowedAggregate), name_of(TopN)
    ('windowed_aggregate', 'top_n')
    """
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", kind.__name__).lower()


def _field_name(name: str) -> str:
    """The name of a model's field: a name that is also a method of pydantic's models, such as `schema`, gets a `_` at its end."""
    return f"{name}_" if hasattr(BaseModel, name) else name


def _model(name: str, base: Any, doc: str, kind: type, fields: Mapping[str, Any]) -> Any:
    model: Any = create_model(name, __base__=base, __doc__=doc, **fields)
    model.kind = kind
    return model


def _descriptions(kind: type) -> dict[str, str]:
    """The descriptions of parameters in a docstring of Google's style."""
    _, _, arguments = (inspect.getdoc(kind) or "").partition("Args:\n")
    matches = re.findall(r"^    (\w+): (.*(?:\n {8}.*)*)", arguments, re.MULTILINE)
    return {name: re.sub(r"\s+", " ", text) for name, text in matches}


def _field_type(hint: Any, owner: type | None = None) -> Any:
    """The type of a model's field.

    Args:
        hint: the type of the dataclass's field.
        owner: the dataclass; None if the type is a part of another type.
    """
    if hint in _PROTOCOLS:
        return one_of([kind for kind in _PROTOCOLS[hint] if kind is not owner])  # a model that contains itself has no end
    if dataclasses.is_dataclass(hint):
        return model_of(cast(type, hint))
    if get_origin(hint) in (Union, UnionType):
        return _union(get_args(hint))
    if get_origin(hint) in _COLLECTIONS:
        return _COLLECTIONS[get_origin(hint)](hint)
    return hint


def _union(parts: Sequence[Any]) -> Any:
    """A union. A duration is text or 0: YAML may read `10:30` as the number 630."""
    duration_types = [int, str, timedelta] if timedelta in parts else []
    kinds: list[Any] = [part for part in parts if dataclasses.is_dataclass(part)]
    protocols = [part for part in parts if getattr(part, "_is_protocol", False) and part not in _PROTOCOLS]  # only Python objects have them
    functions = [part for part in parts if get_origin(part) is Callable]
    member_types = [_field_type(part) for part in parts if part not in (*kinds, *duration_types, *protocols, *functions, StructType)]
    member_types += [_Duration] if duration_types else []
    return reduce(or_, [*member_types, *([one_of(kinds)] if len(kinds) > 1 else map(model_of, kinds))])


def _require_duration(value: Any, validate: ValidatorFunctionWrapHandler) -> Any:
    """Validate a duration. Pydantic's own error would advise quotes, but a number in quotes, without a unit, is no duration."""
    try:
        return validate(value)
    except ValidationError as error:
        raise ValueError("legal: text with a unit, such as 90 s or 5 minutes, or 0") from error


_Duration = Annotated[str | Literal[0], WrapValidator(_require_duration)]
_COLLECTIONS: dict[Any, Callable[[Any], Any]] = {
    tuple: lambda hint: list[_field_type(get_args(hint)[0])],
    Sequence: lambda hint: list[_field_type(get_args(hint)[0])],
    Mapping: lambda hint: dict[str, _field_type(get_args(hint)[1])],
}


def _to_specification(value: Any) -> Any:
    """The specification, or the parameter of one, for a value of a model."""
    if isinstance(value, Declared):
        return value.specification()
    if isinstance(value, list):
        return tuple(_to_specification(item) for item in value)
    return {key: _to_specification(item) for key, item in value.items()} if isinstance(value, dict) else value
