"""Finds a Java that Spark runs on; if there is none, the error says how to install one."""

import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from operators.errors import TidemarkError
from platform_defs.settings import settings

SUPPORTED = (17, 21)

_KNOWN_FOLDERS = (
    "/usr/lib/jvm/*",
    "/Library/Java/JavaVirtualMachines/*/Contents/Home",
    "/opt/homebrew/opt/openjdk@*/libexec/openjdk.jdk/Contents/Home",
    "/usr/local/opt/openjdk@*/libexec/openjdk.jdk/Contents/Home",
    "C:/Program Files/*/jdk*",
    "C:/Program Files/*/jre*",
    "C:/Program Files/*/zulu*",
)
_RELEASE = re.compile(r'^JAVA_VERSION="(?:1\.)?(\d+)', re.MULTILINE)
_PRINTED = re.compile(r'version "(?:1\.)?(\d+)')


class JavaNotFound(TidemarkError, RuntimeError):
    """No Java version that Spark 4.1 supports was found."""

    @classmethod
    def none_of(cls, versions: dict[str, int]) -> "JavaNotFound":
        """The Java versions that were found, and how to install a supported one."""
        installed = ", ".join(f"Java {version} in {home}" for home, version in versions.items()) or "no Java at all"
        return cls(
            f"Spark 4.1 needs Java 17 or 21; found {installed}. Install one:\n"
            "  Debian, Ubuntu:  sudo apt-get install openjdk-17-jre-headless\n"
            "  macOS:           brew install openjdk@17\n"
            "  Windows:         winget install EclipseAdoptium.Temurin.17.JRE\n"
            "If it is installed already, set JAVA_HOME (or TIDEMARK_JAVA_HOME) to its folder, the one that holds bin/java."
        )


def find_java(homes: Iterable[Path] | None = None) -> str:
    """Find the folder of a Java 17 or 21, for JAVA_HOME.

    Args:
        homes: the folders to try, in this order; by default `java_homes()`.

    Returns:
        The first suitable folder, as an absolute path.

    Raises:
        JavaNotFound: no folder is suitable; the message says how to install a Java.
    """
    versions: dict[str, int] = {}
    for home in java_homes() if homes is None else homes:
        version = java_version(home)
        if version in SUPPORTED:
            return str(home.absolute())
        if version is not None:
            versions.setdefault(str(home), version)
    raise JavaNotFound.none_of(versions)


def java_homes() -> Iterator[Path]:
    """List the folders where a Java may be: the setting, `PATH`, then the well-known folders."""
    configured = settings().java_home
    if configured:
        yield Path(configured).expanduser()
    on_path = shutil.which("java")
    if on_path:
        yield Path(on_path).resolve().parent.parent
    if sys.platform == "darwin":
        yield from _from_macos()
    for pattern in _KNOWN_FOLDERS:
        root = Path(pattern).anchor
        if root:
            yield from sorted(Path(root).glob(pattern.removeprefix(root)))


def java_version(home: Path) -> int | None:
    """The major version of the Java in `home`; None if there is no Java that this user can run."""
    program, release = home / "bin" / ("java.exe" if sys.platform == "win32" else "java"), home / "release"
    try:
        if not program.is_file():
            return None
        release_match = _RELEASE.search(release.read_text(encoding="utf-8", errors="replace")) if release.is_file() else None
    except OSError:  # such as a folder that this user cannot read
        return None
    match = release_match or _PRINTED.search(_output_of(program, "-version"))
    return int(match[1]) if match else None


def _from_macos() -> Iterator[Path]:
    for version in SUPPORTED:
        home = _output_of(Path("/usr/libexec/java_home"), "-F", "-v", str(version)).strip()
        if home.startswith("/"):
            yield Path(home)


def _output_of(*command: str | Path) -> str:
    try:
        result = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return result.stdout + result.stderr if result.returncode == 0 else ""
