"""A seeded shop: orders, their items, payments and clicks of one day and a bit, with every trouble a real source brings.

The same `Shop` always gives the same lines. Times are whole milliseconds since the epoch; `arrival` is the moment a line
reaches the platform, and only decides which file it lands in.
"""

from platform_defs.simulator.day import drop, land, simulate
from platform_defs.simulator.shop import HOUR, MINUTE, QUARANTINED, SOURCES, Kind, Shop, ShopDay, Source, Truth

__all__ = ["HOUR", "MINUTE", "QUARANTINED", "SOURCES", "Kind", "Shop", "ShopDay", "Source", "Truth", "drop", "land", "simulate"]
