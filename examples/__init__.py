"""Examples that run against real data."""
