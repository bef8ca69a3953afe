"""The columns and clauses of CREATE TABLE as a source contract: a word in a comment, a name or a nested type is no clause."""

import re

import pytest

from assets.contracts import RowRule
from operators import SqlError
from operators.sql.plan import plan
from platform_defs.declared.sql_pipeline import sources_of
from platform_defs.declared.sql_sources import DeclaredSource

FILES = "'connector' = 'filesystem', 'format' = 'json'"


def source(columns: str, options: str = FILES, comment: str = "") -> DeclaredSource:
    text = f"CREATE TABLE t ({columns}, ts TIMESTAMP(3), WATERMARK FOR ts AS ts) {comment} WITH ({options})"
    return sources_of(plan(text))["t"]


@pytest.mark.parametrize(
    ("column", "schema"),
    [
        ("id STRING COMMENT 'the primary key of x'", "id STRING COMMENT 'the primary key of x'"),
        ("name STRING COMMENT 'not null for members'", "name STRING COMMENT 'not null for members'"),
        ("n INT COMMENT '('", "n INT COMMENT '('"),
        ("comment STRING", "`comment` STRING"),
        ("`constraint` STRING", "`constraint` STRING"),
        ("r ROW<a INT NOT NULL, b STRING>", "r STRUCT<a: INT, b: STRING>"),
        ("r ROW(a INT NOT NULL, b STRING)", "r STRUCT<a: INT, b: STRING>"),
        ("r ROW<a INT COMMENT 'x', b STRING>", "r STRUCT<a: INT, b: STRING>"),
        ("r ROW<comment INT 'x, y', b ARRAY<INT NOT NULL>> NOT NULL", "r STRUCT<comment: INT, b: ARRAY<INT>> NOT NULL"),
        ("r STRUCT<a INT, b STRING>", "r STRUCT<a: INT, b: STRING>"),
        ("a ARRAY<INT NOT NULL>", "a ARRAY<INT>"),
        ("m MAP<STRING NOT NULL, INT>", "m MAP<STRING, INT>"),
        ("b VARBINARY(3)", "b BINARY"),
        ("n INT, small AS n < 3 COMMENT 'metadata', large AS n > 9", "n INT"),
    ],
)
def test_words_in_comments_names_and_types_are_no_clauses(column: str, schema: str):
    contract = source(column).contract
    assert contract.schema == f"{schema}, ts TIMESTAMP"
    assert len(contract.struct) == 2
    assert contract.unique_key == ()


def test_a_column_of_a_topic_can_be_called_metadata():
    options = "'connector' = 'kafka', 'topic' = 'x', 'format' = 'json'"
    kafka = source("metadata STRING, note STRING COMMENT 'metadata', o BIGINT NOT NULL METADATA FROM 'offset'", options).kafka
    assert kafka["columns"] == {"o": "offset"}


@pytest.mark.parametrize("column", ["a INT ARRAY", "r ROW<a INT ARRAY>", "n INT DEFAULT 3", "d TIME(3)", "r ROW<d TIME>"])
def test_a_type_that_would_lose_a_part_is_refused(column: str):
    with pytest.raises(SqlError, match=r"^the type .* is refused: .*; use STRING, "):
        source(column)


def test_options_and_comments_can_have_the_word_like():
    options = f"{FILES}, 'path' = 'landing/likes/t', 'tidemark.rule.mail' = 'mail LIKE ''%@%'''"
    declared = source("mail STRING", options, comment="COMMENT 'likes, partitioned by day'")
    assert declared.path == "landing/likes/t"
    assert declared.contract.rules == (RowRule("mail", "mail LIKE '%@%'"),)
    with pytest.raises(SqlError, match=re.escape("LIKE of table 't' is refused")):
        plan("CREATE TABLE t (x INT) WITH ('connector' = 'filesystem') LIKE u")
