"""Compiles the JAR with Delta's log store for S3, once, at set-up, by the Scala compiler that Spark includes."""

import hashlib
import subprocess
import sys
import tempfile
from pathlib import Path

import pyspark

from platform_defs.safe_text import printable, without_credentials, without_java_options
from platform_defs.setup.jars import JarError, jar_paths, jars_folder, pinned_jars
from platform_defs.setup.java import JavaNotFound, find_java

CLASS = "tidemark.ConditionalLogStore"
_SOURCE = Path(__file__).parent.parent / "spark" / "ConditionalLogStore.scala"
_OF_SPARK = Path(pyspark.__file__).parent / "jars"


def log_store_jar() -> Path:
    """The path of the JAR for the present source file and the installed version of Spark.

    Raises:
        JarError: the JAR is not compiled yet.
    """
    jar = _jar()
    if not jar.is_file():
        raise JarError(f"missing in {jar.parent}: {jar.name}. Run `make setup-s3`, which compiles it")
    return jar


def compile_log_store() -> Path:
    """Compile the JAR, unless it exists; needs no network.

    Raises:
        JarError: a JAR of the set `spark` is missing, or the compiler failed.
        JavaNotFound: no Java was found.
    """
    jar = _jar()
    if jar.is_file():
        return jar
    compiler = _class_path(*_OF_SPARK.glob("scala-*.jar"))
    uses = _class_path(*_OF_SPARK.glob("scala-library-*.jar"), *_OF_SPARK.glob("hadoop-client-api-*.jar"), *map(Path, jar_paths()))
    with tempfile.TemporaryDirectory(prefix=".compile-", dir=jar.parent) as scratch:
        target = Path(scratch, jar.name)
        java = Path(find_java()) / "bin" / "java"
        command = [java, "-cp", compiler, "scala.tools.nsc.Main", "-nowarn", "-cp", uses, "-d", target, _SOURCE]
        result = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
        if result.returncode or not target.is_file():
            output = printable(without_java_options(without_credentials(result.stdout + result.stderr)))
            raise JarError(f"{_SOURCE.name} could not be compiled; Scala printed:\n{output}")
        target.replace(jar)
    return jar


def _jar() -> Path:
    uses = " ".join([pyspark.__version__, *[jar.file_name for jar in pinned_jars()]])
    content = hashlib.sha256(_SOURCE.read_bytes() + uses.encode()).hexdigest()
    return jars_folder() / f"tidemark-log-store-{content[:12]}.jar"


def _class_path(*jars: Path) -> str:
    return ":".join(str(jar) for jar in jars)


def main() -> int:
    """Compile the JAR and print its path; the exit status is 1 if that fails."""
    try:
        jar = compile_log_store()
    except (JarError, JavaNotFound, ValueError, OSError) as error:  # a wrong setting, or a folder that cannot be written to
        sys.stderr.write(f"{printable(without_credentials(str(error)))}\n")
        return 1
    sys.stdout.write(f"log store: {jar}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
