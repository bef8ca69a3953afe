"""The rows of a group as an array in a fixed order."""

from pyspark.sql import Column
from pyspark.sql import functions as F

from operators.columns import temporary

_ORDER, _ROW = temporary("order"), temporary("row")


def collect_in_order(order: str, row: str) -> Column:
    """An aggregate: the rows of a group as an array, in the order of a column; the rows themselves need not be comparable.

    Args:
        order: the column that orders the rows.
        row: the column of a row; a null is left out.
    """

    def compare_orders(first: Column, second: Column) -> Column:
        return F.when(first[_ORDER] < second[_ORDER], -1).when(first[_ORDER] > second[_ORDER], 1).otherwise(0)

    ordered_row = F.when(F.col(row).isNotNull(), F.struct(F.col(order).alias(_ORDER), F.col(row).alias(_ROW)))
    return F.transform(F.array_sort(F.collect_list(ordered_row), compare_orders), lambda element: element[_ROW])
