"""Each folder has one canonical path, and printed text is safe."""

import os
import re
from pathlib import Path

import pytest

from platform_defs.engine.lake.errors import LakeError
from platform_defs.engine.lake.tables import Lake
from platform_defs.paths import PathError, canonical, canonical_local, is_within
from platform_defs.safe_text import one_line, printable, shortened, without_credentials, without_java_options
from platform_defs.settings import Settings

LAKE = "the lake"


def _spellings(folder: Path) -> list[str]:
    """Ways to spell one folder: its path, URIs, links, `~`, relative paths, and superfluous slashes and dots."""
    (folder / LAKE).mkdir()
    (folder / "link").symlink_to(folder)
    (folder / "lake-link").symlink_to(folder / LAKE, target_is_directory=True)
    quoted = f"{folder}/the%20lake"
    paths = [
        f"{folder}/{LAKE}",
        f"{folder}/{LAKE}/",
        f"{folder}//{LAKE}",
        f"{folder}/link/link/../{folder.name}/{LAKE}",
        f"{folder}/lake-link",
    ]
    uris = [f"file:{quoted}", f"file://{quoted}/", f"FILE://localhost{quoted}", f"file://{folder}/link/the%20lake"]
    return [*paths, *uris, f"~/{LAKE}", LAKE, f"./{LAKE}", f"../{folder.name}/{LAKE}/."]


def test_all_spellings_of_a_folder_give_the_same_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("platform_defs.settings.values.PROJECT", tmp_path)
    expected = f"{tmp_path}/{LAKE}"
    for spelling in _spellings(tmp_path):
        assert canonical(spelling) == canonical(spelling, tmp_path) == expected, spelling
        assert Lake(spelling).root == expected, spelling
        assert Settings(lake=spelling).lake == expected, spelling
        assert Settings(lake=spelling).landing_root == f"{expected}/landing", spelling


def test_two_spellings_of_a_lake_share_its_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    for spelling in _spellings(tmp_path):
        with (
            Lake(f"{tmp_path}/{LAKE}").writer("pairs"),
            pytest.raises(LakeError, match="pairs has a writer already"),
            Lake(spelling).writer("pairs", patience_s=0.0),
        ):
            pass


def test_a_canonical_path_is_unchanged(tmp_path: Path) -> None:
    for path in (str(tmp_path), "/", "s3a://b/a/b", "hdfs://h:8020/x", "abfss://c@account.dfs.core.windows.net/x", "hdfs:///x"):
        assert canonical(path) == canonical(canonical(path)) == path
    assert canonical("S3A://b//a///b/") == "s3a://b/a/b"
    assert canonical("S3://b/a") == "s3a://b/a", "so that the log store and the check of the store are used for it"


@pytest.mark.parametrize(
    ("value", "legal"),
    [
        ("", "a path, file:///path, or a URI with one of s3a://"),
        (" ", "a path, file:///path"),
        (" /data", "without spaces at either end"),
        ("/data\n", "without spaces at either end"),
        ("/da\x1bta", "printable characters"),
        ("/" + "x" * 256, "at most 255 bytes"),
        ("x/" * 3_000, "at most 4,096"),
        ("hdfs:/x", "a URI with one of s3a://, s3://"),
        ("s3a:x", "a URI with one of s3a://"),
        ("ftp://h/x", "a URI with one of s3a://"),
        ("s3a:///x", "s3a://bucket/folder"),
        ("s3a://b/../x", "without `.`, `..`"),
        ("s3a://b/x?a=b", "without `.`, `..`, `?`"),
        ("hdfs://", "hdfs://bucket/folder"),
        ("file:x", "file:///path with an absolute path"),
        ("file://host/x", "file:///path; to use the files of another machine"),
        ("file:///x?y", "%3F and %23"),
        ("file:///x%00y", "file:///path with an absolute path"),
        ("s3a://key:s3cret@bucket/x", "without credentials"),
        ("s3a://s3cret@bucket/x", "without credentials"),
        ("abfss://c:s3cret@account/x", "without credentials"),
    ],
)
def test_an_invalid_folder_is_refused_with_the_legal_values(value: str, legal: str) -> None:
    with pytest.raises(PathError, match=re.escape(legal)) as refused:
        canonical(value)
    assert "s3cret" not in str(refused.value)
    assert str(refused.value).isprintable()


@pytest.mark.parametrize("name", ["a%41b", "a%b", "a|b", "a^b"])
def test_a_folder_of_tables_with_a_character_that_deltalake_cannot_read_is_refused(name: str, tmp_path: Path) -> None:
    folder = tmp_path / name / "lake"
    folder.mkdir(parents=True)
    (tmp_path / "link").symlink_to(folder)
    legal = "has none of the characters % | ^, which deltalake cannot read; rename the folder, or name another one"
    for spelling in (str(folder), f"{tmp_path}/link", f"file://{tmp_path}/{name.replace('%', '%25')}/lake", f"s3a://b/{name}/lake"):
        shown = "" if "://b" in spelling or spelling == str(folder) else f" (it is '{folder}')"
        message = f"legal: a folder whose whole path{shown} {legal}"
        with pytest.raises(PathError, match=re.escape(f"{spelling!r} is not a legal folder; {message}")):
            Lake(spelling)
        with pytest.raises(ValueError, match=re.escape(message)):
            Settings(lake=spelling)
        assert Settings(lake=str(tmp_path / "lake"), landing=spelling).landing_root == canonical(spelling)
    assert Lake(f"file://{tmp_path}/a%41b").root == f"{tmp_path}/aAb"


def test_a_cycle_of_links_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to(tmp_path / "b")
    (tmp_path / "b").symlink_to(tmp_path / "a")
    with pytest.raises(PathError, match="a path that this machine can resolve"):
        canonical(str(tmp_path / "a"))


def test_an_object_store_is_not_a_local_folder() -> None:
    assert canonical_local("file:///x") == "/x"
    with pytest.raises(PathError, match="legal: a folder on this machine"):
        canonical_local("s3a://b/x")


def test_a_folder_is_within_itself_and_its_parents() -> None:
    assert is_within("/a/b", "/a/b")
    assert is_within("/a/b/c", "/a/b")
    assert is_within("/a", "/")
    assert not is_within("/a/bc", "/a/b")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("http://user:s3cret@h:1/x and https://t@h/", "http://***@h:1/x and https://***@h/"),
        ("http://user:s3/cr@et@h/x", "http://***@h/x"),
        ("abfss://container@account.dfs.core.windows.net/x", "abfss://container@account.dfs.core.windows.net/x"),
        ("no URL, a@b", "no URL, a@b"),
        ("'http://u:p@h'", "'http://***@h'"),
        ("GET http://user:pa'ss@h/x", "GET http://***@h/x"),
        ("GET http://user:a://b@h/x", "GET http://***@h/x"),
        ("['s3://b/k','me@example.com']", "['s3://b/k','me@example.com']"),
        ("'http://u:p@h/1','http://h2/2?mail=a@b'", "'http://***@h/1','http://***@b'"),
        ("'abfss://c@acc/x','http://u:pw@h'", "'abfss://c@acc/x','http://***@h'"),
    ],
)
def test_the_user_part_of_a_url_is_hidden(text: str, shown: str) -> None:
    assert without_credentials(text) == shown


def test_a_long_text_without_spaces_is_searched_quickly() -> None:
    """If the time were quadratic in the length, these texts would take minutes."""
    letters = "a" * 300_000
    assert without_credentials(f"{letters} http://u:p@h {letters}://u:p@h") == f"{letters} http://***@h {letters}://***@h"
    uris = ",".join(f"s3://bucket/file{i}" for i in range(40_000))
    assert without_credentials(uris) == uris


def test_jvm_option_messages_are_removed() -> None:
    output = "a\nPicked up JAVA_TOOL_OPTIONS: -Dx=s3cret\nNOTE: Picked up JDK_JAVA_OPTIONS: -Dx=s3cret\nb"
    assert without_java_options(output) == "a\nb"


@pytest.mark.parametrize(
    "character", [*map(chr, [*range(9), *range(11, 32), *range(127, 160), 0x200E, 0x202E, 0x2066, 0x2028, 0xFEFF, 0xDC80])]
)
def test_a_control_character_is_printed_as_its_escape(character: str) -> None:
    shown = printable(f"a{character}b\n\t")
    assert shown == f"a{character.encode('unicode_escape').decode()}b\n\t"
    assert one_line(f"a{character}b\n").isprintable()
    assert os.fsencode(shown)


def test_printable_text_is_unchanged() -> None:
    assert printable("Grüße, 東京 🚀 €5") == "Grüße, 東京 🚀 €5"
    assert shortened("x" * 201) == "x" * 200 + "… (201 characters)"
    assert shortened("x" * 200) == "x" * 200
