"""How fast, how much memory, and how it grows: see docs/benchmarks.md."""
