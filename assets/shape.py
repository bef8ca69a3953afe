"""How a table is made of its operator's results: a condition that selects results, and columns that are computed from each of them."""

from dataclasses import dataclass

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from assets.contract_checks import ContractError
from assets.preparation import ALL, Preparation


@dataclass(frozen=True, kw_only=True)
class Shape(Preparation):
    """Which results of an operator are in its table, and which columns are computed from a result.

    It is the HAVING clause and the SELECT list of a table. The operator's own columns stay, since the engine reads them. If a result of
    an upserted table no longer matches the condition, it is deleted from the table, and its changelog has a `-D`. An early result that no
    longer matches is removed when the trigger fires for its window.

    Args:
        where: a SQL condition over the operator's columns. A result for which it is false or null is not in the table.
        select: `"*"` for the operator's columns, and the columns to add, as in SQL's SELECT: `"*, total / n AS mean, total AS revenue"`.

    Raises:
        ContractError: a part is not SQL, reads several rows, or depends on random numbers or the clock; an added column has no name, or
            the same name as another one; or `select` leaves out a column of the operator.

    >>> Shape(where="n > 1", select="*, total / n AS mean").added
    {'mean': 'total / n AS mean'}
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.excluded or self.star_count != 1:
            legal = "*, and columns to add, such as '*, total / n AS mean': the engine reads the operator's own columns in the table"
            raise ContractError.bad_value("select", self.select, legal)
        self.columns(())

    @property
    def added(self) -> dict[str, str]:
        """The columns that are added, each with its SQL."""
        return self.columns(())

    def __call__(self, results: DataFrame) -> DataFrame:
        """The table's rows.

        Args:
            results: the operator's results.
        """
        try:
            rows = results if self.where is None else results.where(self.where)
            return rows if self.select == ALL else rows.select("*", *[F.expr(sql).alias(name) for name, sql in self.added.items()])
        except AnalysisException as error:
            legal = f"SQL that Spark accepts for the columns {', '.join(results.columns)}; Spark refuses it: {error.getCondition()}"
            raise ContractError.bad_value("shape", self, legal) from error
