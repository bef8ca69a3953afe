"""Removes the default that Griffe gives to a parameter such as `*frames`: pages would show it as `()`."""

from typing import Any

import griffe


class Variadics(griffe.Extension):
    """Leaves variadic parameters without a default."""

    def on_function(self, *, func: griffe.Function, **_: Any) -> None:
        """Change the parameters of a function."""
        for parameter in func.parameters:
            if parameter.kind is griffe.ParameterKind.var_positional:
                parameter.default = None
