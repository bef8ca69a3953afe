"""Changelogs: the difference of two tables as row kinds, and the way back.

The kinds are Flink's: `+I` an insert, `-U` and `+U` a row before and after its update, `-D` a delete. A
changelog is exact: folding it over the older table gives the newer one, and no row in it is superfluous.
"""

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from operators.columns import check_free, check_present, comparable, has_map, same_rows, temporary
from operators.errors import OperatorError

CHANGE = "change"
CHANGED_AT = "changed_at"
"""The column of a changelog that the engine keeps: when the change was committed, by the ledger's clock."""
INSERT, UPDATE_BEFORE, UPDATE_AFTER, DELETE = "+I", "-U", "+U", "-D"
COMMIT_VERSION, COMMITTED_AT = "commit_version", "committed_at"
"""The columns of a Delta table's change data feed, as a source takes it, that tell of the commit and not of the row."""
_SIGN = temporary("sign")
_THERE = temporary("there")
_ROW, _KIND, _ENTRIES = temporary("row"), temporary("kind"), temporary("entries")
OWN_CHANGE, OWN_COPIES = temporary("change"), temporary("copies")
"""What `change` and `copies` are called where the rows are a user's and the result is no table: no source's column has these names."""
_MICROS_NTZ = "yyyy-MM-dd'T'HH:mm:ss.SSSSSS"
_MICROS = f"{_MICROS_NTZ}XXX"


def difference(before: DataFrame, after: DataFrame, *, key: Sequence[str], change: str = CHANGE) -> DataFrame:
    """The changes that lead from one keyed table to another, nulls being equal to nulls.

    Args:
        before: the older table, at most one row a key.
        after: the newer one, with the same columns.
        key: the key columns; a null is an ordinary key.
        change: the name of the column that tells the kind of a change.

    Returns:
        `before`'s columns and `change` (string): `+I`, `-U` with its `+U`, or `-D`. Equal rows are left out.
    """
    if not key:
        raise OperatorError.bad_value("key", key, "at least one column; without a key every row would change into every other")
    check_present(before, key, "key")
    check_present(after, before.columns, "after")
    check_free(before, change)
    columns = [*[F.col(f"`{c}`") for c in before.columns], F.lit(True).alias(_THERE)]
    old, new = before.select(columns).alias("o"), after.select(columns).alias("n")
    kinds = (
        F.when(F.col(f"o.{_THERE}").isNull(), F.array(F.lit(INSERT)))
        .when(F.col(f"n.{_THERE}").isNull(), F.array(F.lit(DELETE)))
        .when(~same_rows("o", "n", before.columns, before.schema), F.array(F.lit(UPDATE_BEFORE), F.lit(UPDATE_AFTER)))
    )
    told = old.join(new, same_rows("o", "n", key), "full").withColumn(_KIND, F.explode(kinds))
    gone = F.col(_KIND).isin(UPDATE_BEFORE, DELETE)
    return told.select(
        *[F.when(gone, F.col(f"o.`{c}`")).otherwise(F.col(f"n.`{c}`")).alias(c) for c in before.columns], F.col(_KIND).alias(change)
    )


def net(changelog: DataFrame, *, key: Sequence[str], order: str) -> DataFrame:
    """The last change of each key.

    Args:
        changelog: rows with `change`.
        key: the key columns.
        order: a column that orders the steps; inside a step a key has one change, or a `-U` with its `+U`.

    Returns:
        The changelog's columns, one row a key: `+I`, `+U` or `-D`.
    """
    rank = temporary("rank")
    latest = Window.partitionBy(*key).orderBy(F.col(order).desc())
    told = changelog.where(F.col(CHANGE) != UPDATE_BEFORE)
    return told.withColumn(rank, F.row_number().over(latest)).where(F.col(rank) == 1).drop(rank)


def fold(changelog: DataFrame, *, key: Sequence[str], order: str) -> DataFrame:
    """The table that a changelog leads to, from nothing; without `change` and the order."""
    last = net(changelog, key=key, order=order)
    return last.where(F.col(CHANGE) != DELETE).drop(CHANGE, order)


def keyed_upserts(changelog: DataFrame, *, key: Sequence[str], order: str) -> DataFrame:
    """A changelog as a keyed topic takes it: the newest value of a key, or a tombstone where the key has gone.

    A row that came, or that an update left, is its value. A row that went, or that an update replaced, is a tombstone (a null value)
    where no row of its key came in the same step, and else is left out. Sent again, the same changes lead to the same topic.

    Args:
        changelog: rows with `change`.
        key: the key columns; a null is an ordinary key.
        order: the column that orders the steps.

    Returns:
        The order's column, `key` and `value` (strings, JSON objects; nulls are told): one row a key and step.
    """
    check_present(changelog, [*key, CHANGE, order], "key")
    came = F.col(CHANGE).isin(INSERT, UPDATE_AFTER)
    any_came = F.bool_or(came).over(Window.partitionBy(order, *key))
    told = changelog.withColumn(_SIGN, any_came).where(came | ~F.col(_SIGN))
    own = [c for c in changelog.columns if c not in (CHANGE, order)]
    value = F.when(came, _json(own))
    return told.select(order, _json(key).alias("key"), value.alias("value"))


def _json(columns: Sequence[str]) -> Column:
    return F.to_json(F.struct(*columns), {"ignoreNullFields": "false", "timestampFormat": _MICROS, "timestampNTZFormat": _MICROS_NTZ})


def bag_changes(before: DataFrame, after: DataFrame, change: str = CHANGE) -> DataFrame:
    """The changes that lead from one table without a key to another, nulls being equal to nulls.

    Returns:
        `before`'s columns and `change` (string): `-D`, once for all copies of a row that there are fewer of, and `+I` for each
        copy that is to be there then. Rows held equally often are left out.
    """
    check_present(after, before.columns, "after")
    check_free(before, change)
    held, wanted = F.count_if(F.col(_SIGN) < 0), F.count_if(F.col(_SIGN) > 0)
    more = F.when(wanted > held, F.array_repeat(F.lit(INSERT), (wanted - held).cast("int")))
    fewer = F.when(wanted < held, F.concat(F.array(F.lit(DELETE)), F.array_repeat(F.lit(INSERT), wanted.cast("int"))))
    kinds = F.coalesce(more, fewer, F.array().cast("array<string>"))
    return _by_row(before, after, kinds.alias(_KIND)).select(*_own(before), F.explode(_KIND).alias(change))


def bag_difference(before: DataFrame, after: DataFrame, copies: str = "copies") -> DataFrame:
    """The rows that two tables hold a different number of times, nulls being equal to nulls.

    Returns:
        `before`'s columns and `copies` (bigint): how many more of the row `after` holds (below zero: fewer).
    """
    check_present(after, before.columns, "after")
    check_free(before, copies)
    counted = _by_row(before, after, F.sum(_SIGN).alias(_KIND)).where(F.col(_KIND) != 0)
    return counted.select(*_own(before), F.col(_KIND).alias(copies))


def _own(frame: DataFrame) -> list[Column]:
    return [F.col(f"`{c}`") for c in frame.columns]


def _by_row(before: DataFrame, after: DataFrame, value: Column) -> DataFrame:
    """A value for each row that one of two tables holds, from its copies: those held have the sign -1, those wanted 1."""
    both = after.select(*_own(before), F.lit(1).alias(_SIGN)).unionByName(before.withColumn(_SIGN, F.lit(-1)))
    plain = [f.name for f in before.schema.fields if not has_map(f.dataType)]
    maps = [f for f in before.schema.fields if f.name not in plain]
    if not maps:
        return both.groupBy(*_own(before)).agg(value)
    entries = F.struct(*[comparable(F.col(f"`{f.name}`"), f.dataType) for f in maps])
    kept = F.first(F.struct(*[F.col(f"`{f.name}`") for f in maps])).alias(_ROW)  # equal in all copies, but for the order of a map's entries
    found = both.groupBy(*[F.col(f"`{c}`") for c in plain], entries.alias(_ENTRIES)).agg(value, kept)
    return found.select(*[F.col(f"`{c}`") for c in plain], f"{_ROW}.*", _KIND)
