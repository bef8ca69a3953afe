"""The names of the session settings that Delta reads when a MERGE is committed."""

METADATA = "spark.databricks.delta.commitInfo.userMetadata"
APPLICATION_ID = "spark.databricks.delta.write.txnAppId"
NUMBER = "spark.databricks.delta.write.txnVersion"
SOURCE = "spark.databricks.delta.merge.materializeSource"
VECTORS = "spark.databricks.delta.merge.deletionVectors.persistent"
COMMIT_SETTINGS = (METADATA, APPLICATION_ID, NUMBER, SOURCE, VECTORS)
"""The settings that apply to one commit, and are removed after it."""
