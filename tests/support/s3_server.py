"""A local S3 server in its own process: moto's server, with atomic writes and a check of the access key, as in a real store."""

import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Any
from unittest.mock import patch

from obstore.store import S3Store

from platform_defs.setup.ports import free_ports, is_open

ACCESS_KEY, SECRET_KEY = "ACCESS-KEY-OF-THE-TESTS", "SECRET-KEY-OF-THE-TESTS"
BUCKET = "lake-of-the-tests"
WITHOUT_CONDITIONS = "store-without-conditions"
"""A bucket in which the server ignores the conditions of a put, as some stores do."""
_WAIT_S = 60
_DENIED = (
    b'<?xml version="1.0" encoding="UTF-8"?><Error><Code>InvalidAccessKeyId</Code>'
    b"<Message>The AWS Access Key Id you provided does not exist in our records.</Message>"
    b"<AWSAccessKeyId>the key of the request</AWSAccessKeyId></Error>"
)
Respond = Callable[..., Any]


@dataclass(frozen=True)
class S3Server:
    """A server that runs.

    Args:
        port: its port on this machine.
        log: the file with a line for each request.
    """

    port: int
    log: Path

    def count(self, work: Callable[[], object]) -> Counter[str]:
        """The number of requests during some work, by method; a list of objects is `LIST`."""
        before = len(self.log.read_text())
        work()
        lines = self.log.read_text()[before:].splitlines()
        return Counter(line.split()[0] for line in lines if "if-none-match=" in line)

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def storage_options(self) -> dict[str, str]:
        """deltalake's storage options for this server."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
            "AWS_ALLOW_HTTP": "true",
            "AWS_VIRTUAL_HOSTED_STYLE_REQUEST": "false",
        }

    @property
    def connections(self) -> str:
        """The part `s3` of a file of connections; the keys are in the variables `KEY_OF_THE_LAKE` and `SECRET_OF_THE_LAKE`."""
        keys = "  access_key: {env: KEY_OF_THE_LAKE}\n  secret_key: {env: SECRET_OF_THE_LAKE}\n"
        return f"s3:\n  endpoint: {self.endpoint}\n  region: us-east-1\n{keys}"

    def client(self) -> Any:
        """Amazon's own client."""
        import boto3

        keys = {"aws_access_key_id": ACCESS_KEY, "aws_secret_access_key": SECRET_KEY}
        return boto3.client("s3", "us-east-1", endpoint_url=self.endpoint, **keys)

    def bucket(self, name: str = BUCKET) -> S3Store:
        """A client for the objects of a bucket."""
        config: Any = {option.lower(): value for option, value in self.storage_options.items() if "HTTP" not in option}
        return S3Store(name, config=config, client_options={"allow_http": True})


@contextmanager
def s3_server(log: Path) -> Iterator[S3Server]:
    """A server with two empty buckets, while the block runs.

    Args:
        log: the file for its output.
    """
    [port] = free_ports(1)
    with log.open("w") as output:
        process = subprocess.Popen([sys.executable, "-m", "tests.support.s3_server", str(port)], stdout=output, stderr=output)
        try:
            deadline = time.monotonic() + _WAIT_S
            while not is_open(port):
                assert process.poll() is None, log.read_text()
                assert time.monotonic() < deadline, f"the S3 server did not start in {_WAIT_S} s: {log.read_text()}"
                time.sleep(0.1)
            server = S3Server(port, log)
            for bucket in (BUCKET, WITHOUT_CONDITIONS):
                server.client().create_bucket(Bucket=bucket)
            yield server
        finally:
            process.terminate()
            process.wait(30)


@dataclass
class _LikeAStore:
    """Answers only requests with the right access key, and one write at a time, as a real store does.

    moto looks for an object and writes it without a lock, so that two conditional writes at once could both succeed.
    """

    app: Respond
    _writes: Any = field(default_factory=Lock)

    def __call__(self, environ: dict[str, Any], start_response: Respond) -> Iterable[bytes]:
        if f"Credential={ACCESS_KEY}/" not in environ.get("HTTP_AUTHORIZATION", ""):
            start_response("403 Forbidden", [("Content-Type", "application/xml"), ("Content-Length", str(len(_DENIED)))])
            return [_DENIED]
        method = "LIST" if "list-type=" in environ["QUERY_STRING"] else environ["REQUEST_METHOD"]
        request = f"{method} {environ['PATH_INFO']} if-none-match={environ.get('HTTP_IF_NONE_MATCH')}\n"
        os.write(1, request.encode())  # at once, as other threads write to the same file
        if method in ("GET", "HEAD", "LIST"):
            return self.app(environ, start_response)
        if environ["PATH_INFO"].startswith(f"/{WITHOUT_CONDITIONS}/"):
            environ.pop("HTTP_IF_NONE_MATCH", None)
        with self._writes:
            return list(self.app(environ, start_response))


def _serve(port: int) -> None:
    from botocore.utils import parse_to_aware_datetime
    from moto.moto_server.werkzeug_app import MotoRequestHandler, create_backend_app
    from werkzeug.serving import run_simple

    class Handler(MotoRequestHandler):
        def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
            """Log refused requests only: the app writes a line for each accepted one."""
            if str(code) >= "400":
                super().log_request(code, size)

    # moto's own app finds out the service of each request, which takes as long as answering it
    app = _LikeAStore(create_backend_app("s3"))
    # a list has the times of its objects as text, and parsing them takes a third of its time
    with patch("moto.core.serialize.parse_to_aware_datetime", cache(parse_to_aware_datetime)):
        run_simple("127.0.0.1", port, app, threaded=True, request_handler=Handler)


if __name__ == "__main__":
    _serve(int(sys.argv[1]))
