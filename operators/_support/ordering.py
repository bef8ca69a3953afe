"""An order of rows, as SQL writes it."""

import re
from dataclasses import dataclass
from typing import Self

from pyspark.sql import Column
from pyspark.sql import functions as F

from operators.errors import OperatorError

_WRITTEN = re.compile(r"\s*(`[^`]+`|\w+)(?:\s+(asc|desc))?(?:\s+nulls\s+(first|last))?\s*", re.IGNORECASE)


@dataclass(frozen=True)
class Ordering:
    """One column of an order.

    Args:
        column: its name.
        descending: whether the largest comes first.
        nulls_first: whether nulls come before all else. Unsaid, a null is the smallest value: first ascending, last descending.
    """

    column: str
    descending: bool
    nulls_first: bool

    @classmethod
    def read(cls, text: str, parameter: str) -> Self:
        """Read `column [ASC | DESC] [NULLS FIRST | NULLS LAST]`.

        Raises:
            OperatorError: the text is none.

        >>> Ordering.read("total DESC NULLS FIRST", "order_by")
        Ordering(column='total', descending=True, nulls_first=True)
        """
        written = _WRITTEN.fullmatch(text)
        if written is None:
            raise OperatorError.bad_value(parameter, text, "a column, then ASC or DESC, then NULLS FIRST or NULLS LAST, as in 'total DESC'")
        descending = (written[2] or "").lower() == "desc"
        nulls = (written[3] or "").lower()
        return cls(written[1].strip("`"), descending, nulls == "first" if nulls else not descending)

    def by(self) -> Column:
        """The order as Spark takes it."""
        column = F.col(f"`{self.column}`")
        if self.descending:
            return column.desc_nulls_first() if self.nulls_first else column.desc_nulls_last()
        return column.asc_nulls_first() if self.nulls_first else column.asc_nulls_last()
