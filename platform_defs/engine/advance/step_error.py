"""Errors of a step that its rows cause: they name the asset, what is wrong and the remedies, and quote no row."""

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.errors import PySparkException

from operators.contract import NO_EXACT_SUM
from operators.errors import TidemarkError
from platform_defs.engine.lake.errors import data_exception


class StepError(TidemarkError, RuntimeError):
    """A step cannot be computed, because an expression of the asset fails. Nothing of the step was committed."""

    @classmethod
    def raised(cls, asset: str, condition: str) -> "StepError":
        """An expression of the asset fails for a row that was ingested."""
        return cls(
            f"{asset}: an expression of its operator fails with {condition} for rows of the log; nothing of the step was committed, "
            "other tables are not affected, and a retry fails again. Change the expression in the pipeline so that it accepts every "
            "row: use a wider type, such as sum(CAST(a AS DECIMAL(19, 0)) * b), or a function that gives null instead of an error, "
            "such as try_add, try_divide or try_cast. If the table has steps already, rebuild it with the new expression: "
            f"`tidemark rebuild {asset} --downstream`. A row rule of the source quarantines such rows from then on"
        )

    @classmethod
    def no_exact_sum(cls, asset: str) -> "StepError":
        """A sum of doubles meets a value that is too large for it."""
        return cls(
            f"{asset}: {NO_EXACT_SUM}. Nothing of the step was committed, other tables are not affected, and a retry fails again. If the "
            f"table has steps already, rebuild it with the new expression: `tidemark rebuild {asset} --downstream`"
        )


class PromiseError(TidemarkError, RuntimeError):
    """A step cannot be computed, because rows of its input break a promise. Nothing of the step was committed.

    Args:
        text: the error's text.
        asset: the table.
        keys: the number of keys that break the promise.
    """

    def __init__(self, text: str, asset: str = "", keys: int = 0) -> None:
        super().__init__(text)
        self.asset, self.keys = asset, keys

    @classmethod
    def violated(cls, asset: str, keys: int) -> "PromiseError":
        """Rows of a Top-N with `monotonic` move back in the order, or are deleted."""
        clause = "1 key breaks" if keys == 1 else f"{keys:,} keys break"
        return cls(
            f"{asset}: {clause} the promise `monotonic`, because a row that replaces another comes after it in `order_by`, or a row is "
            "deleted. Nothing of the step was committed, other tables are not affected, and a retry fails again. The rows of the table are "
            'right so far. Set `strategy="retract"` in the pipeline: steps then also read the current rows behind those that are shown, '
            "and the table need not be rebuilt. Or correct `order_by`, and rebuild the table with it: "
            f"`tidemark rebuild {asset} --downstream`",
            asset,
            keys,
        )


@contextmanager
def naming_step_errors(asset: str) -> Iterator[None]:
    """Replace Spark's error of a failed expression, whose text may quote rows, by an error that names the asset.

    Raises:
        StepError: an expression failed.
    """
    try:
        yield
    except PySparkException as error:
        if NO_EXACT_SUM in str(error):
            raise StepError.no_exact_sum(asset) from error
        condition = data_exception(error)
        if condition is None:
            raise
        raise StepError.raised(asset, condition) from error
