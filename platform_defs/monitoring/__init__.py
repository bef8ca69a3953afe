"""Monitoring: Prometheus metrics, alerts, and the freshness of tables. None of it needs Spark."""
