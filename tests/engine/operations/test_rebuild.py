"""Which tables can be rebuilt day by day; needs no session."""

from datetime import date

import pytest

from assets.contracts import DerivedAsset
from operators.steps import Append, NewRows
from platform_defs.engine.advance.advance import Advance
from platform_defs.engine.inputs.progress_errors import ProgressError
from platform_defs.engine.operations.rebuild import rebuild_days
from tests.engine.advance.test_plan import ContractOnly

DAY = date(2026, 3, 1)


def test_days_of_a_table_that_cannot_be_compared_are_refused() -> None:
    asset = DerivedAsset(name="appended", inputs=("clicks",), operator=ContractOnly(NewRows(), Append(), ("clicks",)))
    with pytest.raises(ProgressError, match=r"appended has no changelog and no `final_at`.* Run `tidemark rebuild appended --downstream`"):
        rebuild_days(Advance(None, asset, 1), DAY, DAY)  # pyright: ignore[reportArgumentType]
