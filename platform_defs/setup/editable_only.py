"""A build hook of hatchling that refuses to build a wheel."""

from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

EDITABLE = "editable"


class EditableOnly(BuildHookInterface):
    """Refuse every build of a wheel except the one of an editable installation.

    A wheel would install packages named `assets`, `operators` and `expectations` next to those of all other projects, and would look
    for the lake and the JARs inside site-packages.
    """

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Raise an error unless the installation is editable.

        Raises:
            RuntimeError: the build is for a wheel that contains the packages.
        """
        if version != EDITABLE:
            raise RuntimeError(
                f"tidemark is not built as a wheel (version {version!r}), because its packages have general names: `assets`, `operators`, "
                "`expectations`, `platform_defs`. Legal: an editable installation, by `make setup` or `pip install --editable FOLDER`"
            )
