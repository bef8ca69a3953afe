"""The sum of doubles that does not depend on the order of the rows: the exact sum, rounded once.

A double is a whole multiple of a power of two. Each value is cut into chunks of 31 bits, of the weights `2^(31 k)` for k from -5 to 3.
Chunks are whole numbers, so their sums do not depend on the order, and Spark adds them in parallel and in constant memory. The sums are
then put together as one number with digits of 31 bits, and its first bits are rounded to a double.

The absolute value of a finite value must be below 2^124 (2e37); a larger one is an error. Bits below 2^-155 (2e-47) are cut off, so a
smaller value counts as 0. With 2^32 rows or more in a group, the sums of chunks may overflow, which is an error too. The idea is that of
the long accumulator of Kulisch, and of Demmel and Nguyen's reproducible sums. As in Python's `math.fsum`, the result is the nearest double.
"""

from operators.contract import NO_EXACT_SUM

_BITS = 31
_LEVELS = range(-5, 4)
"""The weights of the chunks, as exponents of `2^_BITS`."""
_LIMIT = 2.0 ** (_BITS * _LEVELS.stop)
"""A sum is exact if the absolute values of its finite values are below this limit."""
_MASK = (1 << _BITS) - 1
_SIGNIFICANT = 1 << (3 * _BITS)
"""A number at least this large contains a double's 53 bits and at least one further digit, by which it is rounded."""


def exact_sum(value: str, condition: str | None = None) -> str:
    """SQL of the sum of the doubles that an expression gives for the rows of a group; null if all are null.

    Args:
        value: SQL of a double.
        condition: SQL of the rows to add; None for all.
    """
    where = f" AND ({condition})" if condition else ""
    is_finite = f"abs({value}) < {_double_literal(_LIMIT)}"
    chunks = [f"sum({_chunk(value, level)}) FILTER (WHERE {is_finite}{where})" for level in _LEVELS]
    not_finite = f"sum({value}) FILTER (WHERE {_is_not_finite(value, is_finite, condition)})"
    sums = f"named_struct('n', count({value}) FILTER (WHERE {is_finite}{where}), 's', array({', '.join(chunks)}), 'o', {not_finite})"
    total = f"if(g.n = 0, g.o, {_nearest_double('g.s')} + coalesce(g.o, 0D))"  # without a finite value, the sum may be null
    return f"transform(array({sums}), g -> {total})[0]"


def _chunk(value: str, level: int) -> str:
    """SQL of a chunk of a finite double: its bits from a weight to the next, as a whole number with the sign of the double.

    Spark may also compute it for a row that the FILTER excludes, such as NaN, which has no whole number: hence `try_cast`.
    """
    weight, next_weight = 2.0 ** (_BITS * level), 2.0 ** (_BITS * (level + 1))
    return (
        f"try_cast(({value} % {_double_literal(next_weight)} - {value} % {_double_literal(weight)}) / {_double_literal(weight)} AS BIGINT)"
    )


def _is_not_finite(value: str, is_finite: str, condition: str | None) -> str:
    """SQL of whether a row is added and has NaN or an infinity; an error if its value is finite and too large."""
    excluded = f"WHEN NOT coalesce({condition}, false) THEN false " if condition else ""
    not_finite = f"isnan({value}) OR abs({value}) = double('infinity')"
    cases = f"WHEN {is_finite} THEN false WHEN {not_finite} THEN true WHEN {value} IS NULL THEN false"
    return f"CASE {excluded}{cases} ELSE raise_error('{NO_EXACT_SUM}') END"


def _nearest_double(sums: str) -> str:
    """SQL of the double nearest to the number whose chunks have the given sums, the least first.

    The digits after the significant ones matter only if the significant ones lie exactly in the middle between two doubles. If one of the
    digits after them is not 0, the last bit of the significant ones is set.
    """
    negated = f"named_struct('sign', -1D, 'digits', {_digits(f'transform({sums}, c -> -c)')})"
    number = f"transform(array({_digits(sums)}), d -> if(d[0] < 0, {negated}, named_struct('sign', 1D, 'digits', d)))"
    shortened = "cast(if(digit <> 0 AND s.m % 2BD = 0, s.m + 1BD, s.m) AS DECIMAL(38, 0))"
    leading = (
        f"aggregate(n.digits, named_struct('m', cast(0 AS DECIMAL(38, 0)), 'cut', 0), (s, digit) -> if(s.m >= {_SIGNIFICANT}BD, "
        f"named_struct('m', {shortened}, 'cut', s.cut + 1), "
        f"named_struct('m', cast(s.m * {1 << _BITS}BD + digit AS DECIMAL(38, 0)), 'cut', s.cut)))"
    )
    rounded = f"transform(array({leading}), t -> cast(t.m AS DOUBLE) * power(2D, {_BITS} * (t.cut + {_LEVELS.start})))[0]"
    return f"transform({number}, n -> n.sign * {rounded})[0]"


def _digits(sums: str) -> str:
    """SQL of a number as digits of `_BITS` bits, the largest first; the first digit has the number's sign, the others are not negative."""
    step = f"named_struct('carry', shiftright(s.carry + c, {_BITS}), 'digits', array_prepend(s.digits, (s.carry + c) & {_MASK}L))"
    zero = "named_struct('carry', 0L, 'digits', cast(array() AS ARRAY<BIGINT>))"
    return f"aggregate({sums}, {zero}, (s, c) -> {step}, s -> array_prepend(s.digits, s.carry))"


def _double_literal(value: float) -> str:
    return f"{value!r}D"
