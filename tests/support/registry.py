"""A local server with the interface of Confluent's schema registry."""

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any
from urllib.parse import unquote

AT_ONCE = {"max.retries": 0}
"""The configuration of a client that does not repeat a request without an answer."""


@contextmanager
def registry(
    schemas: dict[int, Any], subjects: dict[str, list[int]] | None = None, kinds: Mapping[int, str] | None = None
) -> Iterator[str]:
    """Serve schemas by their ids, and register new schemas, while the block runs; yields the URL.

    Args:
        schemas: the schemas by id; a schema that is registered is added.
        subjects: by subject, the ids of its schemas in order; the id of a schema that is registered is added.
        kinds: the types of schemas by id; by default they are Avro, which the registry does not name.
    """
    versions = {} if subjects is None else subjects

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            wanted = self.path.split("?")[0].rsplit("/", 1)[1]
            found = schemas.get(int(wanted)) if wanted.isdecimal() else None
            kind = {"schemaType": kinds[int(wanted)]} if found and kinds and int(wanted) in kinds else {}
            self._answer(*((200, {"schema": json.dumps(found), **kind}) if found else (404, _error(40403, "Schema not found"))))

        def do_POST(self) -> None:
            subject = unquote(self.path.split("/")[2])
            schema = json.loads(json.loads(self.rfile.read(int(self.headers["Content-Length"])))["schema"])
            known = versions.setdefault(subject, [])
            if any(not _can_read(schema, schemas[one]) for one in known[-1:]):
                self._answer(409, _error(409, "Schema being registered is incompatible with an earlier schema"))
                return
            same = [one for one, of in schemas.items() if of == schema]
            schema_id = same[0] if same else max(schemas, default=0) + 1
            schemas[schema_id] = schema
            known.extend([] if schema_id in known else [schema_id])
            self._answer(200, {"id": schema_id})

        def _answer(self, status: int, body: Mapping[str, Any]) -> None:
            self.send_response(status)
            self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
            self.end_headers()
            self.wfile.write(json.dumps(body).encode())

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    with serving(Answer) as url:
        yield url


@contextmanager
def serving(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    """A local HTTP server while the block runs; yields its URL."""
    with HTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def _error(code: int, message: str) -> dict[str, Any]:
    return {"error_code": code, "message": message}


def _can_read(schema: Mapping[str, Any], written: Mapping[str, Any]) -> bool:
    """Whether a reader with `schema` can read data `written` with another: the compatibility BACKWARD, for fields of equal types."""
    before = {field["name"]: field["type"] for field in written["fields"]}
    return all(before.get(f["name"], f["type"]) == f["type"] and (f["name"] in before or "default" in f) for f in schema["fields"])
