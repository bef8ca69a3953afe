"""Kills of the whole process group during a scripted stream; see `docs/explanation/reliability.md`."""
