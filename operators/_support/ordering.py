"""One column of an ORDER BY clause, as a checked value."""

import re
from dataclasses import dataclass
from typing import Self

from pyspark.sql import Column
from pyspark.sql import functions as F

from operators.columns import quoted_name
from operators.errors import OperatorError
from operators.parameters import check_column

_CLAUSE = re.compile(r"\s*(`[^`]+`|\w+)(?:\s+((?ai:asc|desc)))?(?:\s+(?ai:nulls)\s+((?ai:first|last)))?\s*")
"""Words are compared as ASCII: Unicode has other letters that equal an `s` or an `i` if case is ignored."""


@dataclass(frozen=True)
class Ordering:
    """One column of an order.

    Args:
        column: its name.
        descending: whether the largest value comes first.
        nulls_first: whether nulls come before all other values. By default a null is the smallest value: first if ascending, last if
            descending.
    """

    column: str
    descending: bool
    nulls_first: bool

    @classmethod
    def read(cls, text: str, parameter: str) -> Self:
        """Read `column [ASC | DESC] [NULLS FIRST | NULLS LAST]`.

        Raises:
            OperatorError: the text has another form.

        >>> Ordering.read("total DESC NULLS FIRST", "order_by")
        Ordering(column='total', descending=True, nulls_first=True)
        """
        clause = _CLAUSE.fullmatch(text)
        if clause is None:
            raise OperatorError.bad_value(parameter, text, "a column, then ASC or DESC, then NULLS FIRST or NULLS LAST, as in 'total DESC'")
        descending = (clause[2] or "").lower() == "desc"
        nulls = (clause[3] or "").lower()
        check_column(parameter, column := clause[1].strip("`"))
        return cls(column, descending, nulls == "first" if nulls else not descending)

    @property
    def text(self) -> str:
        """The order in its shortest notation: without the defaults."""
        nulls = "" if self.nulls_first != self.descending else f" NULLS {'FIRST' if self.nulls_first else 'LAST'}"
        column = self.column if self.column.isidentifier() else quoted_name(self.column)
        return f"{column}{' DESC' if self.descending else ''}{nulls}"

    def sort_expression(self) -> Column:
        """The order as a Spark sort expression."""
        column = F.col(quoted_name(self.column))
        if self.descending:
            return column.desc_nulls_first() if self.nulls_first else column.desc_nulls_last()
        return column.asc_nulls_first() if self.nulls_first else column.asc_nulls_last()


def canonical_order(text: str) -> str:
    """The shortest notation of one column of an order. A text that cannot be read is returned unchanged.

    >>> canonical_order("total desc nulls last")
    'total DESC'
    """
    try:
        return Ordering.read(text, "order_by").text
    except OperatorError:
        return text
