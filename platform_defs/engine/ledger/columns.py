"""An in-memory column, to which values can be appended cheaply."""

from collections.abc import Iterator, Sequence
from typing import Any, overload

import pyarrow as pa
import pyarrow.compute

pc: Any = pyarrow.compute
"""Arrow's compute functions, without types: they are generated on import, so that a type checker does not know them."""

_LONGEST = 4_096
"""Chunks are joined up to this length."""


class Column(Sequence[Any]):
    """An immutable column of one Arrow type.

    Appending makes a new column that shares the chunks of the old one. Short chunks are joined, so that there are few of them; long
    chunks are not, so that values are not copied often.

    Args:
        kind: the type.
        chunks: the values.
    """

    def __init__(self, kind: pa.DataType, chunks: Sequence[pa.Array] = ()) -> None:
        self._data = pa.chunked_array(list(chunks), kind)

    def extended(self, values: pa.Array | pa.ChunkedArray) -> "Column":
        """The column with more values at its end."""
        more = values.chunks if isinstance(values, pa.ChunkedArray) else [values]
        chunks = [c for c in [*self._data.chunks, *more] if len(c)]
        while len(chunks) > 1 and len(chunks[-2]) <= 2 * len(chunks[-1]) and len(chunks[-2]) + len(chunks[-1]) <= _LONGEST:
            chunks[-2:] = [pa.concat_arrays(chunks[-2:])]
        return Column(self._data.type, chunks)

    def between(self, first: int, end: int | None = None) -> pa.ChunkedArray:
        """The values at `first <= index < end`."""
        return self._data.slice(first, None if end is None else max(0, end - first))

    def count_upto(self, value: Any) -> int:
        """The number of values up to `value`, in an ascending column."""
        low, high = 0, len(self)
        while low < high:
            middle = (low + high) // 2
            low, high = (middle + 1, high) if self[middle] <= value else (low, middle)
        return low

    def __len__(self) -> int:
        return len(self._data)

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> list[Any]: ...
    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return self._data.to_pylist()[index] if index.step else self._sliced(index)
        return self._data[index].as_py()

    def _sliced(self, index: slice) -> list[Any]:
        first, end, _ = index.indices(len(self))
        return self.between(first, end).to_pylist()

    def __iter__(self) -> Iterator[Any]:
        return iter(self._data.to_pylist())

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Column):
            return self._data.equals(other._data)
        return isinstance(other, Sequence) and list(self) == list(other)

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return f"Column({list(self)!r})"
