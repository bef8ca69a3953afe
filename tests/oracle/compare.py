"""Compares the engine's result for a case with those of the naive model and of Flink."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from tests.oracle import flink
from tests.oracle.cases import DATASTREAM, FIELDS, Case, Row
from tests.oracle.flink import Flink, rows_of_pairs
from tests.oracle.lake import Found, Stepped
from tests.oracle.sql_cache import Simulation
from tests.support.model import Event, Joined

SHOWN = 3
NULL_KEY = "Flink's keyBy throws at a null key; ours matches nothing, as the model says"

Allowed = Sequence[tuple[str, Counter[Row]]]


@dataclass(frozen=True)
class CaseResult:
    """The result of one case.

    Args:
        name: the case, for reports.
        status: passed, failed or skipped.
        why: the differences, or the reason why it was skipped.
        expected: how many rows Flink recorded, including late rows.
        direct: how many of these rows the engine has too.
        drained: how many of the equal rows are final only after a drain, since the case has no end.
        reasons: how many rows differ on purpose, by reason.
        clean: whether no difference had to be explained.
    """

    name: str
    status: Literal["passed", "failed", "skipped"]
    why: tuple[str, ...] = ()
    expected: int = 0
    direct: int = 0
    drained: int = 0
    reasons: Counter[str] = field(default_factory=Counter)
    clean: bool = False


def compare(case: Case, found: Found) -> CaseResult:
    """Compare one case."""
    if found.error is not None:
        return CaseResult(case.name, "failed", (found.error,))
    if case.error is not None:
        return _compare_error(case, found)
    differences = against_model(case, found)
    rules, ours = Flink(case), Counter(_row(case, row) for row in found.rows)
    late = _late_differences(case, found)
    more, fewer = (_inner if case.operator == DATASTREAM else _outer)(case, rules, found)
    ours -= _pending_unmatched(case, found)
    flinks_only, ours_only = case.expected - ours, ours - case.expected
    missing, reasons = explained(flinks_only, more)
    surplus, others = explained(ours_only, fewer)
    differences += _simulation_differences(case)
    differences += [*late, *_listed("Flink has", missing), *_listed("only we have", surplus)]
    same = case.expected & ours
    pending = same & Counter(_row(case, row) for row in found.rows if not _closed(case, row))
    lates = 0 if case.late is None else sum(c.total() for c in case.late.values())
    total = same.total() + (0 if late else lates)
    status = "failed" if differences else "passed"
    return CaseResult(
        case.name, status, tuple(differences), case.expected.total() + lates, total, pending.total(), reasons + others, rules.is_clean
    )


def _compare_error(case: Case, found: Found) -> CaseResult:
    if case.operator != DATASTREAM or "null" not in str(case.error).lower() or all(row.key is not None for row in case.events):
        return CaseResult(case.name, "skipped", (f"Flink gave no answer: {case.error}",))
    differences = against_model(case, found)
    return CaseResult(case.name, "failed" if differences else "passed", tuple(differences), reasons=Counter({NULL_KEY: len(found.rows)}))


def against_model(case: Case, found: Found) -> list[str]:
    """The differences from the naive model, in rows with their two times and in late rows."""
    answer = case.params.model(case.stream)
    wanted = Counter((*_steps(j), j.result_time, j.final_at, case.row(j)) for j in answer.rows)
    got = Counter((r["left_step"], r["right_step"], r["result_time"], r["final_at"], _row(case, r)) for r in found.rows)
    late = Counter((row.side, row.step, row.id) for row in answer.late)
    differences = _listed("the model has", wanted - got) + _listed("the model lacks", got - wanted)
    return (
        differences
        + _listed("late in the model", late - Counter(found.late))
        + _listed("not late in the model", Counter(found.late) - late)
    )


def _simulation_differences(case: Case) -> list[str]:
    """The differences between Flink's rows and the simulation of its SQL operator; no rule excuses them."""
    if case.operator == DATASTREAM:
        return []
    simulation = Simulation(case)
    rows = simulation()
    if simulation.is_unsure:
        return []
    return _listed("Flink's own operator would give", rows - case.expected) + _listed(
        "Flink's own operator would not give", case.expected - rows
    )


def _steps(joined: Joined) -> tuple[int | None, int | None]:
    return joined.left and joined.left.step, joined.right and joined.right.step


def _late_differences(case: Case, found: Found) -> list[str]:
    differences = list[str]()
    for side, wanted in (case.late or {}).items():
        got = Counter((step, number) for of, step, number in found.late if of == side)
        differences += _listed(f"late {side} in Flink (step, id)", wanted - got) + _listed(
            f"not late {side} in Flink (step, id)", got - wanted
        )
    return differences


def _row(case: Case, row: Mapping[str, Any]) -> Row:
    values = {**row, "result_ts": row["result_time"]}
    for side in ("left", "right"):
        values[f"{side}_k"] = row["k"] if row[f"{side}_id"] is not None else None
    return tuple(values[name] for name in FIELDS[case.operator])


def _closed(case: Case, row: Mapping[str, Any]) -> bool:
    return case.last_mark is not None and row["final_at"] <= case.last_mark


def _is_unmatched(row: Mapping[str, Any]) -> bool:
    return row["left_id"] is None or row["right_id"] is None


def _pending_unmatched(case: Case, found: Found) -> Counter[Row]:
    """Unmatched rows that are final only after a drain; Flink does not emit them for an input without end."""
    return Counter(_row(case, row) for row in found.rows if _is_unmatched(row) and not _closed(case, row))


def _inner(case: Case, rules: Flink, found: Found) -> tuple[Allowed, Allowed]:
    return [], _lost(case, rules)


def _lost(case: Case, rules: Flink) -> list[tuple[str, Counter[Row]]]:
    reasons = dict.fromkeys(reason for _, reason in rules.lost)
    return [(reason, Counter(_pair(case, *pair) for pair, why in rules.lost if why == reason)) for reason in reasons]


def _outer(case: Case, rules: Flink, found: Found) -> tuple[Allowed, Allowed]:
    """The rows that Flink SQL may have in addition to ours, and the rows that it may lack."""
    ours = Counter(_row(case, row) for row in found.rows)
    ours_only, flinks_only = ours - case.expected, case.expected - ours
    lost = [pair for pair, _ in rules.lost if _pair(case, *pair) in ours_only]
    gained = [pair for pair in rules.gained if _pair(case, *pair) in flinks_only]
    padded = [row for row in rules.on_time if _unmatched(case, row) in ours]
    end = len(case.stream) + 1
    more = [
        (flink.LATE_JOINED, Counter(_pair(case, *pair) for pair in rules.gained)),
        (flink.LATE_PADDED, _unmatched_rows(case, rules.late)),
        (flink.PARTNER_LOST, _unmatched_rows(case, rows_of_pairs(lost))),
        (flink.CACHE_BUG, _unmatched_rows(case, rules.never_cached)),
        (flink.SOONER, _pending_unmatched(case, found)),
    ]
    fewer = [
        *_lost(case, rules),
        (flink.PARTNER_LATE, _unmatched_rows(case, rows_of_pairs(gained))),
        (flink.CACHE_BUG, _unmatched_rows(case, [row for row in padded if rules.dropped(row, end)])),
    ]
    if not case.drained:
        fewer.append((flink.LATER, _unmatched_rows(case, rules.overtaken(padded))))
    return more, fewer


def _pair(case: Case, left: Event, right: Event) -> Row:
    return case.row(Joined(left, right, max(left.ts, right.ts)))


def _unmatched(case: Case, row: Event) -> Row:
    return case.row(Joined(row, None, row.ts) if row.side == "L" else Joined(None, row, row.ts))


def _unmatched_rows(case: Case, rows: Iterable[Event]) -> Counter[Row]:
    return Counter(_unmatched(case, row) for row in rows)


def explained(extra: Counter[Row], allowed: Allowed) -> tuple[Counter[Row], Counter[str]]:
    """The differing rows that no rule explains, and how many each rule explains."""
    left, reasons = Counter(extra), Counter[str]()
    for reason, rows in allowed:
        taken = left & rows
        left -= taken
        reasons[reason] += taken.total()
    return left, +reasons


def _listed(label: str, rows: Counter[Any]) -> list[str]:
    if not rows:
        return []
    shown = ", ".join(str(row) for row in sorted(rows, key=str)[:SHOWN])
    return [f"{label} {rows.total()}: {shown}{', ...' if len(rows) > SHOWN else ''}"]


def check_steps(case: Case, found: Found, steps: Sequence[Stepped], late: Sequence[tuple[str, int, int]]) -> list[str]:
    """The differences of a run batch by batch: rows in another batch than that of their `final_at`, and other rows than in bulk."""
    differences, before = list[str](), None
    for number, step in enumerate(steps):
        wrong = [r for r in step.rows if step.mark is None or r["final_at"] > step.mark or (before is not None and r["final_at"] <= before)]
        differences += _listed(
            f"at batch {number}, where the watermark went from {before} to {step.mark}, came", Counter(map(_frozen, wrong))
        )
        before = before if step.mark is None else step.mark
    whole, bulk = Counter(_frozen(r) for s in steps for r in s.rows), Counter(map(_frozen, found.rows))
    differences += _listed("batch by batch lacks", bulk - whole) + _listed("only batch by batch has", whole - bulk)
    return differences + ([] if Counter(late) == Counter(found.late) else ["batch by batch, other rows were late"])


def _frozen(row: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    return tuple(sorted((name, value) for name, value in row.items() if name != "case_id"))
