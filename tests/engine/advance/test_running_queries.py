"""Which query a step continues. No test starts Spark."""

from typing import Any

from platform_defs.engine.advance.running_queries import MOST_STEPS, RunningQueries


class FakeQuery:
    """A query that counts how often it was stopped."""

    steps = 3
    stopped = 0

    def stop(self) -> None:
        self.stopped += 1


def _queries(step: str | None, query: Any) -> RunningQueries:
    queries = RunningQueries()
    queries.remember("pairs", step, query)
    return queries


def test_a_step_continues_only_the_query_that_was_fed_the_step_before() -> None:
    query = FakeQuery()
    queries = _queries("s3", query)
    assert queries.query_at_step("pairs", "s3") is query
    assert queries.query_at_step("pairs", "s4") is queries.query_at_step("pairs", "s2") is queries.query_at_step("others", "s3") is None
    queries.remember("pairs", "s4", query)  # pyright: ignore[reportArgumentType]
    assert queries.query_at_step("pairs", "s4") is query


def test_no_step_continues_a_query_in_the_middle_of_a_step() -> None:
    queries = _queries(None, FakeQuery())
    assert queries.query_at_step("pairs", "s3") is None
    assert queries.query_at_step("pairs", None) is None, "a table without a step has no id either"


def test_an_old_query_is_replaced() -> None:
    query = FakeQuery()
    query.steps = MOST_STEPS
    assert _queries("s3", query).query_at_step("pairs", "s3") is None


def test_queries_end_with_the_stream_and_are_used_only_in_it() -> None:
    query, queries = FakeQuery(), RunningQueries()
    assert not queries.are_enabled
    with queries.enable():
        queries.remember("pairs", "s3", query)  # pyright: ignore[reportArgumentType]
        assert queries.are_enabled
    assert (query.stopped, queries.are_enabled, queries.query_at_step("pairs", "s3")) == (1, False, None)
    queries.drop("pairs")
    assert query.stopped == 1
