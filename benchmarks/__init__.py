"""Benchmarks of time, memory and the growth of cost; docs/explanation/benchmarks.md has their results."""
