"""Kills of the whole process group along a stream's life; see `docs/reliability.md`."""
