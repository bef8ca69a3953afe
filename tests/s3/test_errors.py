"""Faults of an S3 store: each is an error that says what is legal, and that shows no credentials."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from platform_defs.engine.lake.errors import LakeError
from platform_defs.engine.lake.missing_files import naming_lost_files
from platform_defs.engine.lake.tables import Lake
from platform_defs.engine.ledger.ledger import Ledger
from tests.engine.source_batches import source_batch
from tests.support.clock import Clock
from tests.support.s3_server import ACCESS_KEY, BUCKET, SECRET_KEY, s3_server

pytestmark = pytest.mark.s3
SECRETS = (ACCESS_KEY, SECRET_KEY, "wrong-key")


def _written(lake: Lake) -> None:
    with lake.opening():
        lake.append_small(pa.table({"a": [1]}), "t")


ACTS: dict[str, Callable[[Lake], Any]] = {
    "read": lambda lake: lake.delta("ledger"),
    "lock": lambda lake: lake.writer("ledger").__enter__(),
    "write": _written,
}


@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize(
    ("bucket", "changed", "why"),
    [
        pytest.param(None, {"AWS_ACCESS_KEY_ID": "wrong-key"}, "InvalidAccessKeyId: The AWS Access Key Id you provided", id="a wrong key"),
        pytest.param("no-such-bucket", {}, "NoSuchBucket: The specified bucket does not exist", id="no bucket"),
        pytest.param(None, {"AWS_ENDPOINT_URL": "http://127.0.0.1:1", "max_retries": "0"}, "Connection refused", id="no server"),
    ],
)
def test_the_error_of_a_faulty_store_names_what_to_set(lake: Lake, act: str, bucket: str | None, changed: dict[str, str], why: str) -> None:
    options = (lake.storage_options or {}) | changed
    faulty = replace(lake, root=f"s3a://{bucket}/lake" if bucket else lake.root, storage_options=options)
    with pytest.raises(LakeError, match=why) as raised:
        ACTS[act](faulty)
    text = str(raised.value)
    assert text.startswith(f"the lake {faulty.root} cannot be used: its store refused, or cannot be reached (")
    assert "set them in the part `s3` of TIDEMARK_CONNECTIONS, or as AWS_* variables" in text
    assert not [secret for secret in SECRETS if secret in text]


@pytest.mark.parametrize(
    ("answer", "match"),
    [
        pytest.param(
            "403 Forbidden <Error><Code>AccessDenied</Code><Message>no</Message></Error>", "cannot be used: .*AccessDenied: no", id="403"
        ),
        pytest.param("503 Service Unavailable", "cannot be used: its store refused", id="503"),
        pytest.param("404 Not Found <Error><Code>NoSuchKey</Code><Message>no</Message></Error>", "t lacks a data file", id="404"),
    ],
)
def test_only_a_file_that_the_store_lacks_is_named_as_lost(lake: Lake, answer: str, match: str) -> None:
    lake.append_small(pa.table({"a": [1]}), "t")
    table = lake.delta("t")
    assert table is not None
    [file] = table.file_uris()
    with pytest.raises(LakeError, match=match), naming_lost_files(lake, ["t"]):
        raise OSError(f"Error performing GET http://127.0.0.1:1{file.removeprefix('s3a:/')} - {answer}")


def test_a_lake_does_not_show_its_credentials(lake: Lake) -> None:
    assert SECRET_KEY in (lake.storage_options or {}).values()
    assert not [secret for secret in SECRETS if secret in repr(lake)]


def test_a_ledger_whose_store_stops_answering_is_not_lost(no_environment: None, tmp_path: Path) -> None:
    """A stream that has the ledger open tries again; a lost ledger would end the stream."""
    with s3_server(tmp_path / "server.log") as server:
        lake = Lake(f"s3a://{BUCKET}/lake", storage_options=server.storage_options | {"max_retries": "0"})
        ledger = Ledger(lake, Clock(5))
        ledger.commit([(source_batch("l", 1),)])
        assert ledger.head == 1
    for read in (lambda: ledger.head, lambda: ledger.offsets("l"), lambda: list(ledger._store.rows(["seq"]))):
        with pytest.raises(LakeError, match=r"^the lake .* cannot be used: its store refused, or cannot be reached \(.*Connection refused"):
            read()
