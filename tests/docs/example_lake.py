"""A small lake with tables of the shop's names, which pages read."""

import shutil
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from assets.contracts import DerivedAsset, RowRule, SourceContract
from assets.pipeline import Pipeline
from operators import EveryStep, TopK, TopN, Tumbling, WindowedAggregate
from platform_defs.configured_engine import make_engine
from platform_defs.engine import Engine
from platform_defs.settings import Settings
from tests.support.kills import run_and_die

WINDOW = Tumbling(size="1 hour")
SOLD = {"units": "sum(quantity)", "revenue": "sum(price * quantity)"}
pipeline = Pipeline(
    sources=[
        SourceContract(
            name="order_items",
            schema="item_id STRING, category STRING, seller_id STRING, price DECIMAL(8,2), quantity INT, sold_at TIMESTAMP",
            event_time="sold_at",
            rules=(RowRule("price_is_positive", "price > 0"),),
        ),
        SourceContract(name="orders", schema="order_id STRING, ordered_at TIMESTAMP", event_time="ordered_at"),
    ],
    tables=[
        DerivedAsset(
            name="item_sales",
            inputs=("order_items",),
            operator=WindowedAggregate(by=("item_id", "category"), window=WINDOW, aggregates=SOLD, early=EveryStep()),
        ),
        DerivedAsset(name="hot_items", inputs=("item_sales",), operator=TopK(k=2, order_by="units DESC")),
        DerivedAsset(name="category_leaderboard", inputs=("order_items",), operator=TopN(by="category", order_by="price DESC", rank_end=2)),
    ],
)
_ITEMS = """item_id,category,seller_id,price,quantity,sold_at
bread,food,s1,3.50,2,2026-03-01T08:10:00Z
jam,food,s2,4.20,5,2026-03-01T08:20:00Z
lamp,home,s1,29.00,1,2026-03-01T08:30:00Z
lamp,home,s1,-1.00,1,2026-03-01T08:40:00Z
bread,food,s1,3.50,4,2026-03-01T09:10:00Z
"""
_MORE = """item_id,category,seller_id,price,quantity,sold_at
honey,food,s2,9.90,1,2026-03-01T09:50:00Z
bread,food,s1,3.50,1,2026-03-01T10:05:00Z
"""
_ORDERS = "order_id,ordered_at\n{},2026-03-01T08:00:00Z\n"


def make_lake(root: str = ".tidemark/demo") -> None:
    """Make the lake in a folder: a copy of the one that the first page of this process makes."""
    shutil.copytree(Path(_first_lake().name) / "lake", root)


@cache
def _first_lake() -> TemporaryDirectory[str]:
    """A folder with the lake of two ingests. The log of orders also has a row of a third, which was killed before the ledger's commit."""
    folder = TemporaryDirectory()
    engine = make_engine(Settings(lake=f"{folder.name}/lake", landing=f"{folder.name}/landing"), pipeline)
    for number, items in enumerate((_ITEMS, _MORE)):
        _land(engine, "order_items", f"{number}.csv", items)
        _land(engine, "orders", f"{number}.csv", _ORDERS.format(f"order {number}"))
        engine.ingest()
        for name in engine.assets:
            engine.advance(name)
    _land(engine, "orders", "killed.csv", _ORDERS.format("of a killed ingest"))
    run_and_die(engine.ingest, "ingest.before_ledger")
    return folder


def _land(engine: Engine, source: str, name: str, text: str) -> None:
    folder = Path(engine.folders[source])
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text)
