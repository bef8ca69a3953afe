"""The sum of doubles that does not depend on the order of the rows: the exact sum, rounded once.

A double is a whole multiple of a power of two. Each value is cut into chunks of 31 bits, of the weights `2^(31 k)` for k from -5 to 3.
Chunks are whole numbers, so their sums do not depend on the order, and Spark adds them in parallel and in constant memory. The sums are
then put together as one number with digits of 31 bits, and its first bits are rounded to a double.

So a value must be smaller than 2^124 (2e37), or NaN or infinite, and bits below 2^-155 (2e-47) are cut off. More than four billion rows
overflow. The idea is that of the long accumulator of Kulisch, as in Python's `math.fsum` and Demmel and Nguyen's reproducible sums.
"""

from operators.contract import NO_EXACT_SUM

BITS = 31
LEVELS = range(-5, 4)
"""The weights of the chunks, as exponents of `2^BITS`."""
LARGEST = 2.0 ** (BITS * (LEVELS.stop))
"""The values whose sum is exact are smaller than this."""
_MASK = (1 << BITS) - 1
_SIGNIFICANT = 1 << (3 * BITS)
"""A number at least this large contains a double's 53 bits and at least one further digit, by which it is rounded."""


def exact_sum(value: str, condition: str | None = None) -> str:
    """SQL of the sum of the doubles that an expression gives for the rows of a group; null if all are null.

    Args:
        value: SQL of a double.
        condition: SQL of the rows to add; None for all.
    """
    where = f" AND ({condition})" if condition else ""
    finite = f"abs({value}) < {_double_literal(LARGEST)}"
    chunks = [f"sum({_chunk(value, level)}) FILTER (WHERE {finite}{where})" for level in LEVELS]
    sum_of_infinite = f"sum({value}) FILTER (WHERE NOT ({_is_addable(value, finite)}){where})"
    sums = f"named_struct('n', count({value}) FILTER (WHERE {finite}{where}), 's', array({', '.join(chunks)}), 'o', {sum_of_infinite})"
    total = f"if(g.n = 0, g.o, {_nearest_double('g.s')} + coalesce(g.o, 0D))"
    return f"transform(array({sums}), g -> {total})[0]"


def _chunk(value: str, level: int) -> str:
    """SQL of a chunk of a finite double: its bits from a weight to the next, as a whole number with the sign of the double."""
    weight, next_weight = 2.0 ** (BITS * level), 2.0 ** (BITS * (level + 1))
    return (
        f"try_cast(({value} % {_double_literal(next_weight)} - {value} % {_double_literal(weight)}) / {_double_literal(weight)} AS BIGINT)"
    )


def _is_addable(value: str, finite: str) -> str:
    """SQL of whether a double is small enough; it raises an error if it is finite and too large."""
    infinite = f"isnan({value}) OR abs({value}) = double('infinity')"
    return f"CASE WHEN {finite} THEN true WHEN {infinite} THEN false WHEN {value} IS NULL THEN true ELSE raise_error('{NO_EXACT_SUM}') END"


def _nearest_double(sums: str) -> str:
    """SQL of the double nearest to the number whose chunks have the given sums, the least first."""
    digits = f"transform(array({_digits(sums)}), d -> if(d[0] < 0, {_digits(f'transform({sums}, c -> -c)')}, d))[0]"
    sign = f"if({_digits(sums)}[0] < 0, -1D, 1D)"
    leading = (
        f"aggregate({digits}, named_struct('m', cast(0 AS DECIMAL(38, 0)), 'cut', 0), (s, digit) -> if(s.m >= {_SIGNIFICANT}BD, "
        f"named_struct('m', s.m, 'cut', s.cut + 1), "
        f"named_struct('m', cast(s.m * {1 << BITS}BD + digit AS DECIMAL(38, 0)), 'cut', s.cut)))"
    )
    return f"transform(array({leading}), t -> {sign} * cast(t.m AS DOUBLE) * power(2D, {BITS} * t.cut - {-BITS * LEVELS.start}))[0]"


def _digits(sums: str) -> str:
    """SQL of a number as digits of `BITS` bits, the largest first; the first digit has the number's sign, the others are not negative."""
    step = f"named_struct('carry', shiftright(s.carry + c, {BITS}), 'digits', array_prepend(s.digits, (s.carry + c) & {_MASK}L))"
    zero = "named_struct('carry', 0L, 'digits', cast(array() AS ARRAY<BIGINT>))"
    return f"aggregate({sums}, {zero}, (s, c) -> {step}, s -> array_prepend(s.digits, s.carry))"


def _double_literal(value: float) -> str:
    return f"{value!r}D" if "e" in repr(value) or "." in repr(value) else f"{value!r}.0D"
