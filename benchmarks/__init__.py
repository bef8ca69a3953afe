"""Time, memory and growth: see docs/benchmarks.md."""
