"""What a deployment connects to: Kafka, S3, further Spark options and JARs."""

from platform_defs.connections.file import HADOOP, Connections, connections, read
from platform_defs.engine.formats.connection_errors import ConnectionsError

__all__ = ["HADOOP", "Connections", "ConnectionsError", "connections", "read"]
