"""Every setting of the platform, and the only module that reads the environment.

Each field is set by the variable `TIDEMARK_<FIELD>` (`JAVA_HOME` and `DAGSTER_HOME` keep the names
the world gave them). A wrong value fails on the first use of `settings()`, with the variable's name.
"""

from datetime import date
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, AliasChoices, Field, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from operators.timing import length_ms
from operators.triggers import read_trigger

PROJECT = Path(__file__).resolve().parent.parent
HOME = PROJECT / ".tidemark"


def _checked_duration(value: str) -> str:
    length_ms(value, "value")
    return value


def _checked_lease(value: str) -> str:
    if length_ms(value, "value") < 1_000:
        raise ValueError("legal: 1 second or more, or a heartbeat could not keep it")
    return value


def _checked_day(value: str) -> str:
    return str(date.fromisoformat(value))


def _checked_trigger(value: str) -> str:
    read_trigger(value)
    return value


Duration = Annotated[str, AfterValidator(_checked_duration)]
LeaseDuration = Annotated[str, AfterValidator(_checked_lease)]
Day = Annotated[str, AfterValidator(_checked_day)]
Trigger = Annotated[str, AfterValidator(_checked_trigger)]


class Settings(BaseSettings):
    """The settings of one process.

    Durations are words such as `24 hours`, `90 s` or `250 ms`; see `operators.timing.duration_ms`.
    """

    model_config = SettingsConfigDict(env_prefix="TIDEMARK_", extra="ignore", frozen=True)

    lake: str = Field(default=str(HOME / "lake"), description="root of all Delta tables; a path or a URI (s3a://, abfss://, hdfs://)")
    lease: LeaseDuration = Field(
        default="60 s",
        description="a lake behind a URI: a writer that died is replaced after this long; the clocks must agree to a fraction",
    )
    landing: str | None = Field(default=None, description="root of the input files, one folder a source; `<lake>/landing` when unset")
    dagster_home: str = Field(
        default=str(HOME / "dagster"),
        validation_alias=AliasChoices("TIDEMARK_DAGSTER_HOME", "DAGSTER_HOME"),
        description="where Dagster keeps its runs and events",
    )
    spark_master: str = Field(default="local[*]", description="the Spark master")
    driver_memory: str = Field(default="3g", description="heap of the Spark driver")
    shuffle_partitions: int = Field(default=4, ge=1, description="shuffle partitions before adaptive execution merges them")
    spark_ui: bool = Field(default=False, description="whether the Spark UI listens")
    jars: str = Field(default=str(HOME / "jars"), description="folder that holds the pinned JARs; an air-gapped site fills it by hand")
    maven_mirror: str | None = Field(default=None, description="base URL of a company mirror of Maven Central")
    java_home: str | None = Field(
        default=None, validation_alias=AliasChoices("TIDEMARK_JAVA_HOME", "JAVA_HOME"), description="the Java to use; found when unset"
    )
    payment_within: Duration = Field(
        default="24 hours", description="a payment belongs to an order when it comes at most this long after it"
    )
    join_how: Literal["inner", "left", "right", "full"] = Field(default="full", description="the kind of the payment-order join")
    sales_window: Duration = Field(default="30 minutes", description="the windows of item sales, clicks and hot items")
    sales_slide: Duration = Field(default="10 minutes", description="how far one of these windows begins after the one before")
    allowed_lateness: Duration = Field(default="5 minutes", description="how long after a window's end a late row still corrects it")
    early_results: Trigger = Field(
        default="", description="when open windows of item sales show what they hold: 'every step', 'every 100 rows', 'every 10 minutes'"
    )
    hot_items: int = Field(default=10, ge=1, description="items that a ranking of hot items keeps")
    category_hot_items: int = Field(default=3, ge=1, description="items that a ranking of a category's hot items keeps")
    leaderboard: int = Field(default=10, ge=1, description="rows that a leaderboard keeps of each seller, category or status")
    out_of_orderness: Duration = Field(default="10 minutes", description="how far a row may lag the newest one and not be late")
    idle_timeout: Duration = Field(default="1 hour", description="a source silent for this long no longer holds the watermark")
    duplicate_horizon: Duration = Field(default="7 days", description="how far apart in event time two rows of a key are still duplicates")
    future_skew: Duration = Field(default="24 hours", description="a row further ahead of the clock than this goes to quarantine")
    max_step: int = Field(default=5_000_000, ge=1, description="rows an advance handles in one step, about; bounds the memory")
    max_files: int = Field(default=64, ge=1, description="files one micro-batch takes")
    first_day: Day = Field(default="2016-01-01", description="the first daily partition")
    traceback: bool = Field(
        default=False, description="whether an error of Spark is shown with its text, which may quote rows, and its traceback"
    )
    completeness: float = Field(default=0.5, ge=0, le=1, description="join completeness below this is a warning")

    @property
    def landing_root(self) -> str:
        """Where the input files lie, one folder a source."""
        return (self.landing or f"{self.lake.rstrip('/')}/landing").rstrip("/")


@lru_cache
def settings() -> Settings:
    """The settings of this process, read from the environment once.

    Raises:
        ValueError: a variable holds a wrong value; the message names it, the value and what is legal.
    """
    try:
        return Settings()  # pyright: ignore[reportCallIssue]  # a positional default is one
    except ValidationError as error:
        raise ValueError("; ".join(_told(e["loc"][0], e["input"], e["msg"]) for e in error.errors())) from None


def _told(field: Any, value: Any, what: str) -> str:
    """A wrong value in words; pydantic names a field by its alias where it has one."""
    variable = f"TIDEMARK_{field.upper()}" if field in Settings.model_fields else field
    return f"{variable} is {value!r}: {what.removeprefix('Value error, ').removeprefix(f'`value` is {value!r}; ')}"
