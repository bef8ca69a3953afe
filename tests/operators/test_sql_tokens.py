"""The function calls of an aggregate's SQL, with their arguments and clauses."""

import pytest

from operators._support.sql_tokens import Call, calls_of, without_comments

FUNCTIONS = frozenset({"sum", "corr"})


def _found(sql: str) -> list[tuple[str, tuple[str, ...], bool, str | None, str]]:
    return [(c.function, c.arguments, c.is_distinct, c.condition, sql[c.start : c.end]) for c in calls_of(sql, FUNCTIONS)]


@pytest.mark.parametrize(
    ("sql", "calls"),
    [
        ("sum(v)", [("sum", ("v",), False, None, "sum(v)")]),
        ("1 + SUM ( a * (b + 1) ) / 2", [("sum", ("a * (b + 1)",), False, None, "SUM ( a * (b + 1) )")]),
        ("corr(a, greatest(b, c)) - 1", [("corr", ("a", "greatest(b, c)"), False, None, "corr(a, greatest(b, c))")]),
        ("sum(DISTINCT v)", [("sum", ("v",), True, None, "sum(DISTINCT v)")]),
        ("sum(ALL v)", [("sum", ("v",), False, None, "sum(ALL v)")]),
        ("sum(distinct_users)", [("sum", ("distinct_users",), False, None, "sum(distinct_users)")]),
        ("sum(v) FILTER (WHERE (a) > 1) + 1", [("sum", ("v",), False, "(a) > 1", "sum(v) FILTER (WHERE (a) > 1)")]),
        ("sum(a) + sum(b)", [("sum", ("a",), False, None, "sum(a)"), ("sum", ("b",), False, None, "sum(b)")]),
        ("coalesce(sum(a), 0)", [("sum", ("a",), False, None, "sum(a)")]),
        ("sum(')' || v) -- sum(w)", [("sum", ("')' || v",), False, None, "sum(')' || v)")]),
        (r"sum(replace(v, r'\', ')'))", [("sum", (r"replace(v, r'\', ')')",), False, None, r"sum(replace(v, r'\', ')'))")]),
        ("sum(s[f(1, 2)], 3)", [("sum", ("s[f(1, 2)]", "3"), False, None, "sum(s[f(1, 2)], 3)")]),
        ("sum()", [("sum", (), False, None, "sum()")]),
        ("1 + `SUM` /* of */ (`sum`)", [("sum", ("`sum`",), False, None, "`SUM` /* of */ (`sum`)")]),
        ("1 -- one\r + sum(v)", [("sum", ("v",), False, None, "sum(v)")]),
        ("'sum(v)' || `sum(v)` || max(v.sum(1)) || sum", []),
        ("sum(v", []),
    ],
)
def test_calls(sql: str, calls: list[tuple[object, ...]]) -> None:
    assert _found(sql) == calls


def test_a_call_in_the_arguments_of_another_is_left_out() -> None:
    assert [*calls_of("corr(sum(a), 1)", FUNCTIONS)] == [Call("corr", ("sum(a)", "1"), False, None, 0, 15)]


def test_comments_are_left_out_and_quoted_text_is_not() -> None:
    assert without_comments("sum(v -- all\n) + '--' /* a (b */ + 1") == "sum(v  \n) + '--'   + 1"
