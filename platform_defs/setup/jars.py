"""The pinned JARs: fetched once, at set-up, and never resolved when a session starts.

`jars.toml` beside this module is the only list of them. The Ivy that PySpark ships fetches each one by its
coordinates alone, with settings and a cache of our own, so nothing in `~/.m2` or `~/.ivy2` can get in the way.
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
        """The name it has in a Maven repository and in the folder."""
        return f"{self.artifact}-{self.version}.jar"


class JarError(TidemarkError, RuntimeError):
    """A pinned JAR is not there, or is not what was pinned."""

    @classmethod
    def missing(cls, jars: Iterable[Jar], folder: Path) -> "JarError":
        """The folder does not hold every pinned JAR."""
        return cls(
            f"missing, or not the pinned file, in {folder}: {_names(jars)}. Run `make setup`, which fetches them; "
            f"or set TIDEMARK_JARS to a folder that holds them, as listed with checksums in {PINS}"
        )

    @classmethod
    def checksum(cls, jar: Jar, found: str) -> "JarError":
        """What was fetched is another file than the one pinned."""
        return cls(
            f"{jar.file_name} has the wrong checksum: expected sha256 {jar.sha256}, found {found}. What was fetched was thrown away. "
            "Run `make setup` again; if it stays so, the mirror (TIDEMARK_MAVEN_MIRROR) serves another file: "
            "put the right one into the folder TIDEMARK_JARS by hand"
        )

    @classmethod
    def not_fetched(cls, jars: Iterable[Jar], folder: Path, log: str) -> "JarError":
        """Ivy ran and did not bring every JAR."""
        return cls(
            f"could not fetch {_names(jars)}. Behind a company mirror set TIDEMARK_MAVEN_MIRROR to its base URL; behind a proxy set "
            f"JAVA_TOOL_OPTIONS=-Dhttps.proxyHost=HOST -Dhttps.proxyPort=PORT; without a network put the files into {folder} by hand "
            f"(list and checksums: {PINS}). Ivy said:\n{_tail(_without_secrets(log))}"
        )


Download = Callable[[Sequence[Jar], Path], str]
"""Puts the JARs into a folder, under their file names, and returns its log."""


@lru_cache
def pinned() -> tuple[Jar, ...]:
    """Read the pinned JARs from `jars.toml`."""
    return tuple(Jar(**entry) for entry in tomllib.loads(PINS.read_text(encoding="utf-8"))["jar"])


def jars_folder() -> Path:
    """The folder that holds the JARs, as an absolute path."""
    return Path(settings().jars)


def jar_paths() -> list[str]:
    """List the pinned JARs as absolute paths, for `spark.jars`.

    Raises:
        JarError: one is missing, or differs from the pinned file.
    """
    folder = jars_folder()
    absent = _absent(pinned(), folder)
    if absent:
        raise JarError.missing(absent, folder)
    return [str(folder / jar.file_name) for jar in pinned()]


def fetch(folder: Path | None = None, jars: Sequence[Jar] | None = None, download: Download | None = None) -> list[Jar]:
    """Bring the JARs that the folder lacks; with nothing lacking, need neither network nor Java.

    Args:
        folder: where they go; by default `settings().jars`.
        jars: which; by default all that are pinned.
        download: how; by default the Ivy inside PySpark.

    Returns:
        What was fetched.

    Raises:
        JarError: one could not be fetched, or is not the pinned file; that file is not kept.
        JavaNotFound: something is to fetch, and there is no Java to do it.
    """
    folder = folder or jars_folder()
    absent = _absent(pinned() if jars is None else jars, folder)
    if absent:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".fetch-", dir=folder) as scratch:
            log = (download or _with_ivy)(absent, Path(scratch))
            _accept(absent, Path(scratch), folder, log)
    return absent


def _accept(jars: Sequence[Jar], scratch: Path, folder: Path, log: str) -> None:
    unfetched = [jar for jar in jars if not (scratch / jar.file_name).is_file()]
    if unfetched:
        raise JarError.not_fetched(unfetched, folder, log)
    for jar in jars:
        found = _sha256(scratch / jar.file_name)
        if found != jar.sha256:
            raise JarError.checksum(jar, found)
    for jar in jars:
        (scratch / jar.file_name).replace(folder / jar.file_name)


def _with_ivy(jars: Sequence[Jar], scratch: Path) -> str:
    settings_file, wanted, home = scratch / "settings.xml", scratch / "ivy.xml", scratch / "ivy"
    settings_file.write_text(_ivy_settings(home / "cache", settings().maven_mirror), encoding="utf-8")
    wanted.write_text(_ivy_module(jars), encoding="utf-8")
    java = Path(find_java()) / "bin" / "java"
    command = [java, f"-Divy.default.ivy.user.dir={home}", "-cp", _ivy_jar(), "org.apache.ivy.Main"]
    options = ["-settings", settings_file, "-ivy", wanted, "-retrieve", scratch / "[artifact]-[revision].[ext]"]
    done = subprocess.run([*command, *options], capture_output=True, text=True, errors="replace", check=False)
    return done.stdout + done.stderr


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
    wanted = "\n".join(
        f'    <dependency org="{jar.group}" name="{jar.artifact}" rev="{jar.version}" transitive="false" conf="default->default"/>'
        for jar in jars
    )
    return f"""<ivy-module version="2.0">
  <info organisation="tidemark" module="jars"/>
  <configurations><conf name="default"/></configurations>
  <dependencies>
{wanted}
  </dependencies>
</ivy-module>
"""


def _ivy_jar() -> Path:
    pyspark = find_spec("pyspark")
    found = sorted(Path(pyspark.origin).parent.glob("jars/ivy-*.jar")) if pyspark and pyspark.origin else []
    if not found:
        raise JarError("this PySpark ships no jars/ivy-*.jar to fetch with: install the full `pyspark`, not `pyspark-client`")
    return found[-1]


def _absent(jars: Iterable[Jar], folder: Path) -> list[Jar]:
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


def main() -> int:
    """Fetch what is missing and say so; the exit status is 1 when that failed."""
    try:
        fetched = fetch()
    except (JarError, JavaNotFound, ValueError, OSError) as error:  # a wrong setting, or a folder that cannot be written to
        sys.stderr.write(f"{printable(without_credentials(str(error)))}\n")
        return 1
    done = f"fetched {_names(fetched)}" if fetched else f"all {len(pinned())} are there"
    sys.stdout.write(f"jars: {done}, in {jars_folder()}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
