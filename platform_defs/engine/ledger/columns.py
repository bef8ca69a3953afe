"""An in-memory column, to which values can be appended cheaply."""

from collections.abc import Iterator, Sequence
from typing import Any, overload

import pyarrow as pa
import pyarrow.compute

from platform_defs.engine.ledger.arrow_values import arrow_scalar

pc: Any = pyarrow.compute
"""Arrow's compute functions, without types: they are generated on import, so that a type checker does not know them."""

_LONGEST_CHUNK = 4_096
"""Chunks are joined up to this length."""


class Column(Sequence[Any]):
    """An immutable column of one Arrow type.

    Appending makes a new column that shares the chunks of the old one. Short chunks are joined, so that there are few of them; long
    chunks are not, so that values are not copied often.

    Args:
        kind: the type.
        chunks: the values.
        before: the number of values before them that are not stored; each of these is `filler`.
        filler: the value in place of each value that is not stored.
    """

    def __init__(self, kind: pa.DataType, chunks: Sequence[pa.Array] = (), before: int = 0, filler: Any = None) -> None:
        self._data = pa.chunked_array(list(chunks), kind)
        self._before, self._filler = before, filler

    def with_values(self, values: pa.Array | pa.ChunkedArray) -> "Column":
        """The column with more values at its end."""
        added_chunks = values.chunks if isinstance(values, pa.ChunkedArray) else [values]
        chunks = [c for c in [*self._data.chunks, *added_chunks] if len(c)]
        while len(chunks) > 1 and len(chunks[-2]) <= 2 * len(chunks[-1]) and len(chunks[-2]) + len(chunks[-1]) <= _LONGEST_CHUNK:
            chunks[-2:] = [pa.concat_arrays(chunks[-2:])]
        return Column(self._data.type, chunks, self._before, self._filler)

    def between(self, first: int, end: int | None = None) -> pa.ChunkedArray:
        """The values at `first <= index < end`."""
        first_stored = max(0, first - self._before)
        values = self._data.slice(first_stored, None if end is None else max(0, end - self._before - first_stored))
        fillers = min(self._before, len(self) if end is None else end) - first
        if fillers <= 0:
            return values
        nulls = pa.nulls(fillers, values.type)
        filled = nulls if self._filler is None else pc.fill_null(nulls, arrow_scalar(self._filler, values.type))
        return pa.chunked_array([filled, *values.chunks], values.type)

    def count_upto(self, value: Any) -> int:
        """The number of values up to `value`, in an ascending column."""
        low, high = 0, len(self)
        while low < high:
            middle = (low + high) // 2
            low, high = (middle + 1, high) if self[middle] <= value else (low, middle)
        return low

    def __len__(self) -> int:
        return self._before + len(self._data)

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> list[Any]: ...
    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return [*self][index] if index.step else self._slice_values(index)
        index = range(len(self))[index]
        return self._filler if index < self._before else self._data[index - self._before].as_py()

    def _slice_values(self, index: slice) -> list[Any]:
        first, end, _ = index.indices(len(self))
        return self.between(first, end).to_pylist()

    def __iter__(self) -> Iterator[Any]:
        return iter(self.between(0).to_pylist())

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Column):
            return self.between(0).equals(other.between(0))
        return isinstance(other, Sequence) and list(self) == list(other)

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return f"Column({list(self)!r})"
