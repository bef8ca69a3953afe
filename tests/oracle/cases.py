"""Reads recorded cases, checks them, and converts them to the model's classes."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from tests.oracle.residual import predicate
from tests.support.model import Event, How, IntervalJoinModel, Joined, Mark, Side

DATASTREAM, SQL = "interval_join", "sql_interval_join"
KNOWN = (DATASTREAM, SQL)
FIELDS = {
    DATASTREAM: ("left_id", "right_id", "left_ts", "right_ts", "result_ts"),
    SQL: ("left_id", "right_id", "left_k", "right_k", "left_ts", "right_ts"),
}

Row = tuple[Any, ...]


class CaseError(ValueError):
    """A file does not contain a case that can be run."""


@dataclass(frozen=True)
class Params:
    """The parameters of a join. Cases with equal parameters share a table."""

    lower: int
    upper: int
    lower_exclusive: bool
    upper_exclusive: bool
    how: How
    residual: str | None

    @cached_property
    def model(self) -> IntervalJoinModel:
        """The naive model with these parameters."""
        bounds = self.lower, self.upper, self.lower_exclusive, self.upper_exclusive
        return IntervalJoinModel(*bounds, self.how, predicate(self.residual) if self.residual else None)

    @property
    def longest_wait(self) -> int:
        """The longest wait of any row."""
        return max(self.model.wait("L"), self.model.wait("R"))


@dataclass(frozen=True, eq=False)
class Case:
    """One recorded case.

    Args:
        path: its file.
        operator: Flink's operator.
        name: the case's name, which has no effect.
        params: the join's parameters.
        stream: rows and watermarks in order of arrival; the index of a row is its step.
        drained: whether Flink received the final watermark, the end of the input.
        expected: Flink's rows, as a multiset of the operator's fields.
        late: Flink's late rows by side, as a multiset of (step, id); None if the operator has no late output.
        error: Flink's error, if it gave no result.
    """

    path: Path
    operator: str
    name: str
    params: Params
    stream: tuple[Event | Mark, ...]
    drained: bool
    expected: Counter[Row]
    late: Mapping[Side, Counter[tuple[int, int]]] | None
    error: str | None

    @cached_property
    def events(self) -> list[Event]:
        """The rows."""
        return [item for item in self.stream if isinstance(item, Event)]

    @cached_property
    def marks(self) -> list[int]:
        """The watermarks except the final one, limited to `high`; none is below an earlier one."""
        raised, marks = self.low, list[int]()
        for item in self.stream:
            if isinstance(item, Mark):
                raised = max(raised, min(item.ts, self.high))
                marks.append(raised)
        return marks

    @cached_property
    def low(self) -> int:
        """A watermark before all rows, at which no row is late."""
        return min((row.ts for row in self.events), default=0) - 1

    @cached_property
    def high(self) -> int:
        """A watermark at which all results are final."""
        return max((row.ts for row in self.events), default=0) + self.params.longest_wait + 1

    @property
    def last_mark(self) -> int | None:
        """The last watermark that Flink received, limited to `high`; None if it received none."""
        return self.high if self.drained else max(self.marks, default=None)

    def row(self, joined: Joined) -> Row:
        """A result as the operator's fields."""
        return tuple(_field(joined, name) for name in FIELDS[self.operator])


def _field(joined: Joined, name: str) -> Any:
    if name == "result_ts":
        return joined.result_time
    side, _, column = name.partition("_")
    row = joined.left if side == "left" else joined.right
    return None if row is None else getattr(row, {"k": "key"}.get(column, column))


def order_by(params: Mapping[str, Any]) -> list[str]:
    """The order of a Top-N case as our operators take it: `v DESC NULLS LAST`."""
    return [" ".join([column, direction, *(f"NULLS {end}" for end in nulls)]) for column, direction, *nulls in params["order_by"]]


def files(folder: Path) -> Iterator[Path]:
    """Every case file below a folder, or the one file."""
    yield from sorted(folder.rglob("*.json")) if folder.is_dir() else [folder]


def load(path: Path) -> dict[str, Any]:
    """A file's content.

    Raises:
        CaseError: it is not a JSON object that names its operator.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise CaseError(f"cannot be read: {error}") from error
    if not isinstance(content, dict) or not isinstance(content.get("operator"), str):
        raise CaseError("cannot be read: not a JSON object with an `operator`")
    return content


def parse(path: Path, content: Mapping[str, Any]) -> Case:
    """A case of one of the known operators.

    Raises:
        CaseError: a field is missing or has an illegal value.
    """
    try:
        return _parse(path, content)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CaseError(f"cannot be read: {type(error).__name__}: {error}") from error


def _parse(path: Path, content: Mapping[str, Any]) -> Case:
    operator = content["operator"]
    rows = content.get("expected_final", content.get("expected")) if operator == SQL else content.get("expected")
    error = content.get("error")
    if rows is None and error is None:
        raise ValueError("neither `expected` nor `error`")
    late = {
        side: Counter((_int(row["step"]), _int(row["id"])) for row in content.get(f"expected_late_{name}", ()))
        for side, name in (("L", "left"), ("R", "right"))
    }
    params = _params(content["params"])
    _ = params.model
    return Case(
        path=path,
        operator=operator,
        name=str(content.get("name", path.stem)),
        params=params,
        stream=tuple(_item(step, item) for step, item in enumerate(content["input"])),
        drained=content.get("end_watermark", True) is not False,
        expected=Counter(tuple(_as_text(row[name], name) for name in FIELDS[operator]) for row in rows or ()),
        late=late if operator == DATASTREAM else None,  # pyright: ignore[reportArgumentType]
        error=None if error is None else str(error),
    )


def _as_text(value: Any, name: str) -> Any:
    return str(value) if name.endswith("_k") and value is not None else value


def _params(content: Mapping[str, Any]) -> Params:
    how = str(content.get("join_type", "INNER")).lower()
    if how not in ("inner", "left", "right", "full"):
        raise ValueError(f"`join_type` is {how!r}")
    ends = bool(content.get("lower_exclusive", False)), bool(content.get("upper_exclusive", False))
    return Params(_int(content["lower"]), _int(content["upper"]), *ends, how, content.get("residual") or None)  # pyright: ignore[reportArgumentType]


def _item(step: int, content: Mapping[str, Any]) -> Event | Mark:
    if content["t"] == "w":
        return Mark(_int(content["ts"]))
    if content["t"] != "e" or content["side"] not in ("L", "R"):
        raise ValueError(f"input {step} is neither a watermark nor a row of L or R")
    key, v, ts = content.get("k"), content.get("v"), _int(content["ts"])
    return Event(step, content["side"], _int(content["id"]), None if key is None else str(key), ts, None if v is None else _int(v))


def _int(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"{value!r} is no integer")
    return value
