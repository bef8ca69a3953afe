"""Fetches the pinned JARs once, at set-up. A Spark session then resolves and fetches no JAR when it starts.

`jars.toml` is the only list of the JARs. Every session needs the set `spark`; comments in the file describe the other sets. Ivy, which
PySpark includes, fetches each JAR by its coordinates, without dependencies. It uses settings and a cache of its own, so that the content
of `~/.m2` and `~/.ivy2` has no effect.
"""

import hashlib
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from xml.sax.saxutils import quoteattr

from operators.errors import TidemarkError
from platform_defs.safe_text import printable, without_credentials, without_java_options
from platform_defs.settings import settings
from platform_defs.setup.java import JavaNotFound, find_java

PINS = Path(__file__).with_name("jars.toml")


@dataclass(frozen=True)
class Jar:
    """One pinned JAR: its Maven coordinates and its checksum."""

    group: str
    artifact: str
    version: str
    sha256: str

    @property
    def file_name(self) -> str:
        """The JAR's file name in a Maven repository and in the folder."""
        return f"{self.artifact}-{self.version}.jar"


class JarError(TidemarkError, RuntimeError):
    """A pinned JAR is missing, or is not the pinned file."""

    @classmethod
    def missing(cls, jars: Iterable[Jar], folder: Path, command: str = "make setup") -> "JarError":
        """The folder lacks a pinned JAR."""
        return cls(
            f"these JARs are missing from {folder}, or are not the pinned files: {_names(jars)}. Run `{command}`, which fetches them; "
            f"or set TIDEMARK_JARS to a folder with the files that {PINS} lists with checksums"
        )

    @classmethod
    def checksum(cls, jar: Jar, sha256: str, folder: Path) -> "JarError":
        """The fetched file is not the pinned one."""
        return cls(
            f"{jar.file_name} has the wrong checksum: expected sha256 {jar.sha256}, found {sha256}. It was deleted, and so were the files "
            "that were fetched with it. Run the same command again; if the error persists, the repository (TIDEMARK_MAVEN_MIRROR, or Maven "
            f"Central) serves another file: put the right one into {folder} by hand"
        )

    @classmethod
    def not_fetched(cls, jars: Iterable[Jar], folder: Path, log: str) -> "JarError":
        """Ivy did not fetch every JAR."""
        return cls(
            f"could not fetch {_names(jars)}. Behind a company mirror set TIDEMARK_MAVEN_MIRROR to its base URL; behind a proxy set "
            f"JAVA_TOOL_OPTIONS='-Dhttps.proxyHost=HOST -Dhttps.proxyPort=PORT'; without a network put the files into {folder} by hand "
            f"(list and checksums: {PINS}). Ivy printed:\n{_tail(_without_secrets(log))}"
        )

    @classmethod
    def no_ivy(cls) -> "JarError":
        """PySpark has no Ivy."""
        return cls("this PySpark has no jars/ivy-*.jar to fetch with: install the full `pyspark`, not `pyspark-client`")

    @classmethod
    def no_set(cls, name: str) -> "JarError":
        """No set of JARs has the name."""
        return cls(f"there is no set of JARs {printable(name)!r}; legal: {', '.join(_sets())}")


Download = Callable[[Sequence[Jar], Path], str]
"""A function that downloads JARs into a folder under their file names, and returns its log."""


SPARK, KAFKA, S3 = "spark", "kafka", "s3"
"""The sets that a session can use: the JARs that every session needs, Kafka's connector, and Hadoop's S3 file system."""


@lru_cache
def _sets() -> dict[str, tuple[Jar, ...]]:
    pins = tomllib.loads(PINS.read_text(encoding="utf-8"))
    return {name: tuple(Jar(**entry) for entry in jars) for name, jars in pins.items()}


def pinned_jars(name: str = SPARK) -> tuple[Jar, ...]:
    """The pinned JARs of a set, from `jars.toml`.

    Raises:
        JarError: there is no such set.
    """
    if name not in _sets():
        raise JarError.no_set(name)
    return _sets()[name]


def jars_folder() -> Path:
    """The folder that holds the JARs, as an absolute path."""
    return Path(settings().jars)


def jar_paths(*sets: str) -> list[str]:
    """List the pinned JARs of some sets as absolute paths, for `spark.jars`.

    Args:
        sets: the names of the sets; by default `spark`.

    Raises:
        JarError: a JAR is missing, or differs from the pinned file.
    """
    folder, paths = jars_folder(), list[str]()
    for name in sets or [SPARK]:
        missing = _missing_or_wrong(pinned_jars(name), folder)
        if missing:
            raise JarError.missing(missing, folder, "make setup" if name == SPARK else f"make setup-{name}")
        paths += [str(folder / jar.file_name) for jar in pinned_jars(name)]
    return paths


def fetch(jars: Sequence[Jar] | None = None, download: Download | None = None) -> list[Jar]:
    """Fetch the JARs that the folder of the settings lacks. If the folder has all of them, neither network nor Java is needed.

    Args:
        jars: the JARs; by default those of the set `spark`.
        download: how to download them; by default with PySpark's Ivy.

    Returns:
        The JARs that were fetched.

    Raises:
        JarError: a JAR could not be fetched, or a fetched file is not the pinned one and was deleted.
        JavaNotFound: a JAR is missing, and no Java was found to fetch it with.
    """
    folder = jars_folder()
    missing = _missing_or_wrong(dict.fromkeys(pinned_jars() if jars is None else jars), folder)
    if missing:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".fetch-", dir=folder) as scratch:
            log = (download or _with_ivy)(missing, Path(scratch))
            _move_checked_files(missing, Path(scratch), folder, log)
    return missing


def _move_checked_files(jars: Sequence[Jar], scratch: Path, folder: Path, log: str) -> None:
    unfetched = [jar for jar in jars if not (scratch / jar.file_name).is_file()]
    if unfetched:
        raise JarError.not_fetched(unfetched, folder, log)
    for jar in jars:
        sha256 = _sha256(scratch / jar.file_name)
        if sha256 != jar.sha256:
            raise JarError.checksum(jar, sha256, folder)
    for jar in jars:
        (scratch / jar.file_name).replace(folder / jar.file_name)


def _with_ivy(jars: Sequence[Jar], scratch: Path) -> str:
    settings_file, module_file, home = scratch / "settings.xml", scratch / "ivy.xml", scratch / "ivy"
    settings_file.write_text(_ivy_settings(home / "cache", settings().maven_mirror), encoding="utf-8")
    module_file.write_text(_ivy_module(jars), encoding="utf-8")
    java = Path(find_java()) / "bin" / "java"
    command = [java, f"-Divy.default.ivy.user.dir={home}", "-cp", _ivy_jar(), "org.apache.ivy.Main"]
    options = ["-settings", settings_file, "-ivy", module_file, "-retrieve", scratch / "[artifact]-[revision].[ext]"]
    result = subprocess.run([*command, *options], capture_output=True, text=True, errors="replace", check=False)
    return result.stdout + result.stderr


def _ivy_settings(cache: Path, mirror: str | None) -> str:
    root = f" root={quoteattr(mirror.rstrip('/') + '/')}" if mirror else ""
    return f"""<ivysettings>
  <settings defaultResolver="pinned"/>
  <caches defaultCacheDir={quoteattr(str(cache))}/>
  <timeout-constraints><timeout-constraint name="patient" connectionTimeout="20000" readTimeout="120000"/></timeout-constraints>
  <resolvers><ibiblio name="pinned" m2compatible="true" usepoms="false" timeoutConstraint="patient"{root}/></resolvers>
</ivysettings>
"""


def _ivy_module(jars: Iterable[Jar]) -> str:
    dependencies = "\n".join(
        f'    <dependency org="{jar.group}" name="{jar.artifact}" rev="{jar.version}" transitive="false" conf="default->default"/>'
        for jar in jars
    )
    return f"""<ivy-module version="2.0">
  <info organisation="tidemark" module="jars"/>
  <configurations><conf name="default"/></configurations>
  <dependencies>
{dependencies}
  </dependencies>
</ivy-module>
"""


def _ivy_jar() -> Path:
    pyspark = find_spec("pyspark")
    ivy_jars = sorted(Path(pyspark.origin).parent.glob("jars/ivy-*.jar")) if pyspark and pyspark.origin else []
    if not ivy_jars:
        raise JarError.no_ivy()
    return ivy_jars[-1]


def _missing_or_wrong(jars: Iterable[Jar], folder: Path) -> list[Jar]:
    return [jar for jar in jars if not _is_pinned_file(jar, folder / jar.file_name)]


def _is_pinned_file(jar: Jar, path: Path) -> bool:
    return path.is_file() and _sha256(path) == jar.sha256


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _names(jars: Iterable[Jar]) -> str:
    return ", ".join(jar.file_name for jar in jars)


def _without_secrets(log: str) -> str:
    """The log without the credentials of the mirror or of another URL, and without the JVM's options."""
    return printable(without_java_options(without_credentials(log, settings().maven_mirror)))


def _tail(log: str) -> str:
    problems = log.partition(":: problems summary ::")[2] or log
    lines = [line.rstrip() for line in problems.splitlines() if line.strip(" \t.:")]
    return "\n".join(lines[-15:])


def main(*sets: str) -> int:
    """Fetch the missing JARs of some sets, by default `spark`, and print their names; returns the exit status, 1 if this fails."""
    try:
        jars = [jar for name in sets or [SPARK] for jar in pinned_jars(name)]
        fetched = fetch(jars=jars)
    except (JarError, JavaNotFound, ValueError, OSError) as error:  # a wrong setting, or a folder that cannot be written to
        sys.stderr.write(f"{printable(without_credentials(str(error)))}\n")
        return 1
    summary = f"fetched {_names(fetched)}" if fetched else f"all {len(jars)} are present"
    sys.stdout.write(f"jars: {summary}, in {jars_folder()}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
