"""The error of the connections file. The engine catches this error, because a topic's secrets are read only when the engine connects."""

from operators.errors import TidemarkError

VARIABLE = "TIDEMARK_CONNECTIONS"


class ConnectionsError(TidemarkError, ValueError):
    """The connections file cannot be read or does not match its schema, or an environment variable that it needs has no legal value."""

    @classmethod
    def of(cls, file: str, reason: object) -> "ConnectionsError":
        """What is wrong with the file."""
        return cls(f"{VARIABLE} is {file!r}: {' '.join(str(reason).split())}")

    @classmethod
    def no_variable(cls, name: str) -> "ConnectionsError":
        """An environment variable that a value names is not set."""
        return cls(f"the connections read the environment variable {name}, which is not set or is empty; set it to the value of the option")

    @classmethod
    def bad_variable(cls, name: str, option: str, legal: str) -> "ConnectionsError":
        """An environment variable has a value that its option cannot have. The value may be secret, so it is not shown."""
        return cls(f"the environment variable {name} has a value that the option {option!r} of the connections cannot have; legal: {legal}")

    @classmethod
    def bad_endpoint(cls, legal: str) -> "ConnectionsError":
        """An environment variable gives an endpoint that is no URL."""
        return cls(
            f"the endpoint of S3, from an environment variable (`AWS_ENDPOINT_URL` or one that the file names), is no URL; legal: {legal}"
        )

    @classmethod
    def token_of_another_key(cls, name: str) -> "ConnectionsError":
        """The token of the environment would be sent with the access key of the file, to which it need not belong."""
        return cls(
            f"the part s3 of the connections gives `access_key` and no `session_token`, and the environment variable {name} is set: "
            f"deltalake would send that token with this key, and Spark would not. Legal: the key's own `session_token` beside the key in "
            f"the file, or `aws_session_token` if the key is in `options` (its value is {{env: {name}}} if the variable has the key's own "
            f"token); or no variable {name}"
        )
