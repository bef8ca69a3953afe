"""Objects of a store, without Spark: lists them page by page, and tests whether the store refuses to replace an object.

deltalake and Arrow would list a whole folder into memory.
"""

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any
from urllib.parse import unquote

import obstore
from obstore.store import S3Store

PAGE = 10_000
"""The number of objects in one page, which is held in memory. S3 answers a request with 1,000 of them."""
_CONFIG = {
    *("access_key_id", "secret_access_key", "session_token", "token", "region", "default_region", "endpoint", "endpoint_url"),
    *("virtual_hosted_style_request", "imdsv1_fallback", "metadata_endpoint", "request_payer", "role_arn", "role_session_name"),
    *("skip_signature", "sts_endpoint", "web_identity_token_file", "container_credentials_relative_uri", "unsigned_payload"),
}
"""deltalake's options for S3, without the prefix `aws_`, that `obstore` has too."""
_CLIENT = {"allow_http", "allow_invalid_certificates", "connect_timeout", "timeout", "proxy_url", "proxy_ca_certificate", "user_agent"}
_WITH_PREFIX = {"endpoint_url_s3": "aws_endpoint_url_s3"}
"""The option that `obstore` knows by its full name only."""
_PROBE = "_conditional_put"
_MOST_STORES = 512
StoreError = obstore.exceptions.BaseError


def store_at(uri: str, options: Mapping[str, str] | None) -> S3Store:
    """The store with the objects below a URI: the same one for all calls with the same options, so that its connections are used again.

    Args:
        uri: the `s3a://` URI of a folder.
        options: deltalake's options for the store; None for those that the environment has now.
    """
    return _new_store(uri, ()) if options is None else _kept_store(uri, tuple(options.items()))


def _new_store(uri: str, options: tuple[tuple[str, str], ...]) -> S3Store:
    options_by_name = {name.lower().removeprefix("aws_"): value for name, value in options}
    config: Any = {_WITH_PREFIX.get(name, name): value for name, value in options_by_name.items() if name in {*_CONFIG, *_WITH_PREFIX}}
    client: Any = {name: value for name, value in options_by_name.items() if name in _CLIENT}
    retries: Any = {"max_retries": int(options_by_name["max_retries"])} if "max_retries" in options_by_name else None
    bucket, _, prefix = uri.removeprefix("s3a://").partition("/")  # obstore's own function for URIs refuses the option of `_WITH_PREFIX`
    return S3Store(bucket, prefix=unquote(prefix) or None, config=config, client_options=client, retry_config=retries)


_kept_store = lru_cache(maxsize=_MOST_STORES)(_new_store)


def has_conditional_put(folder: str, options: Mapping[str, str] | None) -> bool:
    """Whether the store refuses to replace an existing object if the request forbids it; some stores ignore that part of a request.

    Args:
        folder: the URI of a folder in which an object may be created.
        options: deltalake's options for the store.

    Raises:
        StoreError: the store refused, or cannot be reached.
    """
    store = store_at(folder, options)
    for _ in range(2):
        try:
            obstore.put(store, _PROBE, b"", mode="create")
        except obstore.exceptions.AlreadyExistsError:
            return True
    return False


def newer_objects(uri: str, options: Mapping[str, str] | None, after: str) -> dict[str, tuple[Any, ...]]:
    """The states of the objects below a folder's URI whose names sort after `after`: modification time, length and tag, by name.

    Raises:
        StoreError: the store refused, or cannot be reached.
    """
    found = (item for page in obstore.list(store_at(uri, options), offset=after) for item in page)
    return {item["path"]: (item["last_modified"], item["size"], item["e_tag"]) for item in found}


def pages(uri: str, options: Mapping[str, str] | None) -> Iterator[list[tuple[str, int, int]]]:
    """The objects below a folder's URI in pages: their names below the folder, modification times in epoch ms, and lengths.

    Raises:
        StoreError: the store refused, or cannot be reached.
    """
    for page in obstore.list(store_at(uri, options), chunk_size=PAGE):
        yield [(item["path"], int(item["last_modified"].timestamp() * 1000), item["size"]) for item in page]
