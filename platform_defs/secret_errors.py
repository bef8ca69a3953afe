"""The error of a secret that is not set. The engine handles it for one source or table, so that the others go on."""

from operators.errors import TidemarkError


class SecretError(TidemarkError):
    """A secret value of the connections cannot be read."""

    @classmethod
    def not_set(cls, variable: str) -> "SecretError":
        """An environment variable that a value names is not set."""
        return cls(
            f"the connections read the environment variable {variable}, which is not set or is empty; set it to the value of the option"
        )
