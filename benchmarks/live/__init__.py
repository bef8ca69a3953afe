"""Benchmarks of a running stream: a Kafka broker, a producer at a steady rate, a stream with sinks, and what they did."""
