"""The options of a session on a cluster. No test starts a cluster."""

import re
from pathlib import Path

import pytest
import yaml

from platform_defs.settings import Settings
from platform_defs.setup.java import JavaNotFound
from platform_defs.spark import session
from platform_defs.spark.session import ClusterError, before_start, spark_config

MASTER = "spark://master:7077"


def _settings(**values: object) -> Settings:
    return Settings.model_validate({"spark_master": MASTER, **values})


@pytest.mark.parametrize(
    ("folders", "named"),
    [
        ({"lake": "/data/lake"}, "TIDEMARK_LAKE is '/data/lake' and TIDEMARK_LANDING is '/data/lake/landing' on this machine"),
        ({"lake": "s3a://b/lake", "landing": "/data/in"}, "and TIDEMARK_LANDING is '/data/in' on this machine"),
    ],
)
def test_folders_that_the_workers_may_not_see_are_refused(folders: dict[str, str], named: str):
    with pytest.raises(ClusterError, match="TIDEMARK_SHARED_FOLDERS=true") as error:
        spark_config(_settings(**folders))
    assert named in str(error.value)


def test_a_mounted_disk_is_accepted_by_a_setting():
    config = spark_config(_settings(lake="/data/lake", shared_folders=True))
    assert config["spark.master"] == MASTER
    assert "spark.driver.host" not in config  # Spark finds the address that the workers can reach


def test_spark_submit_gets_the_options_that_have_no_effect_later_and_no_secrets():
    options = before_start(_settings(lake="/data/lake", shared_folders=True, driver_memory="2g"))
    assert options.keys() == {"spark.master", "spark.driver.memory", "spark.jars", "spark.driver.extraJavaOptions"}
    assert (options["spark.master"], options["spark.driver.memory"]) == (MASTER, "2g")
    assert "delta-spark" in options["spark.jars"]


@pytest.mark.parametrize(("own", "archives"), [("-Dmine=1", ["of-setup.jsa"]), ("-XX:SharedArchiveFile=mine.jsa", ["mine.jsa"])])
def test_spark_submit_uses_the_class_archive_unless_the_connections_name_one(
    own: str, archives: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "connections.yaml").write_text(yaml.safe_dump({"spark": {"spark.driver.extraJavaOptions": own}}))
    monkeypatch.setattr(session, "archive_option", lambda _: " -XX:SharedArchiveFile=of-setup.jsa")
    options = before_start(_settings(lake="/data/lake", shared_folders=True, connections=str(tmp_path / "connections.yaml")))
    assert re.findall(r"-XX:SharedArchiveFile=(\S+)", options["spark.driver.extraJavaOptions"]) == archives


def test_the_options_for_spark_submit_need_no_java(monkeypatch: pytest.MonkeyPatch):
    def find_no_java() -> str:
        raise JavaNotFound.none_of({})

    monkeypatch.setattr(session, "find_java", find_no_java)
    options = before_start(_settings(lake="/data/lake", shared_folders=True))
    assert "SharedArchiveFile" not in options["spark.driver.extraJavaOptions"]


_OWN = {"spark.driver.extraJavaOptions": "-Dmine=1", "spark.executor.extraJavaOptions": "-Dmine=2"}


@pytest.mark.parametrize("master", [MASTER, "local[2]"])
@pytest.mark.parametrize("own", [{}, _OWN], ids=["by default", "with own options"])
def test_the_jvms_limit_the_length_that_a_damaged_avro_value_may_name(master: str, own: dict[str, str], tmp_path: Path):
    file = tmp_path / "connections.yaml"
    file.write_text(yaml.safe_dump({"spark": own}))
    config = spark_config(_settings(spark_master=master, lake="/data/lake", shared_folders=True, connections=str(file)))
    for name in ("spark.driver.extraJavaOptions", "spark.executor.defaultJavaOptions"):
        for limit in ("bytes.maxLength=67108864", "string.maxLength=67108864", "collectionItems.maxLength=16777216"):
            assert f"-Dorg.apache.avro.limits.{limit}" in config[name].split()
    assert config["spark.driver.extraJavaOptions"].endswith(own.get("spark.driver.extraJavaOptions", ""))
    assert config.get("spark.executor.extraJavaOptions") == own.get("spark.executor.extraJavaOptions")
