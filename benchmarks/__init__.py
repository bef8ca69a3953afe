"""Benchmarks of time, memory and the growth of cost; docs/benchmarks.md has their results."""
