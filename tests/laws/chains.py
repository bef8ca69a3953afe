"""The tables of `test_composition` by the naive model: the compared columns of each table, and its rows, computed from its inputs' rows."""

from typing import Any

from tests.support.composition_model import Row, Stream, Table, grouped, in_window, joined, ranked, window, within
from tests.support.small_sources import MINUTE, START

TWO, FIVE = 2 * MINUTE, 5 * MINUTE
OF_WINDOWS, OF_JOIN = 10 * MINUTE, 5 * MINUTE
"""The allowed lateness of `windows` and of `pairs`."""


def _ms(column: str) -> str:
    return f"unix_millis({column}) - {START} AS {column}"


COLUMNS = {
    "windows": ["k", "n", "s", _ms("window_start")],
    "by_count": ["k", "n", "windows"],
    "top_windows": ["k", "rank", "n"],
    "latest_window": ["k", "n", "s", _ms("window_start")],
    "counts": ["k", "v", "n", _ms("event_time")],
    "sums": ["k", "m", _ms("window_start")],
    "best": ["k", "best", _ms("event_time")],
    "of_best": ["of_case", "keys", "best", _ms("window_start")],
    "pairs": ["k", "left_v", "right_v", _ms("result_time")],
    "pair_windows": ["k", "both", "alone", "results", _ms("window_start")],
    "best_windows": ["k", "rank", "both", "alone", _ms("window_start")],
    "ranks": ["of_case", "rank", "keys", "both"],
    "paired": ["k", "n", _ms("event_time")],
    "top_paired": ["of_case", "rank", "n"],
    "last": ["k", _ms("event_time")],
    "met": ["k", "left_v", "n", "right_v", _ms("window_start")],
    "last_met": ["k", _ms("window_start")],
    "starts": ["of_case", _ms("start"), "keys"],
}
"""The columns of each table that are compared. Columns that depend on the order of ties are left out where nothing determines it."""
ALWAYS_ADVANCED = ["windows", "by_count", "counts", "sums", "pairs", "pair_windows", "best_windows", "ranks"]
"""The tables that the test advances after each batch; those that read tables after each but the first."""


def expected(stream: Stream) -> dict[str, list[tuple[Any, ...]]]:
    """The rows of each table that has handled every batch."""
    found = _of_windows(stream) | _of_counts(stream) | _of_pairs(stream)
    found |= _of_met(stream, found["counts"], found["last"])
    names = {name: [column.rpartition(" ")[2] for column in columns] for name, columns in COLUMNS.items()}
    return {name: sorted((tuple(row[c] for c in names[name]) for row in rows), key=repr) for name, rows in found.items()}


def _of_windows(stream: Stream) -> dict[str, Table]:
    """Windowed aggregates that late rows correct, and the tables over them."""
    last_mark = TWO - 2 + OF_WINDOWS  # after a window's start: `end - 1 + lateness <= watermark` is late
    read = [{"k": row.k, "v": row.v, "at": row.at} for row in stream.rows["l"] if not row.is_late(row.at // TWO * TWO + last_mark, "l")]
    windows = [
        key | {"n": len(rows), "s": sum(row["v"] for row in rows), "window_start": key["start"]}
        for key, rows in window(TWO, read, ["k"], stream.mark("l"))
    ]
    return {
        "windows": windows,
        "by_count": [key | {"windows": len(rows)} for key, rows in grouped(windows, ["k", "n"])],
        "top_windows": ranked(windows, ["k"], lambda row: -row["n"], 2),
        "latest_window": [max(rows, key=lambda row: row["at"]) for _, rows in grouped(windows, ["k"])],
    }


def _of_counts(stream: Stream) -> dict[str, Table]:
    """An aggregate, windows of its current rows, an aggregate of these windows, windows of this aggregate; and the last rows of `r`."""
    read = [{"k": row.k, "v": row.v, "at": row.at} for row in stream.rows["l"]]
    counts = [key | _newest(rows) | {"n": len(rows)} for key, rows in grouped(read, ["k", "v"])]
    sums = [
        key | {"m": sum(row["n"] for row in rows), "window_start": key["start"]}
        for key, rows in window(FIVE, counts, ["k"], stream.mark("l"))
    ]
    best = [
        key | {"best": max(row["m"] for row in rows), "at": min(row["at"] for row in rows), "event_time": min(row["at"] for row in rows)}
        for key, rows in grouped(sums, ["k"])
        if max(row["m"] for row in rows) != 3
    ]
    of_best = [
        key | {"keys": len(rows), "best": max(row["best"] for row in rows), "window_start": key["start"]}
        for key, rows in window(TWO, _with_case(best), ["of_case"], stream.mark("l"))
    ]
    last = [key | _newest(rows) for key, rows in grouped([{"k": row.k, "v": row.v, "at": row.at} for row in stream.rows["r"]], ["k"])]
    return {"counts": counts, "sums": sums, "best": best, "of_best": of_best, "last": last}


def _newest(rows: Table) -> Row:
    """The last row by event time; of several rows at that time, the last to arrive."""
    newest = max(reversed(rows), key=lambda row: row["at"])
    return {**newest, "event_time": newest["at"]}


def _with_case(rows: Table) -> Table:
    return [row | {"of_case": row["k"] and row["k"].partition("-")[0]} for row in rows]


def _of_pairs(stream: Stream) -> dict[str, Table]:
    """An outer join that late rows correct, windows of its results, their ranking, and an aggregate of the ranks."""
    sides = [
        [{"k": row.k, "v": row.v, "at": row.at} for row in stream.rows[name] if not row.is_late(row.at + OF_JOIN, "l", "r")]
        for name in ("l", "r")
    ]
    results = [row for row in joined(*sides, *within(-2 * MINUTE, 3 * MINUTE)) if row["at"] + 1 <= stream.mark("l", "r")]
    pairs = [_named(row) | {"result_time": row["at"]} for row in results]
    closed = window(TWO, pairs, ["k"], stream.mark("l", "r") - 1)  # results of the join are final 1 ms after their time
    windows = [row for row in (_counted(*found) for found in closed) if row["results"] != 4]
    best = ranked(windows, ["k"], lambda row: (-row["both"], row["alone"], row["start"]), 2)
    paired = [key | {"n": len(rows), "event_time": max(row["at"] for row in rows)} for key, rows in grouped(filter(_is_pair, pairs), ["k"])]
    return {
        "pairs": pairs,
        "pair_windows": windows,
        "best_windows": best,
        "ranks": [
            key | {"keys": len(rows), "both": sum(row["both"] for row in rows)}
            for key, rows in grouped(_with_case(best), ["of_case", "rank"])
        ],
        "paired": paired,
        "top_paired": ranked(_with_case(paired), ["of_case"], lambda row: -row["n"], 2),
    }


def _of_met(stream: Stream, counts: Table, last: Table) -> dict[str, Table]:
    """A window join of two upserted tables, the last result of each key, and the number of keys by window."""
    results = [row for row in joined(counts, last, *in_window(FIVE)) if row["at"] <= stream.mark("l", "r")]
    met = [_named(row) | {"n": (row["left"] or {}).get("n"), "window_start": row["at"] + 1 - FIVE} for row in results]
    last_met = [max(rows, key=lambda row: row["at"]) for _, rows in grouped(met, ["k"])]
    by_start = grouped(_with_case(last_met), ["of_case", "window_start"])
    starts = [{"of_case": key["of_case"], "start": key["window_start"], "keys": len(rows)} for key, rows in by_start]
    return {"met": met, "last_met": last_met, "starts": starts}


def _named(row: Row) -> Row:
    return row | {"left_v": (row["left"] or {}).get("v"), "right_v": (row["right"] or {}).get("v")}


def _counted(key: Row, rows: Table) -> Row:
    both = sum(map(_is_pair, rows))
    return key | {"both": both, "alone": len(rows) - both, "results": len(rows), "window_start": key["start"]}


def _is_pair(row: Row) -> bool:
    return row["left"] is not None and row["right"] is not None
