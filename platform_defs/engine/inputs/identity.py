"""The identity of a table: its operator's public name, parameters, inputs, and a version for code that is not compared.

Equal values have equal identities, however they are written: `"24 hours"` and 86_400_000, `"price DESC"` and `"price desc nulls last"`, or
a default that is given or left out. Other SQL expressions are compared as they are written. Moving a module does not change an identity.
The text in a commit is only compared as data; it is never evaluated.

For a set, a date, a time, a Decimal, a member of an Enum, a ZoneInfo, a UUID, a path or a compiled pattern, an earlier version of Tidemark
recorded only the type, and nothing if the parameter's default has the same type. A text of that version is compared with what that version
would record for the present asset. The present format always records these values, even if they are defaults. So if an asset has such a
value, a text in the present format never equals one of the earlier version.

In earlier versions, a parameter named `type` replaced the name of the class. A text is also compared with what these versions would record.

For an object that is neither one of these nor a dataclass, only the type is recorded, as before.
"""

import dataclasses
import json
import re
from collections.abc import Iterator, Mapping, Sequence, Set
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import PurePath
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

from assets.contracts import DerivedAsset, Preparation, Shape
from operators.contract import ASIDE, CANONICAL, FORMER_NAME
from operators.errors import DurationError
from operators.timing import Duration, duration_ms

_OPERATOR, _PARAMETERS, _TYPE, _VALUE, _MAPPING = "operator", "parameters", "type", "value", "mapping"
_TYPE_PARAMETER = "parameter type"
"""The key of a parameter that is named `type`, which is the key of a class's name."""
_IDENTITY = "_identity"
"""The attribute in which an asset keeps its identity. It is not a field, so equality ignores it, and a changed copy does not have it."""
_DURATIONS = (Duration, Duration | None)
_NAMES = (str | Sequence[str], str | Sequence[str] | None, str | tuple[str, ...])
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+(?=>)")


@dataclasses.dataclass(frozen=True)
class _Format:
    """A format of identities.

    Args:
        kinds: for the first format, classes by name: a dictionary with a `type` is an object of that class. None for other formats.
        has_values: whether the values of sets, dates and so on are recorded (see the module); if not, only their types are.
        has_class: whether the name of a class is also recorded if it has a parameter `type`; if not, the parameter replaces it.
    """

    kinds: Mapping[str, type] | None = None
    has_values: bool = True
    has_class: bool = True


_PRESENT, _CLASS_REPLACED, _TYPES_ONLY = _Format(), _Format(has_class=False), _Format(has_values=False, has_class=False)


def identity_of(asset: DerivedAsset) -> str:
    """An asset's identity as text. It is computed once for each asset object, because assets do not change."""
    attributes = vars(asset)
    if _IDENTITY not in attributes:
        attributes[_IDENTITY] = _computed_identity(asset, _PRESENT)
    return attributes[_IDENTITY]


def _computed_identity(asset: DerivedAsset, style: _Format) -> str:
    fields = _canonical_form(asset.operator, style)
    operator = {_OPERATOR: fields.pop(_TYPE), _PARAMETERS: fields, "inputs": [*asset.inputs]}
    preparations = {name: _parameters(Preparation, _field_values(preparation), style) for name, preparation in asset.prepare.items()}
    optional = {
        "version": asset.version,
        "prepare": {name: parameters for name, parameters in preparations.items() if parameters},
        "shape": _shape(asset, style),
    }
    return json.dumps(operator | {name: value for name, value in optional.items() if value}, sort_keys=True)


def parameters_as_text(operator: Any) -> str:
    """The parameters of an operator as text, also those that do not affect results.

    It is equal in every process if they are dataclasses and plain values. Code, and the state of other objects, are not part of it:
    `version` covers them. It is the operator's `repr` without memory addresses; or, since the order of a set differs between processes,
    its canonical form.
    """
    if not _has_unordered(operator):
        return _ADDRESS.sub("", repr(operator))
    forms = {name: _canonical_form(value, _PRESENT) for name, value in _field_values(operator).items()}
    return f"{type(operator).__qualname__} {json.dumps(forms, sort_keys=True)}"


def _has_unordered(value: Any) -> bool:
    """Whether a value is or contains a set whose order may differ between processes, because the hashes of its members do."""
    if isinstance(value, Set) and len(value) > 1 and not all(isinstance(member, int | float) for member in value):
        return True
    if isinstance(value, Mapping):
        return _has_unordered([*value, *value.values()])
    is_collection = isinstance(value, Set | Sequence) and not isinstance(value, str | bytes)
    return any(_has_unordered(part) for part in (value if is_collection else _field_values(value).values()))


def _shape(asset: DerivedAsset, style: _Format) -> Any:
    """The parameters of an asset's `Shape`. If the shape is a function or None, only whether there is one."""
    return _parameters(Shape, _field_values(asset.shape), style) if isinstance(asset.shape, Shape) else bool(asset.shape)


def differences(stored: str, asset: DerivedAsset) -> list[str]:
    """The differences between a table's stored identity and the asset's, as text; empty if they are equal."""
    if stored == identity_of(asset):
        return []
    stored_identity = _read_stored(stored, asset)
    texts = identity_of(asset), *(_computed_identity(asset, style) for style in (_CLASS_REPLACED, _TYPES_ONLY))
    return min((_described_differences(stored_identity, json.loads(text)) for text in texts), key=len)


def _described_differences(stored_identity: dict[str, Any], present_identity: dict[str, Any]) -> list[str]:
    present_identity = (  # an identity of an earlier version may have no inputs and no shape; then they are not compared
        {key: value for key, value in present_identity.items() if key in stored_identity or key not in ("inputs", "shape")}
        if "inputs" not in stored_identity
        else present_identity
    )
    return [
        f"{name} was {json.dumps(before) if before is not None else 'not set'}, "
        f"and is {json.dumps(after) if after is not None else 'not set'}"
        for name, before, after in _differing_values("", stored_identity, present_identity)
    ]


def _differing_values(path: str, before: Any, after: Any) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(before, dict) and isinstance(after, dict):
        for key in sorted(before.keys() | after.keys()):
            inner = key if path in ("", _PARAMETERS) else f"{path}.{key}"
            yield from _differing_values(inner, before.get(key), after.get(key))
    elif before != after:
        yield path, before, after


def _read_stored(stored: str, asset: DerivedAsset) -> dict[str, Any]:
    """A stored identity, with the present names of parameters and the canonical notation of their values.

    An identity in the first format (with modules and explicit defaults) is converted to the present format.
    """
    identity: dict[str, Any] = json.loads(stored)
    kinds = {kind.__qualname__: kind for kind in _kinds(asset.operator)}
    if _TYPE in identity:
        fields = _canonical_form(identity, _Format(kinds, has_values=False))
        identity = {_OPERATOR: fields.pop(_TYPE), _PARAMETERS: fields} | ({"version": asset.version} if asset.version else {})
    if "version" in identity:  # earlier versions of Tidemark also recorded a number
        identity = identity | {"version": str(identity["version"])}
    return identity | {_PARAMETERS: _in_present_notation(type(asset.operator), identity[_PARAMETERS], kinds)}


def _in_present_notation(kind: type | None, stored: Mapping[str, Any], kinds: Mapping[str, type]) -> dict[str, Any]:
    """Stored parameters of a class with their present names, and with values in canonical notation, also in objects within them."""
    fields = {field.name: field for field in _fields(kind)}
    parameters: dict[str, Any] = {}
    for name, value in _with_present_names(kind, stored).items():
        name_of_class = value.get(_TYPE) if isinstance(value, dict) else None  # a mapping may have the key `type` too
        inner = _in_present_notation(kinds.get(name_of_class), value, kinds) if isinstance(name_of_class, str) else value
        parameters[name] = _convert_to_type(fields[name], inner) if name in fields else inner
    return parameters


def _kinds(value: Any) -> Iterator[type]:
    """The classes of a configured operator and of its parameters."""
    if dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            yield from _kinds(getattr(value, field.name, None))
    elif isinstance(value, Sequence) and not isinstance(value, str):
        for item in value:
            yield from _kinds(item)
    yield type(value)


def _canonical_form(value: Any, style: _Format) -> Any:
    """A value in canonical form. For a function, or an object that is no dataclass and of a class not named here, only its type."""
    if style.kinds is not None and isinstance(value, dict) and _TYPE in value:
        return _form_of_object(value, style, style.kinds)
    if isinstance(value, Mapping):
        return {str(key): _canonical_form(item, style) for key, item in value.items()}
    if isinstance(value, timedelta):
        return duration_ms(value, "value")
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_canonical_form(item, style) for item in value]
    if value is None or isinstance(value, str | int | float | bool):
        return value
    if isinstance(value, Set | Enum | date | time | Decimal | ZoneInfo | UUID | PurePath | re.Pattern):
        return _recorded_value(value, style) if style.has_values else {_TYPE: type(value).__qualname__}
    parameters = _parameters(type(value), _field_values(value), style)
    if style.has_class and _TYPE in parameters:
        parameters[_TYPE_PARAMETER] = parameters.pop(_TYPE)
    return {_TYPE: type(value).__qualname__, **parameters}


def _form_of_object(stored: dict[str, Any], style: _Format, kinds: Mapping[str, type]) -> dict[str, Any]:
    """The canonical form of an object or a mapping in the first format."""
    if stored[_TYPE] == _MAPPING:
        return {str(key): _canonical_form(item, style) for key, item in stored["items"]}
    name = str(stored[_TYPE]).rpartition(":")[2]
    return {_TYPE: name, **_parameters(kinds.get(name), {key: item for key, item in stored.items() if key != _TYPE}, style)}


def _recorded_value(value: "Set[Any] | Enum | date | time | Decimal | ZoneInfo | UUID | PurePath | re.Pattern[Any]", style: _Format) -> Any:
    if isinstance(value, Set):
        return sorted((_canonical_form(item, style) for item in value), key=lambda form: json.dumps(form, sort_keys=True))
    kind = {_TYPE: type(value).__qualname__}
    if isinstance(value, Enum):
        return kind | {_VALUE: value.name}
    if isinstance(value, ZoneInfo):
        return kind | {_VALUE: value.key}  # None for a zone without a name; its `str` contains a memory address
    if isinstance(value, re.Pattern):
        return kind | {_VALUE: _canonical_form(value.pattern, style), "flags": value.flags}
    return kind | {_VALUE: value.isoformat() if isinstance(value, date | time) else str(value)}


def _field_values(value: Any) -> dict[str, Any]:
    return {f.name: getattr(value, f.name) for f in _fields(value) if f.init}


def _fields(value: Any) -> Sequence["dataclasses.Field[Any]"]:
    return dataclasses.fields(value) if dataclasses.is_dataclass(value) else ()


def _parameters(kind: type | None, values: Mapping[str, Any], style: _Format) -> dict[str, Any]:
    """The parameters that affect results, without those that equal the class's default.

    A default is included if it is one of the values that an earlier version did not record.
    """
    fields = {f.name: f for f in _fields(kind)}
    parameters: dict[str, Any] = {}
    for name, value in _with_present_names(kind, values).items():
        field = fields.get(name)
        if field is None:
            parameters[name] = _canonical_form(value, style)
        elif ASIDE not in field.metadata:
            form = _form_of(field, value, style)
            if form != _default(field, style) or (style.has_values and form != _form_of(field, value, _TYPES_ONLY)):
                parameters[name] = form
    return parameters


def _with_present_names(kind: type | None, values: Mapping[str, Any]) -> dict[str, Any]:
    """Values by the names of a class's parameters; a parameter that was renamed may have its former name."""
    present_names = {field.metadata.get(FORMER_NAME): field.name for field in _fields(kind)}
    return {present_names.get(name, name): value for name, value in values.items()}


def _default(field: "dataclasses.Field[Any]", style: _Format) -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return _form_of(field, field.default_factory(), style)
    return dataclasses.MISSING if field.default is dataclasses.MISSING else _form_of(field, field.default, style)


def _form_of(field: "dataclasses.Field[Any]", value: Any, style: _Format) -> Any:
    return _convert_to_type(field, _canonical_form(value, style))


def _convert_to_type(field: "dataclasses.Field[Any]", form: Any) -> Any:
    """A parameter's value in the canonical form of its type: a duration in ms, a single name as a list, an order in canonical notation."""
    if field.type in _DURATIONS and isinstance(form, str):
        try:
            return duration_ms(form, field.name)
        except DurationError:
            return form
    form = [form] if field.type in _NAMES and isinstance(form, str) else form
    canonical = field.metadata.get(CANONICAL)
    return form if canonical is None else [canonical(text) for text in form]
