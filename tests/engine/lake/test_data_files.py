"""The statistics that a new data file gets in its table's log."""

import random
from collections import Counter
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable, Schema
from deltalake.transaction import AddAction, create_table_with_add_actions

from platform_defs.engine.lake.data_files import add_actions, write_rows
from platform_defs.engine.lake.data_skipping import extent, matching_files
from platform_defs.engine.lake.merged_files import merge_files
from tests.support.example_counts import example_count

SCHEMA = pa.schema({"k": pa.string()})
LONGEST, LAST = 32, "\U0010ffff"
ALPHABET = ["a", "b", "\0", '"', "\\", "é", "\ud7ff", "\uffff", "\U00010000", "\U00020bb7", LAST]


def _random_text(rng: random.Random) -> str:
    """A text around the length at which bounds are cut, often with the last character of Unicode at the cut."""
    start = "".join(rng.choices(ALPHABET, k=rng.randrange(LONGEST - 2, LONGEST + 1)))
    return start + rng.choice(["", LAST]) * rng.randrange(3) + "".join(rng.choices(ALPHABET, k=rng.randrange(3)))


def _write(table: Path, folder: str, texts: list[str]) -> AddAction:
    write_rows(pa.table({"k": texts}, SCHEMA), str(table), folder)
    [action], rows = add_actions(str(table), folder, ["k"])
    assert rows == len(texts)
    return action


def test_no_text_is_outside_of_the_bounds_of_its_file(tmp_path: Path) -> None:
    """Random texts, one or two in a file: the file is read for each of them, also if its bounds are cut."""
    rng, cases = random.Random(7), Counter[str]()
    files = [[_random_text(rng) for _ in range(rng.randrange(1, 3))] for _ in range(example_count(100))]
    actions = [_write(tmp_path, f"f{n}", texts) for n, texts in enumerate(files)]
    create_table_with_add_actions(str(tmp_path), Schema.from_arrow(SCHEMA), actions, mode="error")
    delta = DeltaTable(tmp_path)
    for action, texts in zip(actions, files, strict=True):
        for text in texts:
            assert action.path in (matching_files(delta, {"k": (text, text)}) or ()), repr(text)
            cases["not cut" if len(text) <= LONGEST else "cut"] += 1
            cases["after its start and the last character"] += text[LONGEST:] > LAST
    assert min(cases.values()) >= example_count(100) // 10, cases


def test_the_log_has_characters_of_every_plane(tmp_path: Path) -> None:
    texts = [f"{chr(plane << 16 | 0xBB7)}野家" for plane in range(17)]
    actions = [_write(tmp_path, f"f{n}", [text]) for n, text in enumerate(texts)]
    create_table_with_add_actions(str(tmp_path), Schema.from_arrow(SCHEMA), actions, mode="error")
    assert extent(DeltaTable(tmp_path), ["k"], {}) == {"k": (texts[0], texts[-1])}
    assert merge_files(DeltaTable(tmp_path), str(tmp_path), None, below=1 << 20)
    assert extent(DeltaTable(tmp_path), ["k"], {}) == {"k": (texts[0], texts[-1])}
