"""Changelogs: the difference of two tables as row kinds, and the table that a changelog leads to.

The kinds are Flink's: `+I` an insert, `-U` and `+U` a row before and after its update, `-D` a delete. Applying a changelog to the older
table gives the newer table. `difference` returns the shortest changelog of two tables with a key. In a changelog of tables without a key
(`bag_changes`), a `-D` deletes all copies of a row, so the copies that remain are inserted again.
"""

from collections.abc import Callable, Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from operators.column_types import can_be_compared
from operators.columns import are_rows_equal, as_comparable, check_free, check_present, quoted, quoted_name, temporary
from operators.engine_columns import drop_engine_columns
from operators.errors import OperatorError

CHANGE = "change"
CHANGED_AT = "changed_at"
"""A column of the engine's changelogs: when the change was committed, by the ledger's clock."""
STEP = "step"
"""A column of the engine's changelogs: the number of the step that made the change."""
INSERT, UPDATE_BEFORE, UPDATE_AFTER, DELETE = "+I", "-U", "+U", "-D"
COMMIT_VERSION, COMMITTED_AT = "commit_version", "committed_at"
"""The columns of a Delta table's change data feed, as a source reads it, that describe the commit and not the row."""
_SIGN, _EXISTS, _KIND, _HAS_VALUE = temporary("sign"), temporary("exists"), temporary("kind"), temporary("has_value")
_AGGREGATE, _VALUES, _COMPARABLE = temporary("aggregate"), temporary("values"), temporary("comparable")
OWN_CHANGE, OWN_COPIES = temporary("change"), temporary("copies")
"""The names to use in place of `change` and `copies` if the rows may have columns with those names: no source has such a column."""
_MICROS_NTZ = "yyyy-MM-dd'T'HH:mm:ss.SSSSSS"
_MICROS = f"{_MICROS_NTZ}XXX"


def difference(before: DataFrame, after: DataFrame, *, key: Sequence[str], change: str = CHANGE) -> DataFrame:
    """The changes that turn one keyed table into another; nulls are equal.

    Args:
        before: the older table, at most one row for each key.
        after: the newer table, with the same columns.
        key: the key columns; nulls are equal.
        change: the name of the column for the kind of a change.

    Returns:
        `before`'s columns and `change` (string): `+I`, `-U` with its `+U`, or `-D`. Rows that are equal in both tables are not in it.

    Raises:
        OperatorError: `key` is empty or names a column that `before` lacks, `after` lacks a column of `before`, or the tables have a
            column with the name of the parameter `change`.
    """
    if not key:
        raise OperatorError.bad_value("key", key, "at least one column; without a key every row would change into every other")
    check_present(drop_engine_columns(before), key, "key")
    check_present(drop_engine_columns(after), drop_engine_columns(before).columns, "after")
    check_free(before, change)
    columns = [*quoted(before.columns), F.lit(True).alias(_EXISTS)]
    before_rows, after_rows = before.select(*columns).alias("o"), after.select(*columns).alias("n")
    kinds = (
        F.when(F.col(f"o.{_EXISTS}").isNull(), F.array(F.lit(INSERT)))
        .when(F.col(f"n.{_EXISTS}").isNull(), F.array(F.lit(DELETE)))
        .when(~are_rows_equal("o", "n", before.columns, before.schema), F.array(F.lit(UPDATE_BEFORE), F.lit(UPDATE_AFTER)))
    )
    changes = before_rows.join(after_rows, are_rows_equal("o", "n", key), "full").withColumn(_KIND, F.explode(kinds))
    is_before = F.col(_KIND).isin(UPDATE_BEFORE, DELETE)
    return changes.select(
        *[F.when(is_before, F.col(f"o.{quoted_name(c)}")).otherwise(F.col(f"n.{quoted_name(c)}")).alias(c) for c in before.columns],
        F.col(_KIND).alias(change),
    )


def last_changes(changelog: DataFrame, *, key: Sequence[str], order: str) -> DataFrame:
    """The last change of each key.

    Args:
        changelog: rows with `change`.
        key: the key columns; nulls are equal. Empty if the table has a single row.
        order: the column that orders the steps; a step has at most one change of a key, or a `-U` with its `+U`.

    Returns:
        The changelog's columns, one row for each key: `+I`, `+U` or `-D`.
    """
    rank = temporary("rank")
    latest = Window.partitionBy(*quoted(key)).orderBy(F.col(quoted_name(order)).desc())
    changes = changelog.where(F.col(CHANGE) != UPDATE_BEFORE)
    return changes.withColumn(rank, F.row_number().over(latest)).where(F.col(rank) == 1).drop(rank)


def fold(changelog: DataFrame, *, key: Sequence[str], order: str) -> DataFrame:
    """The table that results from applying a changelog to an empty table.

    Args:
        changelog: rows with `change`.
        key: the key columns; nulls are equal. Empty if the table has a single row.
        order: the column that orders the steps; a step has at most one change of a key, or a `-U` with its `+U`.

    Returns:
        The changelog's columns without `change` and the order's column; one row for each key whose last change is not a delete.

    Raises:
        OperatorError: the changelog lacks `change`, the order's column or a key column.
    """
    _check_columns(changelog, key, order)
    changes = last_changes(changelog, key=key, order=order)
    return changes.where(F.col(CHANGE) != DELETE).drop(CHANGE, order)


def as_json(columns: Sequence[str]) -> Column:
    """Columns as a JSON object with its nulls. Timestamps are in ISO 8601 with six digits of the second, in the session's time zone."""
    fields = F.struct(*quoted(columns))
    return F.to_json(fields, {"ignoreNullFields": "false", "timestampFormat": _MICROS, "timestampNTZFormat": _MICROS_NTZ})


def keyed_upserts(
    changelog: DataFrame,
    *,
    key: Sequence[str],
    order: str,
    encode: Callable[[Sequence[str]], Column] = as_json,
    encode_key: Callable[[Sequence[str]], Column] | None = None,
) -> DataFrame:
    """A changelog as messages for a keyed topic: the newest value of a key, or a tombstone if the key was deleted.

    A `+I` or `+U` is the key's value. A `-D` or `-U` is a tombstone (a null value) if the same step has no `+I` or `+U` of the key; else
    it is dropped. Sending the same changes again leads to the same topic.

    Args:
        changelog: rows with `change`.
        key: the key columns; nulls are equal.
        order: the column that orders the steps.
        encode: makes one value of columns; by default a JSON object.
        encode_key: makes the key; by default as `encode` makes a value.

    Returns:
        The order's column, `key` and `value` (by default strings, JSON objects with their nulls): one row for each key and step.

    Raises:
        OperatorError: the changelog lacks `change`, the order's column or a key column.
    """
    _check_columns(changelog, key, order)
    is_value = F.col(CHANGE).isin(INSERT, UPDATE_AFTER)
    has_value = F.bool_or(is_value).over(Window.partitionBy(*quoted([order, *key])))
    messages = changelog.withColumn(_HAS_VALUE, has_value).where(is_value | ~F.col(_HAS_VALUE))
    value_columns = [c for c in changelog.columns if c not in (CHANGE, order)]
    value = F.when(is_value, encode(value_columns))
    return messages.select(quoted_name(order), (encode_key or encode)(key).alias("key"), value.alias("value"))


def _check_columns(changelog: DataFrame, key: Sequence[str], order: str) -> None:
    check_present(changelog, [CHANGE], "changelog")
    check_present(changelog, [order], "order")
    check_present(changelog, key, "key")


def bag_changes(before: DataFrame, after: DataFrame, change: str = CHANGE) -> DataFrame:
    """The changes that turn one table without a key into another; nulls are equal.

    Returns:
        `before`'s columns and `change` (string). A row with fewer copies has one `-D`, which deletes all of them, and a `+I` for each
        copy of `after`. A row with more copies has a `+I` for each added copy. Rows with equally many copies are not in it.

    Raises:
        OperatorError: `after` lacks a column of `before`, or the tables have a column with the name `change`.
    """
    check_present(after, before.columns, "after")
    check_free(before, change)
    copies_before, copies_after = F.count_if(F.col(_SIGN) < 0), F.count_if(F.col(_SIGN) > 0)
    kinds_if_more = F.when(copies_after > copies_before, F.array_repeat(F.lit(INSERT), (copies_after - copies_before).cast("int")))
    kinds_if_fewer = F.when(
        copies_after < copies_before, F.concat(F.array(F.lit(DELETE)), F.array_repeat(F.lit(INSERT), copies_after.cast("int")))
    )
    rows_with_kinds = _aggregate_by_row(before, after, F.coalesce(kinds_if_more, kinds_if_fewer))
    return rows_with_kinds.select(*quoted(before.columns), F.explode(_AGGREGATE).alias(change))  # a null has no row


def bag_difference(before: DataFrame, after: DataFrame, copies: str = "copies") -> DataFrame:
    """The rows that two tables contain in different numbers of copies; nulls are equal.

    Returns:
        `before`'s columns and `copies` (bigint): the number of copies in `after` less that in `before`.

    Raises:
        OperatorError: `after` lacks a column of `before`, or the tables have a column with the name `copies`.
    """
    check_present(after, before.columns, "after")
    check_free(before, copies)
    rows_with_copies = _aggregate_by_row(before, after, F.sum(_SIGN)).where(F.col(_AGGREGATE) != 0)
    return rows_with_copies.select(*quoted(before.columns), F.col(_AGGREGATE).alias(copies))


def _aggregate_by_row(before: DataFrame, after: DataFrame, aggregate: Column) -> DataFrame:
    """Each distinct row of two tables, with an aggregate of the signs of its copies: -1 for one of `before`, and 1 for one of `after`."""
    rows = after.select(*quoted(before.columns), F.lit(1).alias(_SIGN)).unionByName(before.withColumn(_SIGN, F.lit(-1)))
    comparable_columns = [f.name for f in before.schema.fields if can_be_compared(f.dataType)]
    other_fields = [f for f in before.schema.fields if f.name not in comparable_columns]
    if not other_fields:
        return rows.groupBy(*quoted(before.columns)).agg(aggregate.alias(_AGGREGATE))
    as_comparables = F.struct(*[as_comparable(F.col(quoted_name(f.name)), f.dataType) for f in other_fields])
    # The maps and variants of all copies are equal, except for the order of entries.
    first_values = F.first(F.struct(*quoted(f.name for f in other_fields)))
    grouped = rows.groupBy(*quoted(comparable_columns), as_comparables.alias(_COMPARABLE))
    aggregated = grouped.agg(aggregate.alias(_AGGREGATE), first_values.alias(_VALUES))
    return aggregated.select(*quoted(comparable_columns), f"{_VALUES}.*", _AGGREGATE)
