"""Markdown tables, and the numbers in them."""

from collections.abc import Iterable, Mapping, Sequence

NOT_MEASURED = "Not measured."


def table(header: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """A Markdown table, or a sentence if it has no lines."""
    body = ["| " + " | ".join(line) + " |" for line in lines]
    rule = "|".join(["---", *["---:"] * (len(header) - 1)])
    return "\n".join([f"| {' | '.join(header)} |", f"|{rule}|", *body]) if body else NOT_MEASURED


def joined_numbers(by_rows: Mapping[int, float]) -> str:
    return joined(number(value) for value in by_rows.values())


def joined(values: Iterable[str]) -> str:
    return " / ".join(values)


def number(value: float | None) -> str:
    """A number with three decimals below 0.1, two below 10, one below 100, else none; a dash for None. Integers keep all digits."""
    if value is None:
        return "-"
    if isinstance(value, int):
        return f"{value:,}"
    digits = 3 if value < 0.1 else 2 if value < 10 else 1 if value < 100 else 0
    return f"{value:,.{digits}f}"


def rounded(value: int) -> str:
    """A number of rows with a unit if it is round: 5 M, 300 k, 74,976."""
    for unit, size in (("M", 1_000_000), ("k", 1_000)):
        if value >= size and value % (size // 10) == 0:
            return f"{value / size:g} {unit}"
    return f"{value:,}"
