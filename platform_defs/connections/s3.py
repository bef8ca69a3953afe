"""How S3, or another store with S3's interface, is reached: one description, from which Spark and deltalake get their options."""

import re
from collections.abc import Sequence

from pydantic import Field, field_validator, model_validator

from platform_defs.connections.values import Secret, Value, resolve_secrets
from platform_defs.declared.models import Strict
from platform_defs.engine.formats.connection_errors import ConnectionsError
from platform_defs.paths import is_in_s3
from platform_defs.settings import Settings, environment_value
from platform_defs.setup.log_store import CLASS

_ENDPOINTS, _REGIONS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"), ("AWS_REGION", "AWS_DEFAULT_REGION")
_TOKEN = "AWS_SESSION_TOKEN"
_CREDENTIALS = {
    "access_key_id": "access_key",
    "secret_access_key": "secret_key",
    "session_token": "session_token",
    "token": "session_token",
}
"""The names of credentials among deltalake's options, without `aws_`, and the fields with the same meaning."""
_LEGAL_URL = "a URL, such as https://minio.example.org:9000 or http://127.0.0.1:9000"
_URL = re.compile(r"https?://[^/\s]+(/\S*)?")
_RETRIES = {"max_retries": "6", "retry_timeout": "60s"}
"""deltalake's retries, fewer than by default, so that a store that cannot be reached is an error within a minute."""
_NAMES = {
    "endpoint": ("endpoint", "aws_endpoint_url"),
    "region": ("endpoint.region", "aws_region"),
    "access_key": ("access.key", "aws_access_key_id"),
    "secret_key": ("secret.key", "aws_secret_access_key"),
    "session_token": ("session.token", "aws_session_token"),
}
"""For each field of `S3`, its option of Spark's file system (after `spark.hadoop.fs.s3a.`), and its option of deltalake."""


class S3(Strict):
    """An S3 store. Without credentials, Spark and deltalake use the environment variables `AWS_*`, or the role of the machine.

    Args:
        endpoint: the store's URL; by default `AWS_ENDPOINT_URL_S3`, `AWS_ENDPOINT_URL` or `AWS_ENDPOINT`, or Amazon's.
        region: the region; by default `AWS_REGION` or `AWS_DEFAULT_REGION`.
        access_key: the ID of the access key.
        secret_key: the secret of the access key.
        session_token: the token of temporary credentials.
        path_style: whether the bucket is in the URL's path, not in the host's name; by default true if there is an endpoint.
        options: further options of deltalake, by its names; those of Spark are in the part `spark`, as `spark.hadoop.fs.s3a...`.
    """

    endpoint: Value | None = None
    region: Value | None = None
    access_key: Value | None = None
    secret_key: Value | None = None
    session_token: Value | None = None
    path_style: bool | None = None
    options: dict[str, Value] = Field(default_factory=dict)

    @field_validator("endpoint")
    @classmethod
    def _check_endpoint(cls, endpoint: Value | None) -> Value | None:
        if endpoint is not None and not isinstance(endpoint, Secret) and not _URL.fullmatch(str(endpoint)):
            raise ValueError(f"legal: {_LEGAL_URL}")
        return endpoint

    @model_validator(mode="after")
    def _check_credentials(self) -> "S3":
        """Refuse incomplete credentials: deltalake would take the other part from the environment, where it may belong to another key."""
        fields = {field for field in _CREDENTIALS.values() if getattr(self, field)}
        options = self._credentials_in_options
        if any(("access_key" in given) != ("secret_key" in given) for given in (fields, options)):
            raise ValueError("legal: access_key and secret_key together, both as fields or both in options, or neither")
        if ("session_token" in fields and "access_key" not in fields) or (
            "session_token" in options and "access_key" not in fields | options
        ):
            raise ValueError("legal: session_token only with its access_key and secret_key")
        return self

    @property
    def spark_options(self) -> dict[str, str]:
        """The options of a Spark session.

        Raises:
            ConnectionsError: an environment variable is not set, or has an endpoint that is no URL.
        """
        values = self._resolved
        options = {f"spark.hadoop.fs.s3a.{of_spark}": values[field] for field, (of_spark, _) in _NAMES.items() if field in values}
        options["spark.hadoop.fs.s3a.path.style.access"] = str(self._has_path_style(values)).lower()
        return options | {"spark.delta.logStore.s3a.impl": CLASS}

    @property
    def storage_options(self) -> dict[str, str]:
        """The options of deltalake.

        Raises:
            ConnectionsError: an environment variable is not set, or has an endpoint that is no URL; or the file has an access key without
                `session_token` and `AWS_SESSION_TOKEN` is set, which would be sent with this key.
        """
        values = self._resolved
        given = values.keys() | self._credentials_in_options
        if "access_key" in given and "session_token" not in given and environment_value(_TOKEN):
            raise ConnectionsError.token_of_another_key(_TOKEN)
        options = {of_deltalake: values[field] for field, (_, of_deltalake) in _NAMES.items() if field in values}
        if self.endpoint:
            options["aws_endpoint_url_s3"] = values["endpoint"]  # otherwise AWS_ENDPOINT_URL_S3 would precede the endpoint
        options["aws_virtual_hosted_style_request"] = str(not self._has_path_style(values)).lower()
        if values.get("endpoint", "").startswith("http://"):
            options["allow_http"] = "true"
        return _RETRIES | options | resolve_secrets(self.options)

    @property
    def _credentials_in_options(self) -> set[str]:
        """The credentials among the options of deltalake, by the names of the fields with the same meaning."""
        return {_CREDENTIALS[name] for option in self.options if (name := option.lower().removeprefix("aws_")) in _CREDENTIALS}

    @property
    def _resolved(self) -> dict[str, str]:
        """The values of the fields that are set, here or in the environment."""
        configured = {field: value for field in _NAMES if (value := getattr(self, field))}
        variables = {"endpoint": _ENDPOINTS, "region": _REGIONS}
        from_environment = {field: value for field, names in variables.items() if (value := _first_set(names))}
        values = from_environment | resolve_secrets(configured)
        if "endpoint" in values and not _URL.fullmatch(values["endpoint"]):
            raise ConnectionsError.bad_endpoint(_LEGAL_URL)
        return values

    def _has_path_style(self, values: dict[str, str]) -> bool:
        return "endpoint" in values if self.path_style is None else self.path_style


def _first_set(variables: Sequence[str]) -> str | None:
    """The value of the first environment variable that is set."""
    return next((value for name in variables if (value := environment_value(name))), None)


def store_of(settings: Settings, configured: S3 | None) -> S3 | None:
    """The S3 store of a deployment: the configured one; without one, that of the environment, if the lake or the input files are in S3.

    Args:
        settings: the settings.
        configured: the store in the connections; None if there is none.
    """
    is_needed = any(is_in_s3(root) for root in (settings.lake, settings.landing_root))
    return S3() if configured is None and is_needed else configured
