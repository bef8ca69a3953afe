"""DDL is read without a Spark session, and as Spark reads it."""

import re
from concurrent.futures import ThreadPoolExecutor

import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from assets.contract_checks import ContractError
from assets.contracts import SourceContract
from assets.ddl import schema_of

VALID = [
    "a STRING NOT NULL COMMENT 'the \"a\"', `b-c` DECIMAL(12, 2), c TIMESTAMP, d TIMESTAMP_NTZ, e TIMESTAMP_LTZ, f DATE",
    "g BIGINT, h TINYINT, i SMALLINT, j FLOAT, k BOOLEAN, l BINARY, n VARIANT, o INTEGER, p LONG, q SHORT, r BYTE, s DECIMAL, v REAL",
    "x NUMERIC(3), y DEC(3,1), z DOUBLE, t VARCHAR(3), u CHAR(3)",
    "e ARRAY<STRUCT<x: INT, `y z`: STRING>>, f MAP<STRING, ARRAY<DOUBLE>>, g STRUCT<a: INT COMMENT 'c', b: INT NOT NULL>, h STRUCT<a INT>",
    """-- the orders
    id STRING, -- it's the key
    price /* in euros,
    with cents */ DECIMAL(10, 2)/**/, note STRING COMMENT "the \\"note\\" -- it's free" -- the end""",
    'id STRING COMMENT \'driver\'\'s ""id""\', k INT COMMENT """k"" isn\'\'t null"',
    "date date, timestamp timestamp, order int, group string, value double, key string, year int, end timestamp",
]
OTHERS = ["a: int, b: string", "a INTERVAL DAY TO SECOND", "a VOID", "a INT /* /* */ b */"]
INVALID = ["", "a", "a nosuch", "a int b int", "a int PRIMARY KEY", "a int); DROP TABLE t --", "select 1", "a decimal(x)", 3]
INVALID += ["a ARRAY", "a MAP<STRING>", "a DECIMAL(50,2)", "a DECIMAL(2,5)", "a STRING(10)", "a INT(5)", "a int,", "a VARCHAR"]
INVALID += ["-- a INT", "a INT /* no end", "a INT COMMENT x", "'a' INT", '"a" INT', "a 'INT'"]
INVALID += ["a INT8", "a TEXT", "a BOOL", "a TIMESTAMPTZ", "a INT) PARTITIONED BY (a", "a INT) AS SELECT 1 AS (b", "a DOUBLE PRECISION"]

DEEP = 1_010
"""A depth beyond the limit of Spark's JSON, which is 1,000. The time in which Spark parses it grows with its square."""
INVALID += [f"a DECIMAL({'9' * 5_000})", f"a {'ARRAY<' * DEEP}INT{'>' * DEEP}"]


@pytest.mark.parametrize("ddl", VALID)
def test_the_schema_needs_no_session(ddl, monkeypatch):
    monkeypatch.setattr(StructType, "fromDDL", lambda _: pytest.fail("Spark was asked"))
    assert schema_of(ddl)


@pytest.mark.parametrize("ddl", [*VALID, *OTHERS])
def test_the_schema_is_the_one_that_spark_reads(spark, ddl):
    assert schema_of(ddl) == StructType.fromDDL(ddl)


@pytest.mark.parametrize("ddl", [text for text in INVALID if isinstance(text, str)], ids=lambda ddl: ddl[:30])
def test_what_is_not_valid_is_refused_by_spark_too(spark, ddl):
    schema = schema_of(ddl)
    assert schema is None or not schema.fields


def test_a_type_that_is_nested_too_deeply_for_python_is_refused(spark):
    """Spark reads 800 levels; in Python, reading its answer needs more than the 1,000 frames of the stack."""
    assert schema_of(f"a {'ARRAY<' * 800}INT{'>' * 800}") is None


@pytest.mark.parametrize("ddl", OTHERS)
def test_other_types_and_forms_need_a_session(ddl, monkeypatch):
    monkeypatch.setattr(SparkSession, "getActiveSession", lambda: None)
    monkeypatch.setattr(SparkContext, "_active_spark_context", None)
    assert schema_of(ddl) is None


def test_a_session_that_is_active_in_another_thread_reads_the_schema(spark):
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(schema_of, OTHERS[0]).result() == schema_of(OTHERS[0]) == StructType.fromDDL(OTHERS[0])


@pytest.mark.parametrize("ddl", INVALID, ids=lambda ddl: str(ddl)[:30])
def test_a_schema_that_is_not_valid_is_refused(ddl):
    with pytest.raises(ContractError, match=r"`schema` is .*; legal: (a StructType, or DDL such as|1 to 1000 columns)"):
        SourceContract(name="l", schema=ddl, event_time="a")


@pytest.mark.parametrize(
    ("ddl", "end"),
    [
        ("id STRING, a INTT", "amount INT'; 'INTT' is not a supported type; did you mean 'int'?"),
        ("a ARRAY<timestmp>", "amount INT'; 'timestmp' is not a supported type; did you mean 'timestamp'?"),
        ("a VARCHR(10)", "amount INT'; 'VARCHR' is not a supported type; did you mean 'varchar'?"),
        ("a QQQ", "amount INT'"),
        ("a INT,", "amount INT'"),
    ],
)
def test_a_misspelled_type_is_named(ddl, end):
    with pytest.raises(ContractError, match=f"{re.escape(end)}$"):
        SourceContract(name="l", schema=ddl, event_time="a")
