"""The inputs for which an asset waits, and which so determine its own watermark."""

from collections.abc import Callable

from assets.contracts import DerivedAsset
from platform_defs.engine.inputs.input import Input


def awaited_inputs(asset: DerivedAsset) -> list[str]:
    """The inputs whose watermarks determine an asset's own."""
    return [name for index, name in enumerate(asset.inputs) if not asset.operator.reads.is_by_arrival(index)]


def watermark_key(asset: DerivedAsset, input_named: Callable[[str], Input]) -> str:
    """A key that is equal for assets whose watermarks have the same inputs and delays. Table names are not part of it.

    Args:
        asset: the asset.
        input_named: returns the source or the table of a name.
    """
    return " ".join(sorted({_key_of(input_named(name), input_named) for name in awaited_inputs(asset)}))


def late_key(asset: DerivedAsset, table: DerivedAsset, input_named: Callable[[str], Input]) -> str:
    """The key of the late results of `table` for its reader `asset`."""
    return f"{watermark_key(asset, input_named)} < {_key_of(input_named(table.name), input_named)}"


def _key_of(upstream: Input, input_named: Callable[[str], Input]) -> str:
    if upstream.table is None:
        return upstream.name
    delay, sources = upstream.table.operator.reads.watermark_delay, ",".join(sorted(upstream.sources))
    return f"({watermark_key(upstream.table, input_named)} -{delay} {sources})"
