"""Counts the rows of the data files that an action reads."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from platform_defs.engine import Engine
from platform_defs.engine.lake import data_skipping, reads


class RowsRead:
    """Counts the rows of the files that are read, by table."""

    def __init__(self, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
        self.rows, self._root, self._read = Counter[str](), engine.lake.root, data_skipping.rows_of_matching_files
        monkeypatch.setattr(reads, "rows_of_matching_files", self._counted)

    def _counted(self, spark: SparkSession, delta: Any, path: str, within: Any, **how: Any) -> DataFrame | None:
        files = data_skipping.matching_files(delta, within, with_nulls=how.get("with_nulls", False))
        assert files is not None
        actions = pa.table(delta.get_add_actions(flatten=True))
        rows = dict(zip(actions["path"].to_pylist(), actions["num_records"].to_pylist(), strict=True))
        self.rows[path.removeprefix(f"{self._root}/")] += sum(rows[file] for file in files)
        return self._read(spark, delta, path, within, **how)

    def during(self, act: Callable[[], object]) -> Counter[str]:
        """The rows that an action reads, by table."""
        self.rows.clear()
        act()
        return Counter(self.rows)
