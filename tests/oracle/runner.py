"""Reads cases, runs them through the engine, all in bulk and a few batch by batch, and compares the results."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

from pyspark.sql import SparkSession

from tests.oracle import leaderboards, windowed
from tests.oracle.cases import KNOWN, Case, CaseError, files, load, parse
from tests.oracle.compare import CaseResult, check_steps, compare
from tests.oracle.lake import Found, bulk, case_batches, is_too_long, stepwise
from tests.oracle.leaderboards import TOPN, TopNCase
from tests.oracle.windowed import WindowCase

STEPPED = 5
_CANNOT_BE_RUN = "cannot be run: "
_Case = TypeVar("_Case", WindowCase, TopNCase)


@dataclass(frozen=True)
class Gathered:
    """The cases found below a folder.

    Args:
        cases: the cases that can be run.
        unreadable: files without a readable case, as failures.
        others: the number of cases of each unsupported operator.
        windows: the cases of windowed operators.
        tops: the cases of Top-N.
    """

    cases: list[Case]
    unreadable: list[CaseResult]
    others: Mapping[str, int]
    windows: list[WindowCase] = field(default_factory=list)
    tops: list[TopNCase] = field(default_factory=list)


def gather(folder: Path, only: str | None = None) -> Gathered:
    """Read every case file; `only` limits the cases to one operator."""
    cases, unreadable, others, windows, tops = list[Case](), list[CaseResult](), Counter[str](), list[WindowCase](), list[TopNCase]()
    for path in files(folder):
        try:
            content = load(path)
            operator = content["operator"]
            if only is not None and operator != only:
                continue
            if operator in windowed.KNOWN and not content.get("error"):
                windows.append(windowed.parse(content))
            elif operator == TOPN:
                tops.append(leaderboards.parse(content))
            elif operator not in KNOWN:
                others[operator] += 1
            else:
                case = parse(path, content)
                cases += [case] if not is_too_long(case) else []
                unreadable += (
                    [CaseResult(case.name, "failed", ("its times span more than the years 1 to 9999",))] if is_too_long(case) else []
                )
        except CaseError as error:
            unreadable.append(CaseResult(str(path), "failed", (str(error),)))
    return Gathered(cases, unreadable, others, windows, tops)


def run_all(spark: SparkSession, folder: Path, gathered: Gathered) -> list[CaseResult]:
    """Compare all cases of all operators; `folder` contains the lakes of interval joins."""
    joined = run(spark, folder, gathered.cases) if gathered.cases else []
    compared = _compare_all(windowed.compare_cases, spark, gathered.windows)
    return [*joined, *compared, *_compare_all(leaderboards.compare_cases, spark, gathered.tops)]


def _compare_all(
    compare_cases: Callable[[SparkSession, Sequence[_Case]], list[CaseResult]], spark: SparkSession, cases: Sequence[_Case]
) -> list[CaseResult]:
    """Compare cases together. A case that cannot be run fails alone; an error that no case has alone is raised."""
    try:
        return compare_cases(spark, cases)
    except Exception as error:
        if len(cases) == 1:
            return [CaseResult(cases[0].name, "failed", (f"{_CANNOT_BE_RUN}{type(error).__name__}: {error}",))]
        middle = len(cases) // 2
        results = [result for half in (cases[:middle], cases[middle:]) for result in _compare_all(compare_cases, spark, half)]
        if not any(why.startswith(_CANNOT_BE_RUN) for result in results for why in result.why):
            raise
        return results


def run(spark: SparkSession, folder: Path, cases: Sequence[Case], stepped: int = STEPPED) -> list[CaseResult]:
    """Run cases through the engine, below a folder, and compare them; the results are in the order of the cases."""
    try:
        found = bulk(spark, folder / "bulk", cases)
    except Exception as error:
        found = [Found(error=f"the lake of all cases failed: {type(error).__name__}: {error}")] * len(cases)
    results = [compare_or_fail(case, answer) for case, answer in zip(cases, found, strict=True)]
    indexes = stepwise_cases(cases, stepped)
    with ThreadPoolExecutor(2) as pool:
        compared_again = pool.map(lambda p: _stepped(spark, folder / f"step_{p}", cases[p], found[p], results[p]), indexes)
        for index, compared in zip(indexes, list(compared_again), strict=True):
            results[index] = compared
    return results


def compare_or_fail(case: Case, found: Found) -> CaseResult:
    """Compare a case; an error fails this case only."""
    try:
        return compare(case, found)
    except Exception as error:
        return CaseResult(case.name, "failed", (f"cannot be compared: {type(error).__name__}: {error}",))


def stepwise_cases(cases: Sequence[Case], count: int) -> list[int]:
    """The indexes of the cases to run batch by batch: for each join type the case with the fewest batches, then others.

    A case is eligible if Flink has rows for it and it has at least two different watermarks.
    """
    eligible = [p for p, c in enumerate(cases) if c.error is None and c.expected and len(set(c.marks)) > 1]
    by_length = sorted(eligible, key=lambda index: len(case_batches(cases[index])))
    firsts: dict[tuple[str, str], int] = {}
    for index in by_length:
        firsts.setdefault((cases[index].operator, cases[index].params.how), index)
    ordered = [*firsts.values(), *[index for index in by_length if index not in firsts.values()]]
    return ordered[:count]


def _stepped(spark: SparkSession, folder: Path, case: Case, found: Found, result: CaseResult) -> CaseResult:
    if found.error is not None:
        return result
    try:
        differences = check_steps(case, found, *stepwise(spark, folder, case))
    except Exception as error:
        differences = [f"batch by batch: {type(error).__name__}: {error}"]
    return replace(result, status="failed", why=(*result.why, *differences)) if differences else result


def report(gathered: Gathered, results: Sequence[CaseResult], stepped: int) -> list[str]:
    """The lines to print; the last one has the counts."""
    compared = [*gathered.unreadable, *results]
    count = Counter(v.status for v in compared)
    lines = [f"{v.status.upper()} {v.name}: {'; '.join(v.why)}" for v in compared if v.status != "passed"]
    lines += [f"SKIPPED {number} of {operator}: the operator is not supported" for operator, number in sorted(gathered.others.items())]
    expected, direct, drained = (sum(getattr(v, name) for v in results) for name in ("expected", "direct", "drained"))
    reasons = sum((v.reasons for v in results), Counter[str]())
    lines += [f"differs on purpose, {number} rows: {reason}" for reason, number in reasons.most_common()]
    agreed = sum(v.clean and v.status == "passed" for v in results)
    lines.append(f"also run batch by batch: {stepped} cases; equal to Flink without any rule: {agreed} cases")
    lines.append(f"{direct} of Flink's {expected} rows compared directly, {drained} of them after a drain")
    skipped = count["skipped"] + sum(gathered.others.values())
    return [*lines, f"{count['passed']} passed, {count['failed']} failed, {skipped} skipped"]
