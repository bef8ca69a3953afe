"""Write the lake of an archive with this version: `python -m tests.lakes.make NAME` makes `tests/lakes/NAME.tar.gz`, in about a minute.

Then `python -m tests.lakes.make NAME --rows` makes `tests/lakes/NAME.rows`: the rows of every table after the batch `later`, as this
version computes them in a new lake.

Make one at each release, and before a change of what is stored. It has the operators and states that no earlier archive has, or whose
stored form has changed since:

1. Write `tests/lakes/at_NAME.py`, where NAME is the release or the hash of the commit: an `Archive` with one table of each, and so few rows
   that the file stays below 100 kB.
2. Add it to `ARCHIVES`, and run both commands. The first refuses to replace a file, because another version would not write the same one.
3. Run `tests/lakes/test_earlier_lakes.py`, which checks every archive, and commit both files.

A change of what tables contain needs the second command for each archive, and a review of the difference.

An archive stays as long as its lakes can be used. A later version changes its module only to follow the Python API, so that tables keep
their identities (`tests/engine/inputs/identities.py`). A table that can no longer be continued is named in the test, with the refusal.

For a commit without this module, write the lake of its `Archive` in a checkout of that commit, with the names that the API had there.
"""

import sys
import tarfile
import tempfile
from collections.abc import Mapping
from pathlib import Path

from operators.contract import Early
from platform_defs.engine import Engine
from platform_defs.engine.advance import kept_versions
from platform_defs.engine.lake.tables import Lake
from platform_defs.settings import Settings
from platform_defs.spark.session import session
from tests.lakes.archive import Archive, Batch
from tests.lakes.at_3c97b7b8 import AT_3C97B7B8
from tests.lakes.at_bd14abf import BD14ABF, BD14ABF_MORE
from tests.support.clock import NOON, Clock
from tests.support.json_rows import json_rows_of
from tests.support.small_sources import land

ARCHIVES: Mapping[str, Archive] = {"bd14abf": BD14ABF, "bd14abf-more": BD14ABF_MORE, "3c97b7b8": AT_3C97B7B8}
"""The archives by the names of their files, the oldest first."""
_OF_THE_MACHINE = {"_locks", "_checkpoints", "_staged_commits"}


def file_of(name: str) -> Path:
    """The file of an archive."""
    return Path(__file__).with_name(f"{name}.tar.gz")


def rows_file_of(name: str) -> Path:
    """The file with the rows of an archive's tables after the batch `later`: a line for each row, as `lines` returns them."""
    return Path(__file__).with_name(f"{name}.rows")


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


def ingest_all(engine: Engine, archive: Archive) -> None:
    """Ingest all batches of an archive into a new lake, and advance every table once."""
    for part in range(len(archive.batches) + 1):
        ingest(engine, archive, part)
    for table in engine.assets:
        engine.advance(table)


def lines(engine: Engine) -> list[str]:
    """The rows of every table, with its early results: the table's name and the row as a JSON object."""
    views = {
        name: engine.views.with_early(name) if isinstance(a.operator, Early) and a.operator.early else engine.views.table(name)
        for name, a in engine.assets.items()
    }
    rows_by_table = json_rows_of({name: rows.drop("updated_at") for name, rows in views.items()})
    return [f"{name} {row}" for name, rows in rows_by_table.items() for row in rows]


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


def record_rows(name: str) -> None:
    """Write the rows that the tables of an archive have after the batch `later`."""
    with tempfile.TemporaryDirectory() as folder:
        made = engine(Path(folder), ARCHIVES[name])
        ingest_all(made, ARCHIVES[name])
        rows_file_of(name).write_text("\n".join([*lines(made), ""]), "utf-8")


def _of_the_lake(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """A tar member without its owner; None for what belongs to the machine: locks, Spark's checkpoints and staged commits, checksums."""
    if member.name.endswith(".crc") or _OF_THE_MACHINE & {*Path(member.name).parts}:
        return None
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


if __name__ == "__main__":
    name, *options = sys.argv[1:]
    (record_rows if options == ["--rows"] else main)(name)
