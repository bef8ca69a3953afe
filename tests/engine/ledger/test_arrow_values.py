"""Arrow arrays made without pandas equal those that Arrow makes, and a status loads no pandas."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from benchmarks.ledger_age import make
from platform_defs.engine.ledger.arrow_values import arrow_array, arrow_scalar

ARRAYS = [
    ([], pa.int64()),
    ([], pa.bool_()),
    ([], pa.string()),
    (range(0), pa.int32()),
    (range(3, 40), pa.int32()),
    (range(5, -1, -1), pa.int64()),
    ([-(1 << 63), None, (1 << 63) - 1], pa.int64()),
    ([None], pa.int32()),
    ([n % 3 == 0 for n in range(20)], pa.bool_()),
    ([None if n % 5 == 0 else n % 3 == 0 for n in range(20)], pa.bool_()),
    (["watermark", "", None, "ü"], pa.string()),
]


@pytest.mark.parametrize(("values", "kind"), ARRAYS)
def test_an_array_equals_that_of_arrow(values: Any, kind: pa.DataType) -> None:
    found = arrow_array(values, kind)
    found.validate(full=True)
    assert found.type == kind
    assert found.equals(pa.array(values, kind))


SCALARS = [(7, pa.int32()), (None, pa.int64()), (True, pa.bool_()), (None, pa.bool_()), ("a", pa.string())]


@pytest.mark.parametrize(("value", "kind"), SCALARS)
def test_a_scalar_equals_that_of_arrow(value: Any, kind: pa.DataType) -> None:
    assert arrow_scalar(value, kind).equals(pa.scalar(value, kind))


@pytest.mark.parametrize("value", [1 << 63, 1 << 31])
def test_a_number_that_its_type_cannot_hold_is_an_error(value: int) -> None:
    with pytest.raises(OverflowError, match="int"):
        arrow_scalar(value, pa.int64() if value > 1 << 32 else pa.int32())


def test_a_status_loads_no_pandas(tmp_path: Path) -> None:
    """Loading it takes longer than everything that the status reads."""
    make(tmp_path, 50)
    code = (
        "import gc; gc.disable(); import os, sys; from platform_defs.cli.main import main; sys.argv[1:] = ['status']; main(); "
        "assert 'pandas' not in sys.modules; sys.stdout.flush(); os._exit(0)"  # collecting and freeing objects takes time
    )
    environment = {**os.environ, "TIDEMARK_LAKE": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "50 ledger batches" in done.stdout
