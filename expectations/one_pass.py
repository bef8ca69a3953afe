"""Evaluates the expectations of a suite in one query.

Great Expectations shares a query only between expectations on single columns with the same row condition; each other
expectation costs it one to three queries. Here all conditions of a suite are counted in one aggregation. Expectations of uniqueness
group the rows by their columns first. Several of them use grouping sets, so the rows are still read once and shuffled once.
"""

from collections.abc import Iterable, Mapping, Sequence

from great_expectations.expectations.expectation import Expectation
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from expectations.counting import CountConditions, column_types, counting
from expectations.finding import Finding, check_name

_SET, _COUNTS, _COUNT = "__set", "__counts", "count"
_MOST_KEY_COLUMNS = 63
"""Spark identifies a grouping set by one bit of a bigint for each column."""


def evaluate(frame: DataFrame, expectations: Sequence[Expectation]) -> dict[str, Finding]:
    """Evaluate the expectations that can be counted in one query, without sample rows.

    Args:
        frame: a static Spark frame.
        expectations: expectations with different names.

    Returns:
        The findings that Great Expectations would return, by check name. An expectation without a finding must be evaluated by Great
        Expectations.
    """
    types = column_types(frame.schema)
    countings = {check_name(e): c for e in expectations if (c := counting(e, types))}
    if not countings or len({column for c in countings.values() for column in c.key}) > _MOST_KEY_COLUMNS:
        return {}
    try:
        counts = _count(frame, list(countings.values()))
    except (PySparkException, Py4JError):
        return {}  # Great Expectations then reports which expectations cannot be evaluated, and why
    return {name: _finding(c, counts) for name, c in countings.items()}


Counts = Mapping[tuple[str, tuple[str, ...]], int]
"""The number of rows by condition and key. With a key, only rows whose key occurs in several of these rows are counted."""


def _finding(conditions: CountConditions, counts: Counts) -> Finding:
    evaluated, base, unexpected = (
        counts[conditions.evaluated, ()],
        counts[conditions.base, ()],
        counts[conditions.unexpected, conditions.key],
    )
    return Finding(
        passed=base == 0 or (base - unexpected) / base >= conditions.mostly,
        evaluated=evaluated,
        unexpected=unexpected,
        percent=unexpected / base * 100 if base else 0.0,
    )


def _count(frame: DataFrame, countings: Sequence[CountConditions]) -> Counts:
    conditions = list(dict.fromkeys(condition for c in countings for condition in (c.evaluated, c.base, c.unexpected)))
    names = {condition: f"{_COUNT}{i}" for i, condition in enumerate(conditions)}
    counted = _struct(f"count_if({condition}) AS {name}" for condition, name in names.items())
    keys = list(dict.fromkeys(c.key for c in countings if c.key))
    counted_pairs = list(dict.fromkeys([(condition, ()) for condition in conditions] + [(c.unexpected, c.key) for c in countings]))
    totals = _by_key(frame, keys, counted).agg(_totals(counted_pairs, names, keys)) if keys else frame.agg(counted)
    [[values]] = totals.collect()
    return {key: value or 0 for key, value in zip(counted_pairs, values, strict=True)}  # a sum over no keys is null


def _struct(values: Iterable[str]) -> Column:
    """Values in SQL as one struct: one expression takes fewer calls into the JVM than many."""
    return F.expr(f"struct({', '.join(values)})")


def _by_key(frame: DataFrame, keys: Sequence[tuple[str, ...]], counted: Column) -> DataFrame:
    """The counts of each key, as a struct, and the grouping set to which it belongs."""
    counts = counted.alias(_COUNTS)
    if len(keys) == 1:
        return frame.groupBy(*keys[0]).agg(F.lit(_set_id(keys[0], keys)).alias(_SET), counts)
    return frame.groupingSets(list(map(list, keys)), *_columns(keys)).agg(F.grouping_id().alias(_SET), counts)


def _totals(counted_pairs: Sequence[tuple[str, tuple[str, ...]]], names: Mapping[str, str], keys: Sequence[tuple[str, ...]]) -> Column:
    """The rows of each condition, as a struct; with a key, those whose key is repeated. The first grouping set has each row once."""
    totals = list[str]()
    for condition, key in counted_pairs:
        count = f"{_COUNTS}.{names[condition]}"
        is_counted = f"{_SET} = {_set_id(key or keys[0], keys)}" + (f" AND {count} > 1" if key else "")
        totals.append(f"sum({count}) FILTER (WHERE {is_counted})")
    return _struct(totals)


def _columns(keys: Sequence[tuple[str, ...]]) -> list[str]:
    return list(dict.fromkeys(column for key in keys for column in key))


def _set_id(key: tuple[str, ...], keys: Sequence[tuple[str, ...]]) -> int:
    """Spark's `grouping_id` of a key. It has a bit for each column of all keys, the first one highest; the bit is 1 if the key lacks it."""
    return int("".join("0" if column in key else "1" for column in _columns(keys)), 2)
