"""The settings of the platform: what they are, which values are legal, and the only module that reads the environment."""

from platform_defs.settings.environment import (
    HOME,
    Settings,
    SettingsError,
    environment_value,
    is_set,
    settings,
    unknown_variables,
)
from platform_defs.settings.values import PROJECT

__all__ = ["HOME", "PROJECT", "Settings", "SettingsError", "environment_value", "is_set", "settings", "unknown_variables"]
