"""Headers of CSV files: separators of any length, and Spark's options for quotes and escapes."""

import csv
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from platform_defs.engine.formats.csv_style import CsvStyle, header_names
from tests.support.small_sources import source


@pytest.mark.parametrize(
    ("options", "header", "names"),
    [
        ({}, "k,v,ts", ["k", "v", "ts"]),
        ({}, '"k","a, ""b""",ts', ["k", 'a, "b"', "ts"]),
        ({}, 'k,"open', ["k", "open"]),
        ({}, "k,,", ["k", "", ""]),
        ({}, "", []),
        ({"sep": ";"}, "k;v", ["k", "v"]),
        ({"sep": "||"}, 'k||"a||b"||v', ["k", "a||b", "v"]),
        ({"SEP": "::"}, "k::v:w", ["k", "v:w"]),
        ({"delimiter": "|"}, "k|v", ["k", "v"]),
        ({"sep": "\\t"}, "k\tv", ["k", "v"]),
        ({"sep": "\\\\|"}, "k\\|v", ["k", "v"]),
        ({"quote": "'"}, "'a,b',\"v\"", ["a,b", '"v"']),
        ({"quote": ""}, '"a,b"', ['"a', 'b"']),
        ({"ignoreLeadingWhiteSpace": "true"}, ' k,\t"v ", w ,  ', ["k", "v ", "w ", ""]),
        ({"ignoreTrailingWhiteSpace": "true"}, ' k ,"v " , ', [" k", "v ", ""]),
        ({"ignoreLeadingWhiteSpace": "TRUE", "ignoreTrailingWhiteSpace": "true", "sep": "\\t"}, " k \t\tv ", ["k", "", "v"]),
        ({"ignoreLeadingWhiteSpace": "false"}, "k, v", ["k", " v"]),
        ({}, '"k" ,"v" x', ["k", "v x"]),
        ({"escape": "\\"}, r'"a\"b",v', ['a"b', "v"]),
    ],
)
def test_csv_header_names_are_matched(options: dict[str, str], header: str, names: list[str]) -> None:
    assert header_names(source("c", options=options), header) == names


@given(st.lists(st.text(st.characters(exclude_characters="\r\n\0", codec="utf-8"), max_size=6), min_size=1, max_size=6))
def test_csv_files_of_the_csv_module_are_read_back_unchanged(fields: list[str]) -> None:
    out = io.StringIO()
    csv.writer(out, lineterminator="", quoting=csv.QUOTE_ALL).writerow(fields)
    assert CsvStyle().fields(out.getvalue()) == fields


@given(st.text(max_size=30), st.text(min_size=1, max_size=3), st.text(max_size=1), st.text(max_size=1))
def test_any_header_line_is_split_without_an_error(line: str, sep: str, quote: str, escape: str) -> None:
    found = CsvStyle(sep, quote, escape).fields(line)
    assert len(found) <= line.count(sep) + 1
