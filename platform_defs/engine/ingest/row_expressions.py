"""SQL expressions over one row of a source. If an expression raises an error, as in ANSI mode, only its row is affected, not the ingest."""

from typing import Any, cast

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

from operators.engine_columns import ARRIVAL
from platform_defs.engine.lake.arrow_rows import java_class


def without_errors(spark: SparkSession, expression: Column) -> Column:
    """The value of an expression over a row with `arrival`; null if the expression raises an error, as in Spark's own `try_` functions.

    Spark's `TryEval` catches each `Exception` of Java that the expression itself raises, in interpreted plans and in generated code. It
    does not catch an `Error`, such as too little memory. Files are read, and a killed task ends, outside of the expression.

    Args:
        spark: the session, whose settings the SQL of the expression is parsed with.
        expression: the expression.
    """
    # Spark computes a part that two expressions share only once, before both, and so outside of `TryEval`; but not a part below a condition
    conditional = F.when(F.col(ARRIVAL) >= 0, expression)  # the condition is true for each row
    j_expression = cast(Any, spark)._jsparkSession.expression(cast(Any, conditional)._jc)
    caught = java_class(spark, "org.apache.spark.sql.catalyst.expressions.TryEval")(j_expression)
    return Column(java_class(spark, "org.apache.spark.sql.classic.ExpressionUtils").column(caught))


def fails(spark: SparkSession, expression: Column) -> Column:
    """Whether an expression raises an error. Null is no error: the value is put into a struct, which is null only after an error."""
    return without_errors(spark, F.struct(expression)).isNull()


def is_violated(spark: SparkSession, condition: str) -> Column:
    """Whether a row violates a rule: its condition is false or raises an error. Null does not violate it."""
    return F.coalesce(without_errors(spark, F.coalesce(~F.expr(condition), F.lit(False))), F.lit(True))
