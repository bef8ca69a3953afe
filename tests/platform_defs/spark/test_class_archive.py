"""The class archive: which file a session uses, and that the JVM accepts the file that `make setup` has written."""

import io
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyspark
import pytest
from pyspark.sql import SparkSession

from benchmarks.live.cluster import CLASS_PATH
from platform_defs.settings import settings
from platform_defs.setup.java import find_java
from platform_defs.spark.archive_classes import _end, archive_classes
from platform_defs.spark.class_archive import archive_option, class_archive
from platform_defs.spark.session import JAVA_OPTIONS, spark_config


def _java(folder: Path, release: str) -> str:
    folder.mkdir(exist_ok=True)
    (folder / "release").write_text(f'JAVA_VERSION="{release}"\n')
    return str(folder)


def test_an_archive_belongs_to_one_build_of_java(tmp_path: Path) -> None:
    java = tmp_path / "java"
    first = class_archive(_java(java, "17.0.14"), tmp_path)
    assert class_archive(_java(java, "17.0.14"), tmp_path) == first
    assert class_archive(_java(java, "17.0.15"), tmp_path) != first
    assert class_archive(_java(tmp_path / "other", "17.0.15"), tmp_path) != class_archive(_java(java, "17.0.15"), tmp_path)


def test_a_link_to_the_environment_changes_no_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java, package = find_java(), Path(pyspark.__file__).resolve().parent
    file = class_archive(java, tmp_path)
    (tmp_path / "linked").symlink_to(package)
    monkeypatch.setattr(pyspark, "__file__", str(tmp_path / "linked" / "__init__.py"))
    assert class_archive(java, tmp_path) == file


def test_a_session_uses_the_archive_only_if_there_is_one(tmp_path: Path) -> None:
    java = _java(tmp_path / "java", "17.0.15")
    assert archive_option(java, tmp_path) == ""
    file = class_archive(java, tmp_path)
    file.touch()
    assert f"-XX:SharedArchiveFile={file}" in archive_option(java, tmp_path)


def test_an_archive_is_written_once(tmp_path: Path) -> None:
    file = class_archive(find_java(), tmp_path)
    file.write_text("the archive")
    assert archive_classes(tmp_path) == file
    assert file.read_text() == "the archive"


def test_a_jvm_that_does_not_end_is_killed_and_leaves_no_archive() -> None:
    """It may have written a part of the archive."""
    done = list[str]()

    def wait(seconds: float | None = None) -> None:
        done.append("wait")
        if seconds is not None:
            raise subprocess.TimeoutExpired("java", seconds)

    process = SimpleNamespace(stdin=io.StringIO(), wait=wait, kill=lambda: done.append("kill"))
    spark: Any = SimpleNamespace(sparkContext=SimpleNamespace(_gateway=SimpleNamespace(proc=process)))
    with pytest.raises(TimeoutError, match="the JVM did not end within 120 s"):
        _end(spark)
    assert done == ["wait", "kill", "wait"]


def test_the_jvm_loads_spark_from_the_archive(spark: SparkSession) -> None:
    java = find_java()
    if not archive_option(java):
        pytest.skip("there is no class archive; `make setup` writes it")
    class_path = cast(Any, spark._jvm).System.getProperty("java.class.path")
    assert CLASS_PATH.split(":")[:2] == class_path.split(":")[:2], "the JVMs of a cluster would ignore the archive"
    command = [f"{java}/bin/java", *archive_option(java).split(), "-Xlog:class+load", "-cp", class_path]
    printed = subprocess.run([*command, "org.apache.spark.deploy.SparkSubmit", "--version"], capture_output=True, text=True, check=True)
    loaded = [line for line in printed.stdout.splitlines() if " org.apache.spark.deploy.SparkSubmit " in line]
    assert [line.partition("source: ")[2] for line in loaded] == ["shared objects file (top)"]


def test_the_archive_is_no_part_of_the_configuration_by_which_processes_share_a_session() -> None:
    assert ".jsa" not in spark_config(settings())[JAVA_OPTIONS]


def test_no_archive_is_written_below_a_path_with_a_space(tmp_path: Path) -> None:
    folder = tmp_path / "my projects"
    folder.mkdir()
    assert archive_classes(folder) is None
