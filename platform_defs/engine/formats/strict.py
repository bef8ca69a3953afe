"""Options for every read: a damaged or missing file is an error and is never skipped, even if a cluster's defaults differ."""

STRICT = {"ignoreCorruptFiles": "false", "ignoreMissingFiles": "false"}
"""Options of Spark's file readers."""
