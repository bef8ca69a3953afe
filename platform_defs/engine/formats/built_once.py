"""Columns that are built once for each JVM.

The columns that parse and validate the rows of a source depend on its contract alone. Building them takes some 350 calls from Python into
the JVM, and a stream needs them for each batch.
"""

from collections.abc import Callable
from functools import lru_cache, wraps
from typing import ParamSpec, TypeVar

from pyspark import SparkContext

P = ParamSpec("P")
T = TypeVar("T")
_MOST_KEPT = 256


def built_once(build: Callable[P, T]) -> Callable[P, T]:
    """Cache the results of a function by its arguments, separately for each JVM.

    Args:
        build: builds columns of Spark from its arguments alone, which must be hashable. Callers must not modify the result.
    """

    @lru_cache(maxsize=_MOST_KEPT)
    def of_jvm(_gateway: object, args: tuple[object, ...], named: tuple[tuple[str, object], ...]) -> T:
        return build(*args, **dict(named))  # pyright: ignore[reportCallIssue]

    @wraps(build)
    def built(*args: P.args, **named: P.kwargs) -> T:
        return of_jvm(SparkContext._gateway, args, tuple(sorted(named.items())))

    return built
