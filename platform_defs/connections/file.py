"""The connections of a deployment, from the YAML file that `TIDEMARK_CONNECTIONS` names: Kafka, S3, further Spark options and JARs.

A value that must stay secret is written as `{env: NAME}`, and read from that environment variable when it is needed.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import AfterValidator, Field, ValidationError

from assets.pipeline import Pipeline
from platform_defs.connections.kafka_sinks import KafkaSink, sinks_of
from platform_defs.connections.kafka_sources import Kafka
from platform_defs.connections.s3 import S3
from platform_defs.connections.values import Secret, Value, resolve_secrets
from platform_defs.declared.models import Strict
from platform_defs.declared.pipeline import DeclaredError
from platform_defs.declared.text import parse
from platform_defs.engine.formats.connection_errors import ConnectionsError
from platform_defs.engine.formats.kafka_options import Topics
from platform_defs.engine.operations.sink import Sink
from platform_defs.settings import Settings
from platform_defs.setup.jars import KAFKA, SPARK

HADOOP = "spark.hadoop."
"""The prefix of the options of stores, some of which are secret. They are set after the JVM has started, because every user of the machine
can see the JVM's command line."""
_SET_BY_TIDEMARK = ("spark.jars", "spark.sql.extensions", "spark.sql.catalog.spark_catalog")
_SETTINGS = {
    "spark.master": "TIDEMARK_SPARK_MASTER",
    "spark.driver.memory": "TIDEMARK_DRIVER_MEMORY",
    "spark.sql.shuffle.partitions": "TIDEMARK_SHUFFLE_PARTITIONS",
    "spark.ui.enabled": "TIDEMARK_SPARK_UI",
}
"""By option of Spark, the setting from which Tidemark makes it. The connections must not set it, since other code reads the setting."""


def _jar(path: str) -> str:
    if not path.endswith(".jar") or set(path) & set(",*?[]{}\\"):
        raise ValueError("legal: the path of a .jar file, without , * ? [ ] { } and \\")
    return path


def _spark_options(options: dict[str, Value]) -> dict[str, Value]:
    for name in options:
        if not name.startswith("spark."):
            raise ValueError(f"{name!r} is no option of Spark; legal: names that start with 'spark.'")
        if name in _SETTINGS:
            raise ValueError(f"{name!r} is set by Tidemark; legal: the setting {_SETTINGS[name]}")
        if name in _SET_BY_TIDEMARK or name.startswith("spark.delta.logStore."):
            raise ValueError(f"{name!r} is set by Tidemark; legal: other options, and for JARs the list `jars`")
        if isinstance(options[name], Secret) and not name.startswith(HADOOP):
            raise ValueError(
                f"{name!r} is read from an environment variable, and would be on the command line of the JVM, which every user of the "
                f"machine can see; legal: a secret of an option that starts with {HADOOP!r}, which is set after the start. Write other "
                "secrets to the file spark-defaults.conf in the folder SPARK_CONF_DIR, which only this user may read"
            )
    return options


class Connections(Strict):
    """The connections of a deployment.

    Args:
        spark: further options of the Spark session, by Spark's names.
        jars: the paths of further JARs for the session.
        kafka: the topics that sources read from Kafka, and those to which tables are published.
        s3: how S3 is reached; see `S3`.
    """

    spark: Annotated[dict[str, Value], AfterValidator(_spark_options)] = Field(default_factory=dict)
    jars: list[Annotated[str, AfterValidator(_jar)]] = Field(default_factory=list)
    s3: S3 | None = None
    kafka: Kafka | None = None

    @property
    def jar_sets(self) -> Sequence[str]:
        """The sets of pinned JARs that the session needs."""
        return [SPARK, *([KAFKA] if self.kafka else [])]

    def topics(self, pipeline: Pipeline) -> Mapping[str, Topics]:
        """The topics that the sources of a pipeline read.

        Raises:
            KafkaError: they do not match the pipeline.
        """
        return self.kafka.topics(pipeline) if self.kafka else {}

    @property
    def declared_sinks(self) -> Mapping[str, KafkaSink]:
        """The topics to which tables are published, by table, with their secrets unread."""
        return self.kafka.sinks if self.kafka else {}

    def sinks(self, pipeline: Pipeline) -> Mapping[str, Sink]:
        """The topics to which the tables of a pipeline are published, by table.

        Raises:
            KafkaSinkError: they do not match the pipeline.
        """
        return sinks_of(self.declared_sinks, self.kafka.options, pipeline) if self.kafka else {}

    def check_options(self, fixed: Iterable[str]) -> None:
        """Raise `ConnectionsError` if the connections set one of the `fixed` options: results depend on them in every deployment."""
        if changed := sorted(set(fixed) & self.spark.keys()):
            raise ConnectionsError(
                f"the connections set the Spark options {', '.join(changed)}, which are the same in every deployment, "
                "since results depend on them; legal: other options of Spark"
            )

    @property
    def spark_options(self) -> dict[str, str]:
        """The options of the session as text.

        Raises:
            ConnectionsError: an environment variable is not set.
        """
        return resolve_secrets(self.spark)


def read(text: str, file: str = "") -> Connections:
    """The connections of a YAML document.

    Args:
        text: the document.
        file: its file, for the error.

    Raises:
        ConnectionsError: the text is not one YAML document, or has parts or values that the schema does not allow.
    """
    try:
        document: Any = parse(text)
        return Connections.model_validate({} if document is None else document)
    except ValidationError as error:
        raise ConnectionsError.of(file, DeclaredError.of_values(error, document)) from None  # pydantic's own text quotes values
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ConnectionsError.of(file, f"it is not one YAML document: {_without_lines(error)}") from None  # YAML's own text quotes lines


def _without_lines(error: Exception) -> str:
    """Why a text is not one YAML document, without its lines, which may have a password."""
    mark = getattr(error, "problem_mark", None)
    if mark is None:
        return str(error)
    problem = str(getattr(error, "problem", None) or "it")
    shown = problem if problem.endswith("is given twice") else re.sub(r"'[^']*'", "'...'", problem)
    return f"{shown} in line {mark.line + 1}, column {mark.column + 1}"


@lru_cache
def _read_file(file: str) -> Connections:
    try:
        text = Path(file).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConnectionsError.of(file, f"it cannot be read: {error}") from error
    return read(text, file)


def connections(values: Settings) -> Connections:
    """The connections of the settings; without a file there are none.

    Raises:
        ConnectionsError: the file cannot be read, or is not legal.
    """
    return Connections() if values.connections is None else _read_file(values.connections)
