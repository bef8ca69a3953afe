"""The S3 server of the tests that need no Spark."""

import os
import uuid
from collections.abc import Iterator

import pytest

from platform_defs.engine.lake.tables import Lake
from tests.support.s3_server import BUCKET, S3Server, s3_server


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with s3_server(tmp_path_factory.mktemp("server") / "server.log") as running:
        yield running


@pytest.fixture
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove the variables of S3, which a machine may have set."""
    for name in list(os.environ):
        if name.startswith("AWS_"):
            monkeypatch.delenv(name)


@pytest.fixture
def lake(server: S3Server, no_environment: None, request: pytest.FixtureRequest) -> Lake:
    """A lake for each test."""
    return Lake(f"s3a://{BUCKET}/{request.node.originalname}-{uuid.uuid4().hex[:8]}/lake", storage_options=server.storage_options)
