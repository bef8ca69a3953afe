"""Converts Python values to Arrow arrays and scalars, without pandas, and casts arrays.

`pyarrow.array` and `pyarrow.scalar` load pandas if it is installed, and so does an Arrow function with a Python value as an operand. That
takes longer than opening a ledger. This module writes the buffers of an array itself.
"""

from array import array
from collections.abc import Sequence
from itertools import accumulate

import numpy as np
import pyarrow as pa


def arrow_array(values: Sequence[int | bool | str | None], kind: pa.DataType) -> pa.Array:
    """An array of whole numbers of 32 or 64 bits, of booleans, or of texts."""
    if isinstance(values, range) and values:
        return pa.arange(values.start, values.stop, values.step).cast(kind)
    is_valid = [value is not None for value in values]
    return pa.Array.from_buffers(kind, len(is_valid), [None if all(is_valid) else _bit_buffer(is_valid), *_value_buffers(values, kind)])


def arrow_scalar(value: int | bool | str | None, kind: pa.DataType) -> pa.Scalar:
    """A scalar of a type that `arrow_array` knows."""
    return arrow_array([value], kind)[0]


def cast_values(values: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """The values with another type. Values that have it already are returned: a cast would compute them again."""
    return values if values.type == kind else values.cast(kind)


def _value_buffers(values: Sequence[int | bool | str | None], kind: pa.DataType) -> list[pa.Buffer]:
    if pa.types.is_boolean(kind):
        return [_bit_buffer([bool(value) for value in values])]
    if pa.types.is_string(kind):
        texts = [str(value or "").encode() for value in values]
        return [pa.py_buffer(array("i", accumulate(map(len, texts), initial=0))), pa.py_buffer(b"".join(texts))]
    return [pa.py_buffer(array("i" if kind == pa.int32() else "q", [int(value or 0) for value in values]))]


def _bit_buffer(values: Sequence[bool]) -> pa.Buffer:
    return pa.py_buffer(np.packbits(np.asarray(values, bool), bitorder="little"))
