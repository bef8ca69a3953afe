"""How S3, or a store with its interface, is reached: one description, from which Spark and deltalake get their options."""

from collections.abc import Sequence

from pydantic import Field

from platform_defs.connections.values import Value, resolve_secrets
from platform_defs.declared.models import Strict
from platform_defs.engine.formats.connection_errors import ConnectionsError
from platform_defs.paths import is_in_s3
from platform_defs.settings import Settings, environment_value
from platform_defs.setup.log_store import CLASS

_ENDPOINTS, _REGIONS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"), ("AWS_REGION", "AWS_DEFAULT_REGION")
_TOKEN = "AWS_SESSION_TOKEN"
_RETRIES = {"max_retries": "6", "retry_timeout": "60s"}
"""deltalake's retries, so few that a store that cannot be reached is an error after seconds, not minutes."""
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

    @property
    def spark_options(self) -> dict[str, str]:
        """The options of a Spark session.

        Raises:
            ConnectionsError: an environment variable is not set.
        """
        values = self._values
        options = {f"spark.hadoop.fs.s3a.{of_spark}": values[field] for field, (of_spark, _) in _NAMES.items() if field in values}
        options["spark.hadoop.fs.s3a.path.style.access"] = str(self._has_path_style(values)).lower()
        return options | {"spark.delta.logStore.s3a.impl": CLASS}

    @property
    def storage_options(self) -> dict[str, str]:
        """The options of deltalake.

        Raises:
            ConnectionsError: an environment variable is not set, or has a token that would be sent with the access key of the file.
        """
        values = self._values
        names = {name.lower().removeprefix("aws_") for name in (*values, *self.options)}
        if "access_key" in values and not names & {"session_token", "token"} and environment_value(_TOKEN):
            raise ConnectionsError.token_of_another_key(_TOKEN)
        options = {of_deltalake: values[field] for field, (_, of_deltalake) in _NAMES.items() if field in values}
        if self.endpoint:
            options["aws_endpoint_url_s3"] = values["endpoint"]  # otherwise AWS_ENDPOINT_URL_S3 would precede the endpoint
        options["aws_virtual_hosted_style_request"] = str(not self._has_path_style(values)).lower()
        if values.get("endpoint", "").startswith("http://"):
            options["allow_http"] = "true"
        return _RETRIES | options | resolve_secrets(self.options)

    @property
    def _values(self) -> dict[str, str]:
        configured = {field: value for field in _NAMES if (value := getattr(self, field))}
        usual = {field: value for field, names in (("endpoint", _ENDPOINTS), ("region", _REGIONS)) if (value := _first(names))}
        return usual | resolve_secrets(configured)

    def _has_path_style(self, values: dict[str, str]) -> bool:
        return "endpoint" in values if self.path_style is None else self.path_style


def _first(variables: Sequence[str]) -> str | None:
    """The value of the first environment variable that is set."""
    return next((value for name in variables if (value := environment_value(name))), None)


def store_of(values: Settings, configured: S3 | None) -> S3 | None:
    """The S3 store that a deployment needs; None if it needs none.

    Args:
        values: the settings: a lake or a root of landing folders in S3 needs a store.
        configured: the store in the connections, if any; it is used even if no folder of the settings is in S3.
    """
    is_needed = any(is_in_s3(root) for root in (values.lake, values.landing_root))
    return S3() if configured is None and is_needed else configured
