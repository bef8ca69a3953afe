"""Errors of a schema registry, without a broker."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from platform_defs.connections.values import Secret, registry_config
from platform_defs.engine.formats import schema_registry
from platform_defs.engine.formats.kafka_options import Registry
from platform_defs.engine.formats.schema_registry import RegisteredSchema, RegistryError, schema_reader
from tests.support.registry import AT_ONCE, registry, serving


@contextmanager
def _always(status: int, body: bytes, kind: str) -> Iterator[str]:
    """A server with one answer to all requests; yields its URL."""

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    with serving(Answer) as url:
        yield url


def test_an_unknown_schema_is_none_and_a_known_one_has_its_type():
    with registry({1: {"type": "string"}, 3: {"type": "object"}}, kinds={3: "JSON"}) as url:
        schema_of = schema_reader(Registry(config={"url": url} | AT_ONCE))
        assert schema_of(1) == RegisteredSchema('{"type": "string"}', "AVRO")
        assert schema_of(2) is None
        assert schema_of(3) == RegisteredSchema('{"type": "object"}', "JSON")


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        pytest.param(b"<html>no such page</html>", "text/html", id="a page of a proxy"),
        pytest.param(b'{"error_code": 404, "message": "HTTP 404 Not Found"}', "application/json", id="a wrong path of the registry"),
        pytest.param(b'{"detail": "Not Found"}', "application/json", id="another service"),
    ],
)
def test_a_missing_page_is_not_an_unknown_schema(body: bytes, kind: str):
    with _always(404, body, kind) as url:
        schema_of = schema_reader(Registry(config={"url": f"{url}/wrong"} | AT_ONCE))
        with pytest.raises(RegistryError, match=r"^the schema registry cannot be used: .*404"):
            schema_of(5)


def test_the_wait_for_a_registry_that_does_not_answer_ends(monkeypatch: pytest.MonkeyPatch):
    assert schema_registry._DEFAULTS["timeout"] == 20
    monkeypatch.setitem(schema_registry._DEFAULTS, "timeout", 1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        schema_of = schema_reader(Registry(config={"url": f"http://127.0.0.1:{silent.getsockname()[1]}"} | AT_ONCE))
        with pytest.raises(RegistryError, match=r"cannot be used: ReadTimeout"):
            schema_of(5)


@pytest.mark.parametrize("option", ["ssl.ca.location", "ssl.certificate.location"])
@pytest.mark.parametrize("content", [None, "no certificate"], ids=["missing", "not PEM"])
def test_a_file_of_certificates_that_cannot_be_read_is_named(option: str, content: str | None, tmp_path: Path):
    file = tmp_path / "registry.pem"
    if content is not None:
        file.write_text(content)
    message = rf"cannot be used: `{option}` \('.*/registry\.pem'\) cannot be read: (?:FileNotFoundError|SSLError): .* Legal: .* PEM"
    with pytest.raises(RegistryError, match=message):
        schema_reader(Registry(config={"url": "https://127.0.0.1:1", option: str(file)}))


def test_a_secret_that_is_not_set_is_an_error_of_the_registry(monkeypatch: pytest.MonkeyPatch):
    """Only the source or the sink of that registry fails."""
    monkeypatch.delenv("THE_KEY", raising=False)
    config = registry_config({"url": "http://127.0.0.1:1", "basic.auth.user.info": Secret(env="THE_KEY")})
    with pytest.raises(RegistryError, match=r"cannot be used: the connections read the environment variable THE_KEY, which is not set"):
        schema_reader(Registry(config=config))
