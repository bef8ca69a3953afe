"""The part `s3` of the connections: what Spark and deltalake get from it."""

from pathlib import Path

import pytest

from platform_defs.connections import ConnectionsError, read
from platform_defs.connections.s3 import S3, store_of
from platform_defs.engine.lake.data_files import filesystem
from platform_defs.engine.lake.objects import StoreError, pages
from platform_defs.settings import PROJECT, Settings
from platform_defs.setup import log_store
from platform_defs.setup.jars import JarError, pinned_jars
from platform_defs.spark.session import spark_config

FILE = """
s3:
  endpoint: http://127.0.0.1:9000
  region: eu-central-1
  access_key: {env: THE_KEY}
  secret_key: {env: THE_SECRET}
  options: {request_payer: true}
"""
VARIABLES = ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_SESSION_TOKEN")


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("THE_KEY", "the-key")
    monkeypatch.setenv("THE_SECRET", "s3cret")


def _store(text: str) -> S3:
    found = read(text).s3
    assert found is not None
    return found


def test_one_description_gives_the_options_of_spark_and_deltalake() -> None:
    store = _store(FILE)
    assert store.spark_options == {
        "spark.hadoop.fs.s3a.endpoint": "http://127.0.0.1:9000",
        "spark.hadoop.fs.s3a.endpoint.region": "eu-central-1",
        "spark.hadoop.fs.s3a.access.key": "the-key",
        "spark.hadoop.fs.s3a.secret.key": "s3cret",
        "spark.hadoop.fs.s3a.path.style.access": "true",
        "spark.delta.logStore.s3a.impl": "tidemark.ConditionalLogStore",
    }
    assert store.storage_options == {
        "max_retries": "6",
        "retry_timeout": "60s",
        "aws_endpoint_url": "http://127.0.0.1:9000",
        "aws_endpoint_url_s3": "http://127.0.0.1:9000",
        "aws_region": "eu-central-1",
        "aws_access_key_id": "the-key",
        "aws_secret_access_key": "s3cret",
        "aws_virtual_hosted_style_request": "false",
        "allow_http": "true",
        "request_payer": "true",
    }
    assert "s3cret" not in repr(store)


def test_without_an_endpoint_and_keys_the_environment_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "aws_endpoint_url" not in S3().storage_options
    assert S3().spark_options["spark.hadoop.fs.s3a.path.style.access"] == "false"
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "https://store.example")
    assert S3().storage_options["aws_region"] == S3().spark_options["spark.hadoop.fs.s3a.endpoint.region"] == "eu-west-1"
    assert S3().storage_options["aws_endpoint_url"] == S3().spark_options["spark.hadoop.fs.s3a.endpoint"] == "https://store.example"
    assert "allow_http" not in S3().storage_options
    assert S3(path_style=False).storage_options["aws_virtual_hosted_style_request"] == "true"
    assert S3(region="x").storage_options["aws_region"] == "x"


@pytest.mark.parametrize("variable", ["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"])
def test_spark_and_deltalake_use_the_endpoint_of_the_file_or_else_of_a_variable(monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    """The file systems of deltalake and of listings send a request; port 1 refuses it, with the URL in the error."""
    monkeypatch.setenv(variable, "http://127.0.0.1:1/of-the-variable")
    keys = {"region": "x", "access_key": "k", "secret_key": "s", "options": {"max_retries": 0, "retry_timeout": "1s"}}
    for store, path in ((S3(endpoint="http://127.0.0.1:1/of-the-file", **keys), "of-the-file"), (S3(**keys), "of-the-variable")):
        assert store.spark_options["spark.hadoop.fs.s3a.endpoint"] == f"http://127.0.0.1:1/{path}"
        with pytest.raises(OSError, match=f"127.0.0.1:1/{path}/bucket"):
            filesystem("s3://bucket/table", store.storage_options).get_file_info("_delta_log")
        with pytest.raises(StoreError, match=f"127.0.0.1:1/{path}/bucket"):
            next(pages("s3a://bucket/in", store.storage_options))


def test_an_endpoint_of_the_options_replaces_that_of_a_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1/of-the-variable")
    options = {"aws_endpoint_url": "http://127.0.0.1:1/of-the-options", "max_retries": 0, "retry_timeout": "1s"}
    store = S3(region="x", access_key="k", secret_key="s", options=options)
    with pytest.raises(OSError, match=r"127\.0\.0\.1:1/of-the-options/bucket"):
        filesystem("s3://bucket/table", store.storage_options).get_file_info("_delta_log")


def test_a_token_of_the_environment_is_refused_beside_a_key_of_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SESSION_TOKEN", "s3cret")
    with pytest.raises(ConnectionsError, match=r"gives `access_key` and no `session_token`, and .* AWS_SESSION_TOKEN is set") as refused:
        _ = _store(FILE).storage_options
    assert "s3cret" not in str(refused.value)
    assert S3(access_key="k", secret_key="s", session_token="t").storage_options["aws_session_token"] == "t"
    assert S3(access_key="k", secret_key="s", options={"AWS_SESSION_TOKEN": "t"}).storage_options["AWS_SESSION_TOKEN"] == "t"
    assert "aws_session_token" not in S3().storage_options


def test_a_store_is_needed_for_a_lake_or_a_landing_root_in_s3_or_if_it_is_described(tmp_path: Path) -> None:
    local = Settings(lake=str(tmp_path))  # pyright: ignore[reportCallIssue]
    assert store_of(local, None) is None
    assert store_of(local, S3(region="x")) == S3(region="x")
    assert store_of(Settings(lake="s3a://b/lake"), None) == S3()  # pyright: ignore[reportCallIssue]
    assert store_of(Settings(lake=str(tmp_path), landing="s3a://b/in"), None) == S3()  # pyright: ignore[reportCallIssue]


def test_a_session_for_a_lake_in_s3_has_its_jars_and_options(tmp_path: Path) -> None:
    file = tmp_path / "connections.yaml"
    file.write_text(FILE + "spark: {spark.hadoop.fs.s3a.connection.maximum: 20}\n")
    config = spark_config(Settings(lake="s3a://b/lake", connections=str(file)))  # pyright: ignore[reportCallIssue]
    names = [Path(jar).name for jar in config["spark.jars"].split(",")]
    assert {jar.file_name for jar in (*pinned_jars("spark"), *pinned_jars("s3"))} < {*names}
    assert log_store.log_store_jar().name in names
    assert config["spark.hadoop.fs.s3a.secret.key"] == "s3cret"
    assert config["spark.hadoop.fs.s3a.connection.maximum"] == "20"
    plain = spark_config(Settings(lake=str(tmp_path)))  # pyright: ignore[reportCallIssue]
    assert "hadoop-aws" not in plain["spark.jars"]
    assert not [name for name in plain if "s3a" in name]


def test_a_missing_log_store_is_named_with_the_command_that_builds_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_store, "jars_folder", lambda: tmp_path)
    with pytest.raises(JarError, match=r"^missing in .*: tidemark-log-store-\w{12}\.jar\. Run `make setup-s3`"):
        log_store.log_store_jar()


@pytest.mark.parametrize(
    ("text", "error"),
    [
        pytest.param("s3: {bucket: b}", "s3.bucket: there is no such parameter", id="an unknown field"),
        pytest.param("s3: {path_style: yes please}", "s3.path_style", id="no boolean"),
    ],
)
def test_an_illegal_part_is_refused(text: str, error: str) -> None:
    with pytest.raises(ConnectionsError, match=error):
        read(text, "connections.yaml")


def test_the_example_of_the_guide_is_legal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKE_ACCESS_KEY", "the-key")
    monkeypatch.setenv("LAKE_SECRET_KEY", "s3cret")
    guide = (PROJECT / "docs/how-to/s3.md").read_text("utf-8")
    found = read(guide.split("```yaml\n")[1].split("```")[0])
    assert found.s3 is not None
    assert found.s3.storage_options["timeout"] == "60s"
    assert found.spark_options == {"spark.hadoop.fs.s3a.connection.maximum": "200"}


@pytest.mark.parametrize(
    ("lines", "legal"),
    [
        ("endpoint: minio:9000", "a URL, such as https://"),
        ("endpoint: true", "a URL, such as https://"),
        ("endpoint: ''", "a URL, such as https://"),
        ("endpoint: HTTP://minio", "a URL, such as https://"),
        ("access_key: a", "access_key and secret_key together, both"),
        ("access_key: a\n  secret_key: ''", "access_key and secret_key together, both"),
        ("access_key: ''\n  secret_key: ''\n  session_token: t", "session_token only with its access_key and secret_key"),
        ("secret_key: {env: THE_SECRET}", "access_key and secret_key together, both"),
        ("session_token: {env: THE_SECRET}", "session_token only with its access_key and secret_key"),
        ("options: {aws_access_key_id: a}", "access_key and secret_key together, both"),
        ("access_key: a\n  options: {aws_secret_access_key: b}", "access_key and secret_key together, both"),
        ("session_token: t\n  options: {aws_access_key_id: a, aws_secret_access_key: b}", "session_token only with its access_key and"),
        ("options: {AWS_SESSION_TOKEN: a}", "session_token only with its access_key and secret_key"),
    ],
)
def test_a_store_that_a_library_would_misunderstand_is_refused(lines: str, legal: str) -> None:
    with pytest.raises(ConnectionsError, match=legal):
        read(f"s3:\n  {lines}\n")
    assert _store("s3: {endpoint: 'https://minio.example.org/s3', access_key: a, secret_key: b, session_token: c}").session_token == "c"


def test_a_token_of_the_environment_is_refused_beside_a_key_among_the_options(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SESSION_TOKEN", "of another key")
    store = _store("s3: {options: {aws_access_key_id: {env: THE_KEY}, aws_secret_access_key: {env: THE_SECRET}}}")
    with pytest.raises(ConnectionsError, match="AWS_SESSION_TOKEN"):
        _ = store.storage_options


def test_an_endpoint_of_the_environment_that_is_no_url_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "minio:9000")
    with pytest.raises(ConnectionsError, match=r"AWS_ENDPOINT_URL.* is no URL; legal: a URL, such as"):
        _ = S3().storage_options
