"""Flink SQL: statements are parsed, planned as operators without Spark, and run on frames."""
