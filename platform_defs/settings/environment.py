"""Every setting of the platform, and the only module that reads the environment.

Each field is set by the variable `TIDEMARK_<FIELD>`; `java_home` and `dagster_home` also by `JAVA_HOME` and `DAGSTER_HOME`. A wrong or
empty value is an error on the first use of `settings()`, which names the variable. An unknown `TIDEMARK_*` variable gives a warning.

Folders become canonical paths (see `platform_defs.paths`). A relative path starts from the project's folder, not from the current
folder, so that the command line and a Dagster daemon use the same path.
"""

import difflib
import logging
import os
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Self

from pydantic import AliasChoices, Field, ValidationError, model_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from operators.errors import TidemarkError
from platform_defs.paths import is_within
from platform_defs.safe_text import HIDDEN, shortened
from platform_defs.settings.alert_values import BaseUrl, MailAddresses, ShellCommand, SmtpUrl, Webhook
from platform_defs.settings.shop import ShopSettings
from platform_defs.settings.values import (
    PREFIX,
    PROJECT,
    Day,
    Host,
    InputFolder,
    Interval,
    JarFolder,
    LakeFolder,
    LeaseDuration,
    LocalFolder,
    Master,
    Memory,
    Mirror,
    PipelineName,
    PositiveDuration,
    StreamTriggerName,
    YamlFile,
)

HOME = PROJECT / ".tidemark"
_SECRET = ("alert_webhook", "alert_smtp", "alert_command", "alert_ui")
"""Settings whose whole value is secret, or may contain a secret."""
_log = logging.getLogger(__name__)


class Settings(ShopSettings):
    """The settings of one process.

    Durations are words such as `24 hours`, `90 s` or `250 ms`; see `operators.timing.duration_ms`.
    """

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, env_ignore_empty=True, extra="ignore", frozen=True, validate_default=True, hide_input_in_errors=True
    )

    pipeline: PipelineName | None = Field(
        default=None, description="your pipeline: MODULE:NAME, or the path of a Python, YAML or SQL file; the example shop when unset"
    )
    lake: LakeFolder = Field(
        default=str(HOME / "lake"),
        description="root of all Delta tables, without `%`, `|` and `^`: a path, or an s3a:// URI (see the how-to guide); other "
        "URIs (abfss://, gs://, hdfs://) are not tested",
    )
    lease: LeaseDuration = Field(
        default="60 s",
        description="for a lake behind a URI: a dead writer is replaced after this time; the machines' clocks must differ by much less",
    )
    landing: InputFolder | None = Field(
        default=None,
        description="root of the input files, a path or an s3a:// URI, one folder for each source; `<lake>/landing` when unset",
    )
    dagster_home: LocalFolder = Field(
        default=str(HOME / "dagster"),
        validation_alias=AliasChoices("TIDEMARK_DAGSTER_HOME", "DAGSTER_HOME"),
        description="folder of Dagster's runs and events",
    )
    connections: YamlFile | None = Field(
        default=None, description="YAML file with what the deployment connects to: further Spark options, JARs, object stores, Kafka"
    )
    spark_master: Master = Field(default="local[*]", description="the Spark master")
    shared_folders: bool = Field(
        default=False,
        description="whether every worker of a Spark cluster sees the lake and the input files at the same paths, as on a mounted disk; "
        "otherwise a cluster needs both in a store",
    )
    driver_memory: Memory = Field(default="3g", description="heap of the Spark driver")
    shuffle_partitions: int = Field(default=4, ge=1, le=100_000, description="shuffle partitions before adaptive execution merges them")
    spark_ui: bool = Field(default=False, description="whether the Spark UI listens")
    session_file: LocalFolder = Field(
        default=str(HOME / "session.json"), description="the file by which `tidemark serve` lets other processes find its Spark session"
    )
    jars: JarFolder = Field(default=str(HOME / "jars"), description="folder of the pinned JARs; a site without a network fills it by hand")
    maven_mirror: Mirror | None = Field(
        default=None,
        repr=False,
        description="base URL of a company mirror of Maven Central; may contain a password, which is never printed",
    )
    java_home: LocalFolder | None = Field(
        default=None, validation_alias=AliasChoices("TIDEMARK_JAVA_HOME", "JAVA_HOME"), description="the Java to use; found when unset"
    )
    alert_after: int = Field(
        default=3, ge=1, le=100, description="how often in a row a job or check must fail before the sensor `alerts` sends an alert"
    )
    alert_webhook: Webhook | None = Field(
        default=None, repr=False, description="URL to which alerts are posted as JSON with a `text`, as Slack reads it; never printed"
    )
    alert_command: ShellCommand | None = Field(default=None, description="a shell command that reads each alert as JSON from its input")
    alert_mail: MailAddresses | None = Field(default=None, description="addresses to which alerts are mailed, separated by commas")
    alert_mail_from: MailAddresses | None = Field(
        default=None, description="the sender of mailed alerts; the first address of `TIDEMARK_ALERT_MAIL` when unset"
    )
    alert_smtp: SmtpUrl | None = Field(
        default=None,
        repr=False,
        description="the server for mailed alerts: smtp://USER:PASSWORD@HOST:587, which uses STARTTLS, or smtps://...:465; never printed",
    )
    alert_ui: BaseUrl | None = Field(default=None, description="base URL of Dagster's UI, for links to runs in alerts")
    openlineage: bool = Field(
        default=False,
        description="whether Dagster sends OpenLineage events, to the server that `OPENLINEAGE__TRANSPORT` names. `make ui` and "
        "`python -m platform_defs.dagster_home` write it into `dagster.yaml`",
    )
    max_step: int = Field(
        default=5_000_000,
        ge=1,
        le=10**12,
        description="approximate number of rows of sources that a step reads; bounds the memory, of up to four steps at once",
    )
    max_files: int = Field(default=64, ge=1, le=1_000_000, description="files in one micro-batch, at most, for each source")
    changelog_retention: PositiveDuration | None = Field(
        default=None,
        description="how long changelogs keep the steps of upserted tables; then maintenance replaces them by their result. For ever when "
        "unset. The rows of a source have a setting of their own, `retention`",
    )
    quarantine_retention: PositiveDuration | None = Field(
        default=None, description="how long rejected rows are kept in the quarantines; then maintenance removes them. For ever when unset"
    )
    ledger_retention: PositiveDuration | None = Field(
        default=None,
        description="how long the ledger keeps its batches; then maintenance replaces them by a summary, once their rows have left the "
        "event logs and all tables have handled them. For ever when unset. Versions of Tidemark without this setting refuse such a lake",
    )
    stream_trigger: StreamTriggerName = Field(
        default="processingTime=30 seconds",
        description="when Dagster's job `stream` looks for files and records: `processingTime=` and an interval, or `availableNow` to end "
        "when all present ones are ingested",
    )
    stream_summary: Interval = Field(
        default="5 minutes", description="how often Dagster's job `stream` reports materializations and checks, if anything has changed"
    )
    stream_metrics_port: int | None = Field(
        default=None,
        ge=0,
        le=65_535,
        description="the port at which Dagster's job `stream` serves metrics while it runs; 0 for any free one, none when unset",
    )
    stream_metrics_host: Host = Field(
        default="127.0.0.1", description="the address at which Dagster's job `stream` serves metrics; 0.0.0.0 for all"
    )
    first_day: Day | None = Field(
        default=None,
        description="the first daily partition; when unset, `first_day` of the pipeline, or the first day of the year of the oldest event",
    )
    last_day: Day | None = Field(
        default=None,
        description="the last day of the events, if the data are complete: daily partitions end with the last day on which their results "
        "can become final, and runs of Dagster finalize no later ones; when unset, `last_day` of the pipeline, or no end",
    )
    traceback: bool = Field(
        default=False,
        description="whether an error of your pipeline's code is shown with its traceback, and an error of Spark with its traceback and "
        "its text, which may quote rows",
    )

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Read settings only from arguments and the environment.

        There are no settings files, so searching them would only cost time.
        """
        return init_settings, env_settings

    @property
    def landing_root(self) -> str:
        """The root of the input files, with one folder for each source."""
        return self.landing or f"{self.lake.rstrip('/')}/landing"

    @model_validator(mode="after")
    def _check_folders(self) -> Self:
        """Raise unless the input files are outside the lake or in its folder `landing`, and contain no lake, `dagster_home` or JARs."""
        default_landing = f"{self.lake.rstrip('/')}/landing"
        if is_within(self.landing_root, self.lake) and not is_within(self.landing_root, default_landing):
            raise ValueError(
                f"{PREFIX}LANDING is {self.landing_root!r}: legal: a folder outside the lake {self.lake!r}, or {default_landing!r} or "
                "below it; files elsewhere in the lake would be in a table's folder"
            )
        for field in ("lake", "dagster_home", "jars"):
            if is_within(getattr(self, field), self.landing_root):
                raise ValueError(
                    f"{PREFIX}{field.upper()} is {getattr(self, field)!r}: legal: a folder outside {PREFIX}LANDING, "
                    f"{self.landing_root!r}, whose files are read as input"
                )
        return self

    @model_validator(mode="after")
    def _check_mail(self) -> Self:
        """Raise if there are mail addresses, but no mail server."""
        if self.alert_mail and not self.alert_smtp:
            raise ValueError(
                f"{PREFIX}ALERT_MAIL is {self.alert_mail!r}: legal: addresses together with {PREFIX}ALERT_SMTP, the mail server"
            )
        return self


class SettingsError(TidemarkError, ValueError):
    """An environment variable is empty or has an illegal value."""


@lru_cache
def settings() -> Settings:
    """The settings of this process, read from the environment once.

    Raises:
        SettingsError: a variable is empty or has an illegal value; the message names it, the value and what is legal.
    """
    environment = dict(os.environ)
    _refuse_empty(environment)
    for name, nearest in unknown_variables(environment).items():
        _log.warning("%s is not a setting and is ignored%s", ascii(name)[1:-1], f"; did you mean {nearest}?" if nearest else "")
    try:
        return Settings()  # pyright: ignore[reportCallIssue]  # pyright misses a default that is passed by position
    except ValidationError as error:
        raise SettingsError("; ".join(_message(e["loc"], e["input"], e["msg"]) for e in error.errors())) from None


def environment_value(name: str) -> str | None:
    """The value of an environment variable that is not a setting, such as one that the file of connections names; None if it is not set."""
    return os.environ.get(name)


def is_set(field: str) -> bool:
    """Whether the environment has the variable `TIDEMARK_...` of a setting. Unlike `settings()`, it raises no error."""
    return any(name.upper() == f"{PREFIX}{field.upper()}" for name in os.environ)


def unknown_variables(environment: Mapping[str, str]) -> dict[str, str | None]:
    """The variables `TIDEMARK_*` that are not settings, each with the variable of the most similar setting; None if none is similar."""
    legal = [field.upper() for field in Settings.model_fields]
    variables = sorted(name for name in environment if name.upper().startswith(PREFIX))
    unknown = {name: name.upper().removeprefix(PREFIX) for name in variables if name.upper().removeprefix(PREFIX) not in legal}
    nearest = {name: difflib.get_close_matches(field, legal, n=1) for name, field in unknown.items()}
    return {name: f"{PREFIX}{similar[0]}" if similar else None for name, similar in nearest.items()}


def _refuse_empty(environment: Mapping[str, str]) -> None:
    """Raise for an empty variable, which a compose file can set by mistake.

    Only `TIDEMARK_EARLY_RESULTS`, `JAVA_HOME` and `DAGSTER_HOME` may be empty.
    """
    for name, value in sorted(environment.items()):
        field = name.upper().removeprefix(PREFIX).lower()
        if name.upper().startswith(PREFIX) and field in Settings.model_fields and not value.strip() and field != "early_results":
            raise SettingsError(f"{name.upper()} is {value!r}: legal: a value, or leave the variable unset for the default")


def _message(location: tuple[int | str, ...], value: Any, message: str) -> str:
    """The error for an illegal value. Pydantic names a field by its alias if it has one, and names none for an error of several fields."""
    message = message.removeprefix("Value error, ").removeprefix(f"`value` is {value!r}; ")
    if not location:
        return message
    field = str(location[0])
    shown = HIDDEN if field in _SECRET else _shown_value(value)
    if isinstance(value, str) and shown != value:
        message = message.replace(value, shown)
    return f"{f'{PREFIX}{field.upper()}' if field in Settings.model_fields else field} is {shown!r}: {message}"


def _shown_value(value: Any) -> str:
    """A value without possible credentials: everything before the last `@` is hidden, except the scheme of a URL."""
    text = str(value)
    before, at, after = text.rpartition("@")
    scheme, slashes, _ = before.rpartition("://")
    return shortened(f"{scheme if scheme.isalnum() else ''}{slashes}{HIDDEN}@{after}" if at else text)
