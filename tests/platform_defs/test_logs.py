"""At the default log level, standard output and standard error contain no row content and no credentials."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.small_sources import START, iso

CONTENT, SECRET, ACCESS = "MARKED-CONTENT-OF-A-ROW", "SECRET-KEY-OF-A-STORE", "ACCESS-KEY-OF-A-STORE"
RUN = """
import sys
from pathlib import Path
from assets.contracts import RowRule
from assets.watermark_strategies import BatchExpression
from platform_defs.engine import Engine, IngestError
from platform_defs.engine.lake.errors import LakeError
from platform_defs.engine.lake.tables import Lake
from tests.support.quick_session import quick_session
from tests.support.small_sources import ROW, join, source

root = Path(sys.argv[1])
spark = quick_session(**{
    "spark.hadoop.fs.s3a.secret.key": sys.argv[2], "spark.hadoop.fs.s3a.access.key": sys.argv[3]})

def engine(**changes):
    sources, tables = {"l": source("l", unique_key=("k",), **changes)}, {"pairs": join(inputs=("l", "l"))}
    return Engine(Lake(str(root / "lake")), sources, tables, lambda: spark, folders={"l": str(root / "l")})

def refused(act, *kinds):
    try:
        act()
    except kinds:
        return
    raise SystemExit(f"{act} was not refused")

refused(engine(rules=(RowRule("short", "length(k) < 3", "fail"),)).ingest, IngestError)
refused(engine(watermark=BatchExpression("max(to_timestamp(k))")).ingest, IngestError)
current = engine(rules=(RowRule("kept", "v < 100"), RowRule("odd", "v % 2 = 1", "warn")))
current.ingest()
current.drain()
current.advance("pairs")
assert all(a.holds for a in current.accounts.days("pairs"))
assert not current.views.table("quarantine/l").isEmpty()
current.lake.optimize(spark, "pairs")
current.maintain()
next(Path(current.lake.path("events/l")).rglob("part-*.parquet")).unlink()
refused(lambda: current.accounts.days("pairs"), LakeError)
print("done", {"dagster", "great_expectations"} & {*sys.modules})
"""


@pytest.mark.spark
def test_neither_content_nor_credentials_are_logged(tmp_path: Path) -> None:
    lines = [f'{{"k": "{CONTENT}-{n}", "v": {n}, "ts": "{iso(START + n)}"}}' for n in (1, 2, 3, 500)]
    bad = [
        f'{{"k": "{CONTENT}", "v": "{CONTENT}", "ts": "{CONTENT}"}}',
        f"{{{CONTENT}",
        f'{{"k": "{CONTENT}", "v": 1, "ts": "9999"}}',
        lines[0],
    ]
    (tmp_path / "l").mkdir()
    (tmp_path / "l" / "1.jsonl").write_text("\n".join([*lines, *bad]), encoding="utf-8")
    environment = os.environ | {"AWS_SECRET_ACCESS_KEY": SECRET, "AWS_ACCESS_KEY_ID": ACCESS, "PYTHONPATH": "."}
    command = [sys.executable, "-c", RUN, str(tmp_path), SECRET, ACCESS]
    process = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    output = process.stdout + process.stderr
    assert process.returncode == 0, output
    assert process.stdout == "done set()\n", f"Dagster or Great Expectations was imported: {output}"
    assert [line for line in output.splitlines() if any(word in line for word in (CONTENT, SECRET, ACCESS))] == []
