"""The benchmark of a Prometheus scrape, on a small lake. The test starts no Spark session."""

from pathlib import Path

import pytest

from benchmarks import scrape


@pytest.mark.parametrize(("tables", "expected"), [(None, 12), (3, 3)])
def test_every_table_is_up_to_date_and_every_scrape_reads_the_lake(tmp_path: Path, tables: int | None, expected: int) -> None:
    found = scrape.run(tmp_path, batches=5, steps=3, tables=tables)
    assert (found["batches"], found["tables"], len(found["scrapes"])) == (5, expected, 5)
    assert all(one["wall"] > 0 and one["bytes"] > 1_000 * expected / 3 for one in found["scrapes"])
    text = scrape.text_of(tmp_path, batches=5, steps=3, tables=tables)
    assert "tidemark_up 1.0" in text
    stale = [line for line in text.splitlines() if line.startswith("tidemark_table_stale_seconds")]
    assert len(stale) == expected
    assert all(line.endswith(" 0.0") for line in stale), "nothing new has arrived"
