"""How every read is made, whatever the defaults of a cluster: a damaged or missing file is an error, and is never passed over."""

STRICT = {"ignoreCorruptFiles": "false", "ignoreMissingFiles": "false"}
"""Options of Spark's file readers."""
