"""A step whose expressions raise over rows that the log holds: the error names the asset, what was raised, and the ways on."""

from collections.abc import Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from operators.errors import TidemarkError
from platform_defs.engine.lake.errors import spark_condition

_DATA_EXCEPTION = "22"  # the class of SQLSTATE of overflows, divisions by zero, casts and dates that cannot be


class StepError(TidemarkError, RuntimeError):
    """A step cannot be computed: an expression of the asset raises. Nothing of the step was committed."""

    @classmethod
    def raised(cls, asset: str, condition: str) -> "StepError":
        """An expression of the asset raises for a row that was ingested."""
        return cls(
            f"{asset}: an expression of its operator fails with {condition} for rows that the log holds; nothing of the step was "
            "committed, other tables are not affected, and no repetition helps. Change the expression in the pipeline so that it "
            "takes every row: a wider type, such as sum(CAST(a AS DECIMAL(19, 0)) * b), or a function that gives null in place of "
            "an error, such as try_add, try_divide or try_cast. Where the table has steps already, make it again with the "
            f"new expression: `tidemark rebuild {asset} --downstream`. A row rule of the source keeps such rows out from then on"
        )


@contextmanager
def naming_step_errors(asset: str) -> Iterator[None]:
    """Say which asset's expression raises, in place of Spark's text, which may quote rows.

    Raises:
        StepError: an expression raised.
    """
    try:
        yield
    except PySparkException as error:
        condition = _data_exception(error)
        if condition is None:
            raise
        raise StepError.raised(asset, condition) from error


def _data_exception(error: BaseException | None) -> str | None:
    """The condition of the first exception in a chain of causes that an expression raised; None where there is none."""
    while error is not None:
        if isinstance(error, PySparkException) and (error.getSqlState() or "").startswith(_DATA_EXCEPTION):
            return error.getCondition() or spark_condition(error)
        error = error.__cause__ or (None if isinstance(error, Py4JJavaError) else getattr(error, "_cause", None))
    return None
