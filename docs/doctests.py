"""Fences the examples of docstrings: Markdown would read `>>>` as a quotation."""

import re
from typing import Any

import griffe

_EXAMPLE = re.compile(r"^(?P<indent> *)>>> .*\n?(?:(?P=indent)\S.*\n?)*", re.MULTILINE)


class Doctests(griffe.Extension):
    """Puts each run of `>>>` lines and their output into a fenced block."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Change the docstring of an object."""
        if obj.docstring is not None and ">>>" in obj.docstring.value:
            obj.docstring.value = _EXAMPLE.sub(_fenced, obj.docstring.value)


def _fenced(example: re.Match[str]) -> str:
    return f"{example['indent']}```pycon\n{example[0].rstrip()}\n{example['indent']}```\n"
