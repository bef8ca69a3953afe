"""The engine against Flink's recorded answers: `python -m tests.oracle DIR`."""
