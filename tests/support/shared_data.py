"""Where the recorded Flink answers and the sample data are: beside the project, never in it. Tests that need them skip without them."""

from pathlib import Path

SHARED = Path(__file__).resolve().parents[3] / "shared"
OLIST = SHARED / "data" / "olist"
ORACLE = SHARED / "oracle"
