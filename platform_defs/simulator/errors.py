"""The errors of the simulator."""

from operators.errors import TidemarkError


class ShopError(TidemarkError, ValueError):
    """A parameter of a simulated day is not legal."""

    @classmethod
    def bad_value(cls, parameter: str, value: object, legal: str) -> "ShopError":
        """`parameter` has a value that is not legal."""
        return cls(f"`{parameter}` is {value!r}; legal: {legal}")


class InputExistsError(TidemarkError, FileExistsError):
    """The file to be written exists already, with other content."""
