"""Spark's commits to a local table."""

from pathlib import Path

from pyspark.sql import SparkSession


def test_spark_writes_no_checksum_of_hadoop_beside_a_commit(tmp_path: Path, spark: SparkSession):
    table = tmp_path / "table"
    for number in range(2):
        spark.createDataFrame([(number,)], "n int").write.format("delta").mode("append").save(str(table))
    commits = sorted(path.name for path in (table / "_delta_log").iterdir() if path.name.endswith((".json", ".json.crc")))
    assert commits == [f"{version:020}.json" for version in range(2)], "Hadoop starts five more processes for each checksum file"
    assert spark.read.format("delta").load(str(table)).count() == 2
