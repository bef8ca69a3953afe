"""The inputs for which an asset waits, and which so determine its own watermark."""

from collections.abc import Callable
from hashlib import sha256

from assets.contracts import DerivedAsset
from platform_defs.engine.inputs.input import Input

MAX_KEY_LENGTH = 100_000
"""The maximum length of a key; a longer one is replaced by its hash, since the length can grow exponentially with the number of tables."""


def awaited_inputs(asset: DerivedAsset) -> list[str]:
    """The inputs whose watermarks determine an asset's own."""
    return [name for index, name in enumerate(asset.inputs) if not asset.operator.reads.is_by_arrival(index)]


def watermark_key(asset: DerivedAsset, input_named: Callable[[str], Input]) -> str:
    """A key that is equal for assets whose watermarks have the same inputs and delays. Table names are not part of it.

    Args:
        asset: the asset.
        input_named: returns the source or the table of a name.
    """
    return _watermark_key(asset, input_named, {})


def late_key(asset: DerivedAsset, table: DerivedAsset, input_named: Callable[[str], Input]) -> str:
    """The key of the late results of `table` for its reader `asset`."""
    keys: dict[str, str] = {}
    return f"{_watermark_key(asset, input_named, keys)} < {_key_of(input_named(table.name), input_named, keys)}"


def _watermark_key(asset: DerivedAsset, input_named: Callable[[str], Input], keys: dict[str, str]) -> str:
    """The key of an asset, which is computed once: `keys` has those that are known, by the asset's name."""
    if asset.name not in keys:
        key = " ".join(sorted({_key_of(input_named(name), input_named, keys) for name in awaited_inputs(asset)}))
        keys[asset.name] = key if len(key) <= MAX_KEY_LENGTH else sha256(key.encode()).hexdigest()
    return keys[asset.name]


def _key_of(upstream: Input, input_named: Callable[[str], Input], keys: dict[str, str]) -> str:
    if upstream.table is None:
        return upstream.name
    delay, sources = upstream.table.operator.reads.watermark_delay, ",".join(sorted(upstream.sources))
    return f"({_watermark_key(upstream.table, input_named, keys)} -{delay} {sources})"
