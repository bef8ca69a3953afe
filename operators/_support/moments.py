"""Statistics of doubles that do not depend on the order of the rows: they are computed from the sorted values of a group.

The values are gathered in one array for each group, so that a group must fit into the memory of a task. The definitions are those of
Spark's functions of the same names, with null in place of a division by zero.
"""

_ONE_COLUMN_SQL = {
    "var_pop": "try_divide({2}, size(l))",
    "var_samp": "try_divide({2}, greatest(size(l) - 1, 0))",
    "stddev_pop": "sqrt(try_divide({2}, size(l)))",
    "stddev_samp": "sqrt(try_divide({2}, greatest(size(l) - 1, 0)))",
    "skewness": "try_divide(sqrt(size(l)) * {3}, sqrt({2} * {2} * {2}))",
    "kurtosis": "try_divide(size(l) * {4}, {2} * {2}) - 3D",
}
_SYNONYMS = {"stddev": "stddev_samp", "std": "stddev_samp", "variance": "var_samp"}
_TWO_COLUMNS_SQL = {
    "covar_pop": "try_divide({yx}, size(l))",
    "covar_samp": "try_divide({yx}, greatest(size(l) - 1, 0))",
    "corr": "if(size(l) < 2, null, try_divide({yx}, sqrt({yy} * {xx})))",
    "regr_avgx": "m.x",
    "regr_avgy": "m.y",
    "regr_sxx": "if(size(l) = 0, null, {xx})",
    "regr_syy": "if(size(l) = 0, null, {yy})",
    "regr_sxy": "if(size(l) = 0, null, {yx})",
    "regr_slope": "try_divide({yx}, {xx})",
    "regr_intercept": "m.y - try_divide({yx}, {xx}) * m.x",
    "regr_r2": "if({xx} = 0, null, if({yy} = 0, 1D, try_divide({yx} * {yx}, {xx} * {yy})))",
}
OF_ONE_COLUMN = frozenset({*_ONE_COLUMN_SQL, *_SYNONYMS})
OF_TWO_COLUMNS = frozenset(_TWO_COLUMNS_SQL)


def sorted_sum(value: str, condition: str | None, *, is_distinct: bool) -> str:
    """SQL of the sum of doubles in their order; null if there is none."""
    return f"aggregate({_sorted_values(value, condition, is_distinct)}, cast(null AS DOUBLE), (a, v) -> coalesce(a, 0D) + v)"


def sorted_average(value: str, condition: str | None, *, is_distinct: bool) -> str:
    """SQL of the average of doubles, which are added in their order; null if there is none."""
    return f"transform(array({_sorted_values(value, condition, is_distinct)}), l -> {_mean('l', 'v')})[0]"


def moment(function: str, value: str, condition: str | None, *, is_distinct: bool) -> str:
    """SQL of a statistic of one column.

    Args:
        function: one of `OF_ONE_COLUMN`.
        value: SQL of a double.
        condition: SQL of the rows that count; None for all.
        is_distinct: whether equal values count once.
    """
    powers = [f"aggregate(l, 0D, (a, v) -> a + {' * '.join(['(v - m)'] * n)})" for n in range(5)]
    result = _ONE_COLUMN_SQL[_SYNONYMS.get(function, function)].format(*powers)
    return _with_mean(_sorted_values(value, condition, is_distinct), _mean("l", "v"), result)


def moment_of_two(function: str, y: str, x: str, condition: str | None) -> str:
    """SQL of a statistic of two columns, of the rows in which neither is null.

    Args:
        function: one of `OF_TWO_COLUMNS`.
        y: SQL of a double, the first argument.
        x: SQL of a double, the second argument.
        condition: SQL of the rows that count; None for all.
    """
    pairs = f"named_struct('y', {y}, 'x', {x})"
    both_known = f"({y}) IS NOT NULL AND ({x}) IS NOT NULL" + (f" AND ({condition})" if condition else "")
    products = {a + b: f"aggregate(l, 0D, (a, v) -> a + (v.{a} - m.{a}) * (v.{b} - m.{b}))" for a, b in ("yx", "yy", "xx")}
    means = f"named_struct('y', {_mean('l', 'v.y')}, 'x', {_mean('l', 'v.x')})"
    return _with_mean(_sorted_values(pairs, both_known, is_distinct=False), means, _TWO_COLUMNS_SQL[function].format(**products))


def _sorted_values(value: str, condition: str | None, is_distinct: bool) -> str:
    """SQL of the values of a group that are not null, in order."""
    where = f" FILTER (WHERE {condition})" if condition else ""
    return f"sort_array(collect_{'set' if is_distinct else 'list'}({value}){where})"


def _mean(values: str, value: str) -> str:
    return f"try_divide(aggregate({values}, 0D, (a, v) -> a + {value}), size({values}))"


def _with_mean(values: str, mean: str, result: str) -> str:
    """SQL of a result over values `l` and their mean `m`."""
    return f"transform(array({values}), l -> transform(array({mean}), m -> {result})[0])[0]"
