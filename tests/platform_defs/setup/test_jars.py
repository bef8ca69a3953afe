"""The pinned JARs: which ones are fetched, how they are checked, and errors without credentials."""

import hashlib
import re
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from xml.etree import ElementTree

import pytest

from platform_defs.settings import PROJECT, settings
from platform_defs.setup import jars
from platform_defs.setup.jars import Jar, JarError
from platform_defs.setup.java import JavaNotFound


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("TIDEMARK_JARS", str(tmp_path / "jars"))
    settings.cache_clear()
    yield tmp_path / "jars"
    settings.cache_clear()


def jar(name: str, content: bytes) -> Jar:
    return Jar("org.example", name, "1.0", hashlib.sha256(content).hexdigest())


def write_jar(folder: Path, pin: Jar, content: bytes) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / pin.file_name
    path.write_bytes(content)
    return path


def repository_with(**contents: bytes):
    """A download function for a repository with these artifacts, and the list of requested artifacts."""
    requested: list[str] = []

    def download(wanted: Sequence[Jar], into: Path) -> str:
        requested.extend(pin.artifact for pin in wanted)
        for pin in wanted:
            if pin.artifact in contents:
                write_jar(into, pin, contents[pin.artifact])
        return "first line\n:: problems summary ::\n\n\tmodule not found\n"

    return download, requested


def no_download(wanted: Sequence[Jar], into: Path) -> str:
    raise AssertionError(f"unexpected download of {wanted} into {into}")


A, B = jar("a", b"A"), jar("b", b"B")


def test_the_folder_contains_the_fetched_jars_only(folder: Path):
    download, _ = repository_with(a=b"A", b=b"B")
    assert jars.fetch(jars=[A, B], download=download) == [A, B]
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == {"a-1.0.jar": b"A", "b-1.0.jar": b"B"}


def test_a_filled_folder_needs_no_download(folder: Path):
    write_jar(folder, A, b"A")
    assert jars.fetch(jars=[A], download=no_download) == []


def test_only_missing_jars_are_fetched(folder: Path):
    write_jar(folder, A, b"A")
    download, requested = repository_with(b=b"B")
    assert jars.fetch(jars=[A, B, B], download=download) == [B]
    assert requested == ["b"]


def test_a_damaged_file_in_the_folder_is_replaced(folder: Path):
    path = write_jar(folder, A, b"half of it")
    download, _ = repository_with(a=b"A")
    assert jars.fetch(jars=[A], download=download) == [A]
    assert path.read_bytes() == b"A"


def test_a_wrong_checksum_is_an_error_with_both_checksums_and_leaves_no_file(folder: Path):
    download, _ = repository_with(a=b"A", b=b"evil")
    expected, found = B.sha256, hashlib.sha256(b"evil").hexdigest()
    with pytest.raises(JarError, match=rf"b-1\.0\.jar .*expected sha256 {expected}, found {found}.*TIDEMARK_MAVEN_MIRROR.*into {folder}"):
        jars.fetch(jars=[A, B], download=download)
    assert list(folder.iterdir()) == []


def test_a_failed_fetch_names_the_cause_and_the_fix(folder: Path):
    download, _ = repository_with(a=b"A")
    with pytest.raises(JarError, match=r"(?s)could not fetch b-1\.0\.jar\. .*TIDEMARK_MAVEN_MIRROR.*Ivy printed:\n\tmodule not found$"):
        jars.fetch(jars=[A, B], download=download)
    assert list(folder.iterdir()) == []


def test_missing_jars_are_named_in_one_error(folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(jars, "pinned_jars", lambda _: (A, B, jar("c", b"C")))
    write_jar(folder, A, b"A")
    write_jar(folder, B, b"not the pinned file")
    with pytest.raises(JarError, match=r"pinned files: b-1\.0\.jar, c-1\.0\.jar\. Run `make setup`.*TIDEMARK_JARS"):
        jars.jar_paths()


def test_jar_paths_are_absolute_and_in_the_order_of_the_list(folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(jars, "pinned_jars", {"spark": (B,), "kafka": (A,)}.get)
    write_jar(folder, A, b"A")
    write_jar(folder, B, b"B")
    assert jars.jar_paths() == [str(folder / "b-1.0.jar")]
    assert jars.jar_paths("spark", "kafka") == [str(folder / "b-1.0.jar"), str(folder / "a-1.0.jar")]


def test_the_command_that_fetches_a_set_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(jars, "pinned_jars", lambda _: (A,))
    with pytest.raises(JarError, match=r"a-1\.0\.jar\. Run `make setup-kafka`"):
        jars.jar_paths("kafka")


def test_an_unknown_set_is_refused(folder: Path, capsys: pytest.CaptureFixture[str]):
    assert jars.main("kafak") == 1
    assert capsys.readouterr().err == "there is no set of JARs 'kafak'; legal: spark, kafka, s3, broker\n"


def test_a_relative_folder_is_resolved_from_the_project(folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TIDEMARK_JARS", "jars")
    settings.cache_clear()
    assert jars.jars_folder() == PROJECT / "jars"


SECRET_LOG = """:: problems summary ::
	Server access error at url {url}io/delta/delta-storage-4.4.0.jar (java.net.ConnectException)
	could not log in as s3cret p@ss
NOTE: Picked up JAVA_TOOL_OPTIONS: -Dhttps.proxyPassword=hunter2
"""


@pytest.mark.parametrize(
    ("url", "secrets"),
    [
        ("http://user:s3cret@127.0.0.1:1/", ["s3cret"]),
        ("http://user:s3cret%20p%40ss@127.0.0.1:1/", ["s3cret", "p@ss", "p%40ss"]),
        ("https://s3cret@127.0.0.1/m2/", ["s3cret"]),
    ],
)
def test_no_message_contains_the_password_of_a_mirror(folder: Path, monkeypatch: pytest.MonkeyPatch, url: str, secrets: list[str]):
    monkeypatch.setenv("TIDEMARK_MAVEN_MIRROR", url)
    settings.cache_clear()
    with pytest.raises(JarError, match=r"could not fetch a-1\.0\.jar") as refused:
        jars.fetch(jars=[A], download=lambda *_: SECRET_LOG.format(url=url))
    assert [secret for secret in [*secrets, "hunter2"] if secret in str(refused.value)] == []
    assert "://***@127.0.0.1" in str(refused.value)
    assert "s3cret" not in repr(settings())


def test_the_error_for_an_unreachable_mirror_contains_no_password(folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TIDEMARK_MAVEN_MIRROR", "http://user:s3cret@127.0.0.1:1/")
    settings.cache_clear()
    with pytest.raises(JarError, match=r"could not fetch a-1\.0\.jar") as refused:
        jars.fetch(jars=[A])
    assert "s3cret" not in str(refused.value)
    assert "127.0.0.1:1" in str(refused.value)
    assert "set JAVA_TOOL_OPTIONS='-Dhttps.proxyHost=HOST -Dhttps.proxyPort=PORT';" in str(refused.value), "a shell takes it as one value"


def test_every_pinned_jar_has_a_file_name_of_its_own_and_a_checksum():
    pins = [pin for name in ("spark", "kafka", "s3", "broker") for pin in jars.pinned_jars(name)]
    assert {"delta-spark_4.1_2.13", "delta-storage", "unitycatalog-client", "hadoop-aws", "kafka_2.13"} <= {pin.artifact for pin in pins}
    assert len({pin.file_name for pin in pins}) == len(pins)
    assert all(re.fullmatch("[0-9a-f]{64}", pin.sha256) for pin in pins)


def test_ivy_has_no_root_url_unless_a_mirror_is_set(tmp_path: Path):
    assert _resolver(tmp_path, None).get("root") is None
    assert _resolver(tmp_path, "https://maven.example/a&b").get("root") == "https://maven.example/a&b/"


def test_ivy_resolves_the_listed_jars_only():
    module = ElementTree.fromstring(jars._ivy_module([A, B]))
    assert [d.attrib for d in module.iter("dependency")] == [
        {"org": "org.example", "name": name, "rev": "1.0", "transitive": "false", "conf": "default->default"} for name in ("a", "b")
    ]


def test_a_pyspark_without_ivy_is_an_error(folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(jars, "find_spec", lambda _: SimpleNamespace(origin=str(folder / "__init__.py")))
    with pytest.raises(JarError, match="install the full `pyspark`"):
        jars.fetch(jars=[A])


@pytest.mark.parametrize(
    ("error", "message"),
    [
        pytest.param(JarError("no such JAR"), "no such JAR\n", id="a JAR fails"),
        pytest.param(JavaNotFound("no Java"), "no Java\n", id="no Java to fetch with"),
        pytest.param(ValueError("TIDEMARK_LAKE is ''"), "TIDEMARK_LAKE is ''\n", id="a wrong setting"),
        pytest.param(OSError("\x1b http://u:s3cret@h/"), "\\x1b http://***@h/\n", id="a folder that is read-only"),
    ],
)
def test_the_command_fails_with_only_the_message(
    error: Exception, message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    def fails(**_: object) -> list[Jar]:
        raise error

    monkeypatch.setattr(jars, "fetch", fails)
    assert jars.main() == 1
    assert capsys.readouterr() == ("", message)


def _resolver(cache: Path, mirror: str | None) -> ElementTree.Element:
    found = ElementTree.fromstring(jars._ivy_settings(cache, mirror)).find("resolvers/ibiblio")
    assert found is not None
    return found
