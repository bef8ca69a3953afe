"""The connections file: what it may contain, its errors, and what a session gets from it."""

import pickle
import traceback
from pathlib import Path
from typing import Any

import pytest

from platform_defs.connections import Connections, ConnectionsError, connections, read
from platform_defs.connections.values import Secret, registry_config, topic_options
from platform_defs.settings import Settings
from platform_defs.spark.session import FIXED_OPTIONS, spark_config

FILE = """
spark:
  spark.hadoop.fs.s3a.endpoint: http://127.0.0.1:9000
  spark.hadoop.fs.s3a.path.style.access: true
  spark.hadoop.fs.s3a.connection.maximum: 20
  spark.hadoop.fs.s3a.secret.key: {env: THE_KEY}
jars: [/opt/store.jar]
"""


def _settings(folder: Path, text: str) -> Settings:
    file = folder / "connections.yaml"
    file.write_text(text)
    return Settings(connections=str(file))  # pyright: ignore[reportCallIssue]


def test_a_session_gets_the_options_and_the_jars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("THE_KEY", "s3cret")
    config = spark_config(_settings(tmp_path, FILE))
    assert config["spark.hadoop.fs.s3a.endpoint"] == "http://127.0.0.1:9000"
    assert config["spark.hadoop.fs.s3a.path.style.access"] == "true"
    assert config["spark.hadoop.fs.s3a.connection.maximum"] == "20"
    assert config["spark.hadoop.fs.s3a.secret.key"] == "s3cret"
    assert config["spark.jars"].endswith(",/opt/store.jar")
    assert "delta-spark" in config["spark.jars"]


def test_a_secret_is_not_in_the_connections_themselves(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("THE_KEY", "s3cret")
    assert "s3cret" not in repr(read(FILE))


def test_a_variable_that_is_not_set_is_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("THE_KEY", raising=False)
    with pytest.raises(ConnectionsError, match="environment variable THE_KEY, which is not set"):
        _ = read(FILE).spark_options


def test_a_line_that_is_no_yaml_is_not_quoted():
    text = "kafka:\n  options:\n    kafka.ssl.key.password: 's3cret\n"
    with pytest.raises(ConnectionsError, match=r"it is not one YAML document: .* in line 4, column 1") as refused:
        read(text)
    assert "s3cret" not in "".join(traceback.format_exception(refused.value))


def test_without_a_file_there_are_no_connections():
    assert connections(Settings()) == Connections()  # pyright: ignore[reportCallIssue]


@pytest.mark.parametrize(
    ("text", "error"),
    [
        pytest.param("sparks: {}", "sparks: there is no such parameter", id="an unknown part"),
        pytest.param("spark: {fs.s3a.endpoint: x}", "'fs.s3a.endpoint' is no option of Spark", id="an option of another program"),
        pytest.param("spark: {spark.delta.logStore.s3a.impl: x}", "is set by Tidemark", id="another log store"),
        pytest.param("spark: {spark.master: local}", "legal: the setting TIDEMARK_SPARK_MASTER", id="an option that has a setting"),
        pytest.param("spark: {spark.jars: x}", "'spark.jars' is set by Tidemark", id="an option that Tidemark sets"),
        pytest.param("spark: {spark.x: {env: A}}", "would be on the command line .* SPARK_CONF_DIR", id="a visible secret"),
        pytest.param("spark: {spark.x: {env: 'A B'}}", "spark.spark.x", id="no name of a variable"),
        pytest.param("spark: {spark.x: {env: A, default: s3cret}}", "spark.spark.x", id="more than a variable"),
        pytest.param("jars: [store.zip]", r"jars\[0\]: legal: the path of a .jar file", id="no JAR"),
        pytest.param("a: 1\na: 2", "the key 'a' is given twice", id="a key twice"),
        pytest.param("[1]", "the document: legal: a mapping", id="no mapping"),
    ],
)
def test_an_illegal_file_is_refused(text: str, error: str):
    with pytest.raises(ConnectionsError, match=error) as refused:
        read(text, "connections.yaml")
    assert "TIDEMARK_CONNECTIONS is 'connections.yaml'" in str(refused.value)
    assert "s3cret" not in str(refused.value)


def test_options_on_which_results_depend_are_refused(tmp_path: Path):
    assert "spark.sql.ansi.enabled" in FIXED_OPTIONS
    with pytest.raises(ConnectionsError, match=r"spark\.sql\.ansi\.enabled, which are the same in every deployment"):
        spark_config(_settings(tmp_path, "spark: {spark.sql.ansi.enabled: false}"))


def test_a_file_that_does_not_exist_is_named(tmp_path: Path):
    with pytest.raises(ConnectionsError, match=r"missing\.yaml'.* cannot be read"):
        connections(Settings(connections=str(tmp_path / "missing.yaml")))  # pyright: ignore[reportCallIssue]


@pytest.mark.parametrize("make_options", [topic_options, registry_config])
def test_options_are_found_compared_and_pickled_without_reading_their_secrets(monkeypatch: pytest.MonkeyPatch, make_options: Any):
    monkeypatch.delenv("THE_KEY", raising=False)
    options, other = (make_options({"a": "1", "key": Secret(env=name)}) for name in ("THE_KEY", "ANOTHER"))
    assert "key" in options
    assert "b" not in options
    assert options == make_options({"a": "1", "key": Secret(env="THE_KEY")}) == pickle.loads(pickle.dumps(options))
    assert options != other
    monkeypatch.setenv("THE_KEY", "s3cret")
    assert options == {"a": "1", "key": "s3cret"}
