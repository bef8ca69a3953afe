"""Which tables can be rebuilt day by day; needs no session."""

from datetime import date

from assets.contracts import DerivedAsset
from operators.steps import Append, NewRows
from platform_defs.engine.advance.advance import Advance
from platform_defs.engine.operations.rebuild import Rebuilt, rebuild_days
from tests.engine.advance.test_plan import ContractOnly

DAY = date(2026, 3, 1)


def test_days_of_a_table_that_neither_is_upserted_nor_closes_ranges_are_not_compared() -> None:
    asset = DerivedAsset(name="appended", inputs=("clicks",), operator=ContractOnly(NewRows(), Append(), ("clicks",)))
    rebuilt = rebuild_days(Advance(None, asset, 1), DAY, DAY)  # pyright: ignore[reportArgumentType]
    assert rebuilt == Rebuilt(DAY, DAY, is_compared=False)
