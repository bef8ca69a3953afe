"""SQL functions whose value depends on more than the row, by the reason, in lower case.

Results are computed again and compared, so an aggregate or the preparation of an input that calls one of them is refused.
"""

CHANCE = frozenset({"rand", "randn", "random", "randstr", "uniform", "uuid", "shuffle", "aes_encrypt", "try_aes_encrypt"})
"""Functions of random numbers; encryption begins with a random vector."""
CLOCK = frozenset(
    {"now", "current_timestamp", "current_date", "current_time", "curdate", "getdate", "localtimestamp", "localtime", "current_timezone"}
)
"""Functions of the time of the query."""
FILES = frozenset(
    {"input_file_name", "input_file_block_start", "input_file_block_length", "monotonically_increasing_id", "spark_partition_id"}
)
"""Functions of how Spark reads rows."""
SESSION = frozenset({"user", "session_user", "current_user", "version", "reflect", "try_reflect", "java_method"})
"""Functions of the process and its user."""
