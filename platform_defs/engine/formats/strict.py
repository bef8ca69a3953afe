"""Options for every read: a damaged or missing file raises an error and is never skipped, whatever the defaults of a cluster are."""

STRICT = {"ignoreCorruptFiles": "false", "ignoreMissingFiles": "false"}
"""Options of Spark's file readers."""
