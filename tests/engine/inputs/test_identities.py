"""The identities that tables of users contain stay as they are recorded in `identities.json`, or are read as equal."""

import json
from collections.abc import Iterator
from dataclasses import fields
from typing import Any

import pytest

from operators.contract import ASIDE, FORMER_NAME
from platform_defs.engine.inputs.identity import differences, identity_of
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
