"""The class archive: Spark's classes in the JVM's own format. A session that uses it starts two to four seconds faster.

It is a feature of the JVM (class data sharing, JEP 350). `make setup` writes the archive once. The JVM compares it with its own build and
the JARs, and starts without it if they differ.
"""

import hashlib
from pathlib import Path

import pyspark

from platform_defs.settings import HOME

NO_WARNINGS = "-Xlog:cds=off -Xlog:cds+dynamic=off"
"""Without a matching archive a session only starts more slowly, so the JVM's warnings about it are not printed."""


def class_archive(java_home: str, folder: Path = HOME) -> Path:
    """The file of the class archive, which may not exist; its name depends on the Java and on the folder and version of PySpark.

    Args:
        java_home: the folder of the Java that starts the session.
        folder: the folder of the file.
    """
    release = Path(java_home, "release")
    java = release.read_text("utf-8", errors="replace") if release.is_file() else ""
    versions = str(Path(java_home).resolve()), java, str(Path(pyspark.__file__).resolve()), pyspark.__version__
    return folder / f"classes-{hashlib.sha256(repr(versions).encode()).hexdigest()[:16]}.jsa"


def archive_option(java_home: str, folder: Path = HOME) -> str:
    """The JVM's options that use the class archive; empty if there is none.

    Args:
        java_home: the folder of the Java that starts the session.
        folder: the folder of the file.
    """
    file = class_archive(java_home, folder)
    return f" -XX:SharedArchiveFile={file} {NO_WARNINGS}" if file.is_file() and " " not in str(file) else ""
