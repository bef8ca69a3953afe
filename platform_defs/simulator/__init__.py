"""Simulates a shop: orders, items, payments and clicks of a little more than a day, with late, duplicate and invalid rows.

Equal `Shop` values always give equal lines. Times are whole milliseconds since the epoch. `arrival` is the time at which a line
reaches the platform; it only decides which file the line is in.
"""

from platform_defs.simulator.day import drop, land, simulate
from platform_defs.simulator.shop import HOUR, MINUTE, QUARANTINED, SOURCES, Kind, Shop, ShopDay, Source, Truth

__all__ = ["HOUR", "MINUTE", "QUARANTINED", "SOURCES", "Kind", "Shop", "ShopDay", "Source", "Truth", "drop", "land", "simulate"]
