"""The identities that tables of users contain stay as they are recorded in `identities.json`, or are read as equal."""

import json
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from types import SimpleNamespace
from typing import Any

import pytest

from operators.contract import ASIDE, FORMER_NAME
from platform_defs.engine.inputs.identity import differences, identity_of, parameters_as_text
from tests.engine.inputs import identities

RECORD, TABLES, CLASSES = identities.recorded(), identities.tables(), identities.configured_classes()
ONE_LEGAL_VALUE = {*((name, time) for name in CLASSES for time in ("time", "left_time", "right_time")), ("EveryInterval", "by")}
"""Parameters that are always the default in an identity: event times, and the interval of a purging trigger, which is of event time."""
ADD = "run `python -m tests.engine.inputs.identities`, which adds what the record lacks, and commit its file"
REFUSED = """{name}: {changes}.
A table that an earlier version made by this definition would be refused until it is rebuilt, or be continued with other results:
- A renamed parameter has the metadata FORMER_NAME (operators/contract.py).
- A new parameter has a default with the results of before. If no result depends on it, it has the metadata ASIDE.
- A default stays as it is: identities leave defaults out.
- Another notation of a value is converted in platform_defs/engine/inputs/identity.py, so that both are equal.
If results have to change, tables have to be refused: edit the entry of tests/engine/inputs/identities.json, and write into CHANGELOG.md
which tables must be rebuilt (docs/how-to/upgrade.md)."""


@pytest.mark.parametrize("name", TABLES)
def test_a_table_of_an_earlier_version_has_an_equal_identity(name: str) -> None:
    assert name in RECORD["identities"], f"the identity of {name} is not recorded: {ADD}"
    changes = differences(json.dumps(RECORD["identities"][name], sort_keys=True), TABLES[name])
    assert changes == [], REFUSED.format(name=name, changes="; ".join(changes))


@pytest.mark.parametrize("name", CLASSES)
def test_a_default_stays_as_it_is(name: str) -> None:
    """A default is not part of an identity: a table that was made with another default would be continued without notice."""
    before: dict[str, str] = RECORD["defaults"].get(name, {})
    former_names = {field.metadata.get(FORMER_NAME): field.name for field in fields(CLASSES[name])}
    recorded = {former_names.get(parameter, parameter): default for parameter, default in before.items()}
    now = identities.defaults_of(CLASSES[name])
    added = sorted(now.keys() - recorded.keys())
    assert added == [], f"defaults of {name} that are not recorded: {added}; {ADD}"
    changes = [f"the default of {p} was {text}, and is {now.get(p)}" for p, text in recorded.items() if now.get(p) != text]
    assert changes == [], REFUSED.format(name=name, changes="; ".join(changes))


def test_nothing_is_removed_from_the_record() -> None:
    """An entry without a case or a class checks nothing; an operator that is removed leaves tables that no version continues."""
    assert RECORD["identities"].keys() == TABLES.keys()
    assert RECORD["defaults"].keys() == CLASSES.keys(), ADD


def test_each_parameter_that_identities_have_is_in_the_record() -> None:
    found = {pair for table in TABLES.values() for pair in _parameters(json.loads(identity_of(table)))}
    parameters = {(name, f.name) for name, kind in CLASSES.items() for f in fields(kind) if f.init and ASIDE not in f.metadata}
    missing = sorted(parameters - found - ONE_LEGAL_VALUE)
    assert missing == [], f"add cases to tests/engine/inputs/identities.py in which {missing} are not the default, then {ADD}"


def _parameters(identity: Any) -> Iterator[tuple[str, str]]:
    """The parameters in an identity, each with its class."""
    return ((kind, parameter) for kind, values in _objects(identity) for parameter in values if parameter != "type")


def _objects(value: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """The objects in an identity, each with its class."""
    if isinstance(value, dict):
        if "operator" in value:
            yield value["operator"], value["parameters"]
            yield from (("Preparation", prepared) for prepared in value.get("prepare", {}).values())
            yield from [("Shape", value["shape"])] if "shape" in value else []
        elif "type" in value:
            yield value["type"], value
    for part in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _objects(part)


@dataclass(frozen=True)
class Typed:
    """An operator with a parameter that has the name of a key in identities, and with values whose `repr` differs between processes."""

    type: Any = None
    columns: Mapping[str, Any] = field(default_factory=dict)
    aside: Any = field(default=None, metadata={ASIDE: True})


@dataclass(frozen=True)
class OtherTyped(Typed):
    """An operator with the same parameters."""


def _asset(operator: Any) -> Any:
    """An asset with the fields that an identity has."""
    return SimpleNamespace(operator=operator, inputs=("l",), version="", prepare={}, shape=None)


def test_a_parameter_named_type_does_not_replace_the_class() -> None:
    assert differences(identity_of(_asset(Typed("x"))), _asset(Typed("x"))) == []
    assert differences(identity_of(_asset(Typed("x"))), _asset(OtherTyped("x"))) == ['operator was "Typed", and is "OtherTyped"']
    assert differences(identity_of(_asset(Typed("x"))), _asset(Typed("y"))) == ['parameter type was "x", and is "y"']
    inner = [_asset(Typed(columns={"a": Typed(kind)})) for kind in ("x", "y")]
    assert differences(identity_of(inner[0]), inner[1]) == ['columns.a.parameter type was "x", and is "y"']


def test_an_identity_of_an_earlier_version_in_which_a_parameter_replaced_the_class_is_equal() -> None:
    asset = _asset(Typed("x", {"a": 1}))
    stored = {"operator": "x", "parameters": {"columns": {"a": 1}}, "inputs": [*asset.inputs]}
    assert differences(json.dumps(stored, sort_keys=True), asset) == []
    assert differences(json.dumps(stored, sort_keys=True), _asset(Typed("y", {"a": 1}))) != []


def test_a_version_that_was_recorded_as_a_number_equals_its_text() -> None:
    table = replace(TABLES["Aggregate"], version="2")
    recorded = json.dumps(json.loads(identity_of(table)) | {"version": 2})
    assert differences(recorded, table) == []
    assert differences(recorded, replace(table, version="3")) == ['version was "2", and is "3"']


def test_a_mapping_may_have_the_key_type() -> None:
    for values in (["a"], ["b"]), ({"a": 1}, {"a": 2}), ("a", "b"), (1, None):
        before, after = (_asset(Typed(columns={"type": value})) for value in values)
        assert differences(identity_of(before), before) == []
        [change] = differences(identity_of(before), after)
        assert change.startswith("columns.type")


@pytest.mark.parametrize("name", TABLES)
def test_the_parameters_as_text_are_those_that_kept_rows_have_recorded(name: str) -> None:
    """With other text, the kept rows of tables of users would be made again."""
    assert parameters_as_text(TABLES[name].operator) == repr(TABLES[name].operator)


def _function() -> Callable[[], None]:
    def function() -> None: ...

    return function


def test_the_parameters_as_text_are_equal_in_every_process() -> None:
    """In another process, functions have other addresses and sets another order, as here those of equal values do."""
    rng, names = random.Random(1), [f"column {n}" for n in range(50)]
    sets = [frozenset(rng.sample(names, len(names))) for _ in range(20)]
    assert len({repr(columns) for columns in sets}) > 1
    for where in (Typed, lambda v: Typed(aside=v), lambda v: Typed(columns={"a": [Typed((v,))]})):
        functions = [_function(), _function()]
        assert len({repr(where(function)) for function in functions}) == 2
        assert len({parameters_as_text(where(function)) for function in functions}) == 1
        assert len({parameters_as_text(where(columns)) for columns in sets}) == 1
        assert parameters_as_text(where(_function())) != parameters_as_text(where(_asset))
        assert parameters_as_text(where(frozenset("ab"))) != parameters_as_text(where(frozenset("ac")))
        assert parameters_as_text(where(frozenset({1, 2}))) == repr(where(frozenset({1, 2})))
