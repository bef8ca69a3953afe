"""YAML text as plain data, with fewer conversions than YAML 1.2 has, and no key that is given twice.

Only `true`, `false`, `null`, `~`, an empty value and decimal numbers are converted. All else is text: `on`, `no`, `10:30`, `010` and dates,
as in YAML 1.2, and also `True`, `NULL`, `0x1F`, `0o17`, `.inf` and `.nan`. A value with a tag, such as `!!set`, has the type of the tag.
"""

import re
from typing import Any

import yaml

_TYPES = {
    "bool": (r"true|false", "tf"),
    "int": (r"[-+]?(0|[1-9][0-9]*)", "-+0123456789"),
    "float": (r"[-+]?([0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?=[eE]))([eE][-+]?[0-9]+)?", "-+0123456789."),
    "null": (r"~|null", "~n"),
}


class _Loader(yaml.SafeLoader):
    yaml_implicit_resolvers: dict[str, Any] = {}

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        """A mapping, unless a key is given twice."""
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        for number, key in enumerate(keys):
            if key in keys[:number]:
                raise yaml.constructor.ConstructorError(None, None, f"the key {key!r} is given twice", node.value[number][0].start_mark)
        return super().construct_mapping(node, deep)


for _name, (_pattern, _first) in _TYPES.items():
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_name}", re.compile(rf"(?:{_pattern})\Z"), [*_first])
_Loader.add_implicit_resolver("tag:yaml.org,2002:null", re.compile(r"\Z"), [""])


def parse(text: str) -> Any:
    """The data of one YAML document.

    Raises:
        yaml.YAMLError: the text is not one YAML document, a key is given twice, or a value does not have the type of its tag.
    """
    try:
        return yaml.load(text, _Loader)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:  # of PyYAML; texts may quote a password
        raise yaml.YAMLError("a value does not have the type of its tag, or is a number with too many digits") from error
