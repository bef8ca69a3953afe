"""The folders of Flink's recorded answers and of the sample data, outside the project. Tests that need them are skipped without them."""

from pathlib import Path

SHARED = Path(__file__).resolve().parents[3] / "shared"
OLIST = SHARED / "data" / "olist"
ORACLE = SHARED / "oracle"
