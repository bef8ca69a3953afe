"""A file's path is the text that Spark has in `_metadata.file_path`, which Java encodes."""

import pyarrow as pa
import pytest

from platform_defs.engine.formats.files import File, uri_below
from platform_defs.engine.ledger.known_files import KnownFiles


@pytest.mark.parametrize(
    ("name", "encoded"),
    [
        ("a-_.!~'()*:@&=+$,;/b", "a-_.!~'()*:@&=+$,;/b"),
        ('a %#?[]^|"b', "a%20%25%23%3F%5B%5D%5E%7C%22b"),
        ("ümläut 漢👩", "ümläut%20漢👩"),
        ("می\u200cروم", "می\u200cروم"),  # a zero-width non-joiner
        ("👩\u200d👩", "👩\u200d👩"),
        ("\u00ad\u200e\u202e\ufeff\ue000\U000e0041", "\u00ad\u200e\u202e\ufeff\ue000\U000e0041"),
        ("\u0378\U000323b0", "\u0378\U000323b0"),  # characters that Python does not know
        ("\t\x7f\u0080\u009f", "%09%7F%C2%80%C2%9F"),
        ("\u00a0\u2003\u2028\u2029\u3000", "%C2%A0%E2%80%83%E2%80%A8%E2%80%A9%E3%80%80"),
        ("m\udcfcller", "m%FCller"),
        ("m\0FCller", "m%FCller"),  # as `decoded_name` returns it
    ],
)
def test_a_name_is_encoded_as_by_java(name: str, encoded: str) -> None:
    assert uri_below("/l", name) == f"file:/l/{encoded}"
    assert uri_below("s3a://b/l", name) == f"s3a://b/l/{encoded}"


def test_a_file_that_an_earlier_version_recorded_with_more_encoded_characters_is_recognized() -> None:
    file, known = File(5, uri_below("/l", "می\u200cروم.jsonl"), 0, "l", "the file is empty", "/l"), KnownFiles()
    known.add(pa.array(["./می%E2%80%8Cروم.jsonl|5|0|unread"]))
    assert file.offset == "./می\u200cروم.jsonl|5|0|unread"
    assert known.records_of([file]).has_present_state(file)
