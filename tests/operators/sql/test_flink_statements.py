"""The statements of Flink's documentation are mapped to operators, or refused with a reason and a way out."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from operators.errors import OperatorError
from operators.sql.explain import describe_parameters, explain
from operators.sql.plan import Plan, plan
from operators.sql.relations import Apply, walk

DOCUMENT: dict[str, Any] = yaml.safe_load(Path(__file__).with_name("flink_statements.yaml").read_text("utf-8"))
MAPPED = [case for case in DOCUMENT["cases"] if "plan" in case]
REFUSED = [case for case in DOCUMENT["cases"] if "refused" in case]


def planned(case: dict[str, Any]) -> Plan:
    return plan(f"{DOCUMENT['tables']};{case['sql']}").plans[-1]


def test_each_statement_is_either_mapped_or_refused():
    assert len(MAPPED) + len(REFUSED) == len(DOCUMENT["cases"])
    assert len(MAPPED) > 45
    assert len({case["name"] for case in DOCUMENT["cases"]}) == len(DOCUMENT["cases"])


@pytest.mark.parametrize("case", MAPPED, ids=lambda case: case["name"])
def test_a_statement_is_mapped_to_operators(case: dict[str, Any]):
    found = planned(case)
    assert [describe_parameters(one.operator) for one in walk(found.relation) if isinstance(one, Apply)] == case["plan"]
    explained = explain(found.relation)
    for operator in case["plan"]:
        assert operator in explained


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case["name"])
def test_a_statement_is_refused_with_a_reason_and_a_way_out(case: dict[str, Any]):
    with pytest.raises(OperatorError, match=f"{re.escape(case['refused'])}.*; "):  # the way out follows the reason
        planned(case)
