"""Write the lake of an archive with this version: `python -m tests.lakes.make NAME` makes `tests/lakes/NAME.tar.gz`, in about a minute.

Make one at each release, and before a change of what is stored. It has the operators and states that no earlier archive has, or whose
stored form has changed since:

1. Write `tests/lakes/at_NAME.py`, where NAME is the release or the hash of the commit: an `Archive` with one table of each, and so few rows
   that the file stays below 100 kB.
2. Add it to `ARCHIVES`, and run the command. It refuses to replace a file, because another version would not write the same one.
3. Run `tests/lakes/test_earlier_lakes.py`, which checks every archive, and commit the archive.

An archive stays as long as its lakes can be used. A later version changes its module only to follow the Python API, so that tables keep
their identities (`tests/engine/inputs/identities.py`). A table that can no longer be continued is named in the test, with the refusal.

For a commit without this module, write the lake of its `Archive` in a checkout of that commit, with the names that the API had there.
"""

import sys
import tarfile
import tempfile
from collections.abc import Mapping
from pathlib import Path

from platform_defs.engine import Engine
from platform_defs.engine.advance import kept_versions
from platform_defs.engine.lake.tables import Lake
from platform_defs.settings import Settings
from platform_defs.spark.session import session
from tests.lakes.archive import Archive, Batch
from tests.lakes.at_3c97b7b8 import AT_3C97B7B8
from tests.lakes.at_bd14abf import BD14ABF, BD14ABF_MORE
from tests.support.clock import NOON, Clock
from tests.support.small_sources import land

ARCHIVES: Mapping[str, Archive] = {"bd14abf": BD14ABF, "bd14abf-more": BD14ABF_MORE, "3c97b7b8": AT_3C97B7B8}
"""The archives by the names of their files, the oldest first."""
_OF_THE_MACHINE = {"_locks", "_checkpoints", "_staged_commits"}


def file_of(name: str) -> Path:
    """The file of an archive."""
    return Path(__file__).with_name(f"{name}.tar.gz")


def engine(root: Path, archive: Archive) -> Engine:
    """An engine on the lake `root/lake`; its input files are in `root/landing`."""
    folders = {s.name: str(root / "landing" / s.name) for s in archive.sources}
    spark = lambda: session(Settings(driver_memory="2g", shuffle_partitions=2))  # noqa: E731 - a resource, made on first use
    sources, tables = {s.name: s for s in archive.sources}, {a.name: a for a in archive.tables}
    return Engine(Lake(str(root / "lake")), sources, tables, spark, Clock(), folders=folders)


def ingest(engine: Engine, archive: Archive, part: int) -> None:
    """Land and ingest a batch of an archive at its time; the batch after the last is `later`. One line of each file is quarantined."""
    assert isinstance(engine.clock, Clock)
    engine.clock.now = NOON + part * archive.pause
    batch: Batch = [*archive.batches, archive.later][part]
    for name, events in batch.items():
        land(engine, name, f"{part}.jsonl", [*[e.line for e in events], "not JSON"])
    engine.ingest()


def main(name: str) -> None:
    """Write the lake of an archive."""
    if file_of(name).exists():
        sys.exit(f"{file_of(name)} exists, and this version would not write the same lake: give the archive another name")
    kept_versions.MANY_VERSIONS = 1  # so that a small lake has kept versions
    with tempfile.TemporaryDirectory() as folder:
        root, archive = Path(folder), ARCHIVES[name]
        made = engine(root, archive)
        for part, _ in enumerate(archive.batches):
            ingest(made, archive, part)
            for table in made.assets:
                made.advance(table)
        with tarfile.open(file_of(name), "w:gz") as packed:
            packed.add(root, ".", filter=_of_the_lake)


def _of_the_lake(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """A tar member without its owner; None for what belongs to the machine: locks, Spark's checkpoints and staged commits, checksums."""
    if member.name.endswith(".crc") or _OF_THE_MACHINE & {*Path(member.name).parts}:
        return None
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


if __name__ == "__main__":
    main(sys.argv[1])
