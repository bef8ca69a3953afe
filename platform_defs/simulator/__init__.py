"""Simulates a shop for a day and some hours: orders, their items, payments and updates, and clicks.

Some rows are late, duplicate or invalid. Equal `Shop` values always give equal lines. Times are whole milliseconds since the epoch.
The arrival of a line is the time at which it reaches the platform; it only decides which file the line is in.

The module `olist` lands real rows for the same tables.
"""

from platform_defs.simulator.day import drop, land, simulate
from platform_defs.simulator.shop import HOUR, MINUTE, QUARANTINED, SOURCES, ExpectedCounts, Kind, Shop, ShopDay, Source

__all__ = ["HOUR", "MINUTE", "QUARANTINED", "SOURCES", "ExpectedCounts", "Kind", "Shop", "ShopDay", "Source", "drop", "land", "simulate"]
