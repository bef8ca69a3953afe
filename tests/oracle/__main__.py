"""`python -m tests.oracle DIR [--operator NAME]`: compare the engine with Flink's recorded answers."""

import argparse
import logging
import sys
import tempfile
from pathlib import Path

from platform_defs.settings import Settings
from platform_defs.spark.session import session
from tests.oracle.runner import STEPPED, gather, report, run_all, stepwise_cases


def main() -> int:
    """Run every case below a folder; returns 1 if one failed."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.oracle", description="Compare the engine with Flink's recorded answers, row by row."
    )
    parser.add_argument("folder", type=Path, metavar="DIR", help="folder with case files (*.json), at any depth")
    parser.add_argument("--operator", help="only the cases with this `operator`, such as sql_interval_join")
    arguments = parser.parse_args()
    if not arguments.folder.exists():
        parser.error(f"{arguments.folder} does not exist")
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)  # Spark would log a page for an invalid residual
    gathered = gather(arguments.folder, arguments.operator)
    if not any((gathered.cases, gathered.windows, gathered.tops, gathered.unreadable, gathered.others)):
        of_operator = "" if arguments.operator is None else f" with the operator {arguments.operator!r}"
        parser.error(f"{arguments.folder} has no case{of_operator}")
    results = []
    if gathered.cases or gathered.windows or gathered.tops:
        spark = session(Settings(shuffle_partitions=2))  # pyright: ignore[reportCallIssue]
        with tempfile.TemporaryDirectory(prefix="tidemark-oracle-") as folder:
            results = run_all(spark, Path(folder), gathered)
    lines = report(gathered, results, len(stepwise_cases(gathered.cases, STEPPED)))
    print("\n".join(lines), flush=True)
    return int(any(v.status == "failed" for v in (*gathered.unreadable, *results)))


if __name__ == "__main__":
    sys.exit(main())
