"""Flink's recorded answers against the engine: `python -m tests.oracle DIR`."""
