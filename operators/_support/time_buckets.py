"""Time buckets for an interval join, so that a row is compared only with the rows of its key at about its time.

Without buckets a join compares every two rows of a key, so that its cost grows with the square of the rows per key. With them, each row of
one side is in the bucket of its time, and each row of the other side in every bucket that contains times within its bounds, at most two.
"""

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from operators.columns import temporary
from operators.timing import Interval

_BOUNDS_PER_BUCKET = 4
"""The length of a bucket, in lengths of the interval. The bounds of one row in four extend over two buckets, and that row is copied."""
_BUCKETS = temporary("left_bucket"), temporary("right_bucket")


def bucket_ms(interval: Interval) -> int:
    """The length of a bucket."""
    return _BOUNDS_PER_BUCKET * max(1, interval.upper - interval.lower)


@dataclass(frozen=True)
class BucketedJoin:
    """A join of two frames by key and interval within time buckets. It returns what the same join without buckets returns.

    Args:
        interval: the bounds.
        times: the left and the right time in epoch ms.
        condition: the condition of the join: equal keys, times within the bounds, and what else must hold.
    """

    interval: Interval
    times: tuple[Column, Column]
    condition: Column

    def __call__(self, left: DataFrame, right: DataFrame, how: str) -> DataFrame:
        """Join two frames.

        Args:
            left: the left rows.
            right: the right rows.
            how: the kind of the join as Spark names it, such as `full` or `left_anti`.
        """
        if how == "right":
            return self._join(self._with_copies(left, 0), self._with_bucket(right, 1), how)
        if how != "full":
            return self._join(self._with_bucket(left, 0), self._with_copies(right, 1), how)
        # a copied row may match in one bucket and not in another, so each side keeps its unmatched rows where it has no copies
        unmatched = self._join(self._with_bucket(right, 1), self._with_copies(left, 0), "left_anti")
        return self(left, right, "left").unionByName(unmatched, allowMissingColumns=True)

    def _join(self, rows: DataFrame, other_rows: DataFrame, how: str) -> DataFrame:
        left_bucket, right_bucket = map(F.col, _BUCKETS)
        return rows.join(other_rows, (left_bucket == right_bucket) & self.condition, how).drop(*_BUCKETS)

    def _with_bucket(self, rows: DataFrame, index: int) -> DataFrame:
        """Each row with the bucket of its time."""
        return rows.withColumn(_BUCKETS[index], self._bucket(self.times[index]))

    def _with_copies(self, rows: DataFrame, index: int) -> DataFrame:
        """Each row once for each bucket that contains times of the other side within its bounds."""
        interval, time = (self.interval, self.interval.mirrored)[index], self.times[index]
        first_bucket, last_bucket = self._bucket(time + interval.lower), self._bucket(time + interval.upper)
        return rows.withColumn(_BUCKETS[index], F.explode(F.array_distinct(F.array(first_bucket, last_bucket))))

    def _bucket(self, time: Column) -> Column:
        """The first millisecond of the bucket of a time."""
        return time - F.pmod(time, F.lit(bucket_ms(self.interval)))
