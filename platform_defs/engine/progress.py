"""An asset's progress: committed with its rows, in one Delta commit, and read back from there."""

import dataclasses
import importlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from typing import Any

from assets.contracts import DerivedAsset
from operators.contract import ASIDE, Operator, Upsert
from platform_defs.resources.lake import Lake

Corrected = tuple[int, int, int]
"""A step, and the first and the last `final_at` of the closed results that it changed, in epoch ms."""

PROGRESS = "progress"
_MAPPING = "mapping"


class ProgressError(RuntimeError):
    """An asset cannot go on from where it stands."""

    @classmethod
    def other_operator(cls, asset: str, stored: str, wanted: str) -> "ProgressError":
        """The table was made by an operator with other parameters."""
        return cls(
            f"{asset} was made with {stored}, and the settings now say {wanted}; rows of both in one table would mean nothing. "
            "Use the settings it was made with, or another lake (TIDEMARK_LAKE), "
            "or delete the table (one that upserts with its changelog) and advance again: the log holds all that is needed"
        )

    @classmethod
    def lost_changelog(cls, asset: str, changelog: str, step: int) -> "ProgressError":
        """A table is there without the changelog that it was folded from."""
        return cls(
            f"{asset} holds what its changelog told up to step {step}, and {changelog} is not there. "
            f"Delete {asset} too, and advance again: the log holds all that is needed"
        )

    @classmethod
    def made_anew(cls, table: str, read: int, step: int) -> "ProgressError":
        """What was made of a table has read more of it than there is."""
        return cls(
            f"{table} was read up to its step {read}, and stands at step {step}: it was made anew since. "
            "Delete what was made of it too, and advance again; publish it into a new folder"
        )


@dataclass(frozen=True)
class Progress:
    """How far an asset has come.

    Args:
        step: the number of its commits of results.
        seq: the ledger entry up to which rows were handled.
        closed_to: the watermark up to which results are closed, in epoch ms; None before the first.
        operator: what made the table, as `describe` tells it.
        read: by derived input, the step of it up to which its corrections were followed.
        corrected: what steps of this asset changed in results that were closed before; the oldest are told together.
    """

    step: int = 0
    seq: int = 0
    closed_to: int | None = None
    operator: str | None = None
    read: Mapping[str, int] = field(default_factory=dict)
    corrected: tuple[Corrected, ...] = ()

    def metadata(self) -> dict[str, Any]:
        """What the commit remembers."""
        return {PROGRESS: asdict(self)}

    @classmethod
    def told(cls, metadata: Mapping[str, Any]) -> "Progress":
        """The progress that a commit remembers."""
        corrected = tuple((step, first, last) for step, first, last in metadata.get("corrected", ()))
        return cls(**{**metadata, "corrected": corrected})


def progress(lake: Lake, asset: DerivedAsset) -> Progress:
    """How far an asset has come, from its own commits.

    Raises:
        ProgressError: the table was made by another operator.
    """
    found = stored_progress(lake, asset)
    wanted = describe(asset.operator)
    if found.operator is not None and found.operator != wanted:
        raise ProgressError.other_operator(asset.name, found.operator, wanted)
    return found


def stored_progress(lake: Lake, asset: DerivedAsset) -> Progress:
    """How far an asset has come, whatever operator made it."""
    commit = lake.newest(results_table(asset), PROGRESS)
    return Progress() if commit is None else Progress.told(commit.value)


def rows_committed(lake: Lake, asset: DerivedAsset) -> int:
    """How many rows an asset's newest step wrote: results, or changes."""
    commit = lake.newest(results_table(asset), PROGRESS)
    return 0 if commit is None else commit.rows


def results_table(asset: DerivedAsset) -> str:
    """The table whose commits are the asset's commit points."""
    return asset.changelog if isinstance(asset.operator.emits, Upsert) else asset.name


def describe(operator: Operator) -> str:
    """An operator as text from which `restore` makes it again: its class and its parameters."""
    return json.dumps(_parts(operator), default=_parts)


def restore(described: str) -> Operator:
    """The operator that a table was made with."""
    return json.loads(described, object_hook=_made)


def _parts(value: Any) -> Any:
    """What JSON cannot tell: an operator, or a value it is made of, as class and parameters; a timedelta as words."""
    if isinstance(value, timedelta):
        return f"{value // timedelta(milliseconds=1)} ms"
    kind = type(value)
    if isinstance(value, Mapping):
        return {"type": _MAPPING, "items": list(value.items())}
    parameters = (
        {f.name: _told(getattr(value, f.name)) for f in dataclasses.fields(value) if f.init and ASIDE not in f.metadata}
        if dataclasses.is_dataclass(value)
        else {}
    )
    return {"type": f"{kind.__module__}:{kind.__qualname__}", **parameters}


def _told(value: Any) -> Any:
    """A parameter's value; JSON would tell a mapping by itself, and nothing would tell it from an operator when it is read."""
    return _parts(value) if isinstance(value, Mapping) else value


def _made(parts: dict[str, Any]) -> Any:
    parameters = {name: tuple(value) if isinstance(value, list) else value for name, value in parts.items() if name != "type"}
    if parts["type"] == _MAPPING:
        return dict(parameters["items"])
    module, _, name = str(parts["type"]).partition(":")
    return getattr(importlib.import_module(module), name)(**parameters)
