"""A pipeline: the sources, the tables that are computed from them, and the expectations that their rows must meet."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import TYPE_CHECKING, Any

from assets.completeness import Completeness, completeness_of
from assets.contract_checks import ContractError, check_length
from assets.contracts import DerivedAsset, SourceContract
from assets.days import read_day
from assets.names import first_duplicate
from assets.pipeline_checks import checked_tables, columns_of_tables
from operators.accounting import ReportsMatches
from operators.as_of_join import AsOfJoin
from operators.errors import did_you_mean
from operators.interval_join import IntervalJoin
from operators.timing import length_ms

if TYPE_CHECKING:  # its import takes seconds, and only asset checks need it
    from great_expectations import ExpectationSuite

Suites = Mapping[str, "ExpectationSuite"]
DEFAULT_COMPLETENESS = 0.5
FRESH = "fresh"
"""The name of the check of a table with a `freshness`."""
EARLIEST_DAY, LATEST_DAY = date(1900, 1, 1), date(2100, 1, 1)
"""The earliest and the latest day that `first_day` and `last_day` may be."""


@dataclass(frozen=True, kw_only=True)
class Pipeline:
    """Sources and tables. Assets, checks, sensors, schedules and the command line are made from this value.

    Args:
        sources: the sources.
        tables: the tables, in any order.
        suites: by the name of a source or table, the expectations for the rows of its event log or table; or a function without
            parameters that returns them, so that Great Expectations is imported only where checks run. The names that a function returns
            are checked there too.
        completeness: by the name of a join, the least share of matched rows among those of each day and side that are finalized or
            late. A number is a share below which a day is a warning; a `Completeness` has shares by side and severity. One value for
            all tables holds for interval joins of sources except `anti`, and for the left side of as-of joins of sources; by default
            0.5. Other joins only report their shares, unless they are named.
        freshness: how long a table may take to reflect rows of its sources, such as `"10 minutes"`, from the time at which an advance could
            show them; a table that takes longer fails its check `fresh`. One limit for all tables, or limits by the name of a table; None
            for no limit. A table that the mapping does not name has no limit.
        first_day: the first daily partition, such as `"2026-01-01"`. None for the first day of the year of the oldest event in the lake.
        last_day: the last day of the events, for data that are complete. The daily partitions end with the last day on which a result of
            such an event can become final. Runs of Dagster finalize no later results. None for partitions up to the current day.

    Raises:
        ContractError: a name is used twice or is unknown, tables read each other in a cycle, or an operator does not accept the columns
            of its inputs.

    Example:
        ```python
        pipeline = Pipeline(
            sources=[SourceContract(name="rides", schema=RIDE, event_time="started_at")],
            tables=[
                DerivedAsset(
                    name="rides_per_hour",
                    inputs=("rides",),
                    operator=WindowedAggregate(by="zone", window=Tumbling(size="1 hour"), aggregates={"rides": "count(*)"}),
                )
            ],
        )
        ```
    """

    sources: Sequence[SourceContract]
    tables: Sequence[DerivedAsset] = ()
    suites: Suites | Callable[[], Suites] = field(default_factory=dict)
    completeness: float | Completeness | Mapping[str, float | Completeness] = DEFAULT_COMPLETENESS
    freshness: str | Mapping[str, str] | None = None
    first_day: str | None = None
    last_day: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "sources", _checked_values("sources", self.sources, SourceContract))
        if not self.sources:
            raise ContractError.bad_value("sources", [], "at least one source")
        object.__setattr__(self, "tables", _checked_values("tables", self.tables, DerivedAsset))
        object.__setattr__(self, "tables", tuple(checked_tables(self.sources_by_name, self.tables_by_name).values()))
        self._check_completeness()
        self._check_freshness()
        if not callable(self.suites):
            self.check_suites(self.suites)
        for parameter in ("first_day", "last_day"):
            if (day := getattr(self, parameter)) is not None:
                _check_day(parameter, day)
        if self.first_day and self.last_day and self.last_day < self.first_day:
            raise ContractError.bad_value("last_day", self.last_day, f"`first_day`, {self.first_day!r}, or a later day")

    def _check_completeness(self) -> None:
        for limit in self._limits("completeness", self.completeness):
            completeness_of("completeness", limit)
        for table in self.tables:
            if (
                isinstance(self.completeness, Mapping)
                and table.name in self.completeness
                and not isinstance(table.operator, ReportsMatches)
            ):
                joins = [table.name for table in self.tables if isinstance(table.operator, ReportsMatches)]
                legal = f"names of joins: {', '.join(joins) or 'there is none'}; only their rows are matched or unmatched"
                raise ContractError.bad_value("completeness", table.name, legal)
            unknown = self.completeness_of(table.name).sides - {*table.inputs}
            if unknown and isinstance(self.completeness, Mapping):
                legal = f"names of inputs of {table.name!r}: {', '.join(table.inputs)}"
                raise ContractError.bad_value("completeness", min(unknown), legal)

        if isinstance(self.completeness, Mapping):
            return
        inputs = sorted({name for table in self.tables if self.completeness_of(table.name).sides for name in table.inputs})
        if unknown := completeness_of("completeness", self.completeness).sides - {*inputs}:
            legal = f"names of inputs of joins of sources: {', '.join(inputs) or 'there is none'}{did_you_mean(min(unknown), inputs)}"
            raise ContractError.bad_value("completeness", min(unknown), legal)

    def _check_freshness(self) -> None:
        for limit in self._limits("freshness", self.freshness):
            if limit is None:
                continue
            check_length("freshness", limit)
            if length_ms(limit, "freshness") == 0:
                raise ContractError.bad_value("freshness", limit, "a duration of more than zero")

    def _limits(self, parameter: str, limits: Any) -> list[Any]:
        """One limit for all tables, or those by the name of a table.

        Raises:
            ContractError: there is no table with a name.
        """
        if not isinstance(limits, Mapping):
            return [limits]
        if (unknown := next((name for name in limits if name not in self.tables_by_name), None)) is not None:
            legal = f"names of tables: {', '.join(self.tables_by_name)}{did_you_mean(unknown, self.tables_by_name)}"
            raise ContractError.bad_value(parameter, unknown, legal)
        return [*limits.values()]

    @property
    def sources_by_name(self) -> dict[str, SourceContract]:
        """The sources, by name."""
        return {source.name: source for source in self.sources}

    @property
    def tables_by_name(self) -> dict[str, DerivedAsset]:
        """The tables, by name, each after those that it reads."""
        return {table.name: table for table in self.tables}

    def suites_by_name(self) -> Suites:
        """The expectations, by the name of a source or table.

        Raises:
            ContractError: there is no source or table with a name.
        """
        suites = self.suites() if callable(self.suites) else self.suites
        self.check_suites(suites)
        return suites

    def check_suites(self, suites: Mapping[str, object]) -> None:
        """Raise `ContractError` unless suites have the names of sources and tables."""
        if not isinstance(suites, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ContractError.bad_value("suites", suites, "{name of a source or table: its suite}, or a function that returns that")
        asset_names = [*self.sources_by_name, *self.tables_by_name]
        for name in suites:
            if name not in asset_names:
                legal = f"names of sources and tables: {', '.join(asset_names)}{did_you_mean(name, asset_names)}"
                raise ContractError.bad_value("suites", name, legal)

    def columns_of_tables(self) -> dict[str, Sequence[str]]:
        """The columns of each table whose columns are known without its rows, by the table's name."""
        return columns_of_tables(self.sources_by_name, self.tables_by_name)

    def completeness_of(self, table: str) -> Completeness:
        """The least shares of matched rows of a table.

        Raises:
            ContractError: a share is not a number from 0 to 1.
        """
        limits = self.completeness
        if isinstance(limits, Mapping) and table in limits:
            return completeness_of("completeness", limits[table])
        default = completeness_of("completeness", DEFAULT_COMPLETENESS if isinstance(limits, Mapping) else limits)
        definition = self.tables_by_name[table]
        if isinstance(definition.operator, AsOfJoin):  # a version need not be used
            return default.of_side(definition.inputs[0]) if {*definition.inputs} <= {*self.sources_by_name} else Completeness()
        joins_sources = (
            isinstance(definition.operator, IntervalJoin)
            and definition.operator.how != "anti"
            and {*definition.inputs} <= {*self.sources_by_name}
        )
        return default if joins_sources else Completeness()

    def freshness_of(self, table: str) -> int | None:
        """How long a table may wait to reflect rows, in ms; None for no limit."""
        limit = self.freshness.get(table) if isinstance(self.freshness, Mapping) else self.freshness
        return None if limit is None else length_ms(limit, "freshness")

    @property
    def ahead_ms(self) -> int:
        """How far `final_at` may be ahead of the wall clock, in ms: the largest future skew of a source plus `final_after_ms`.

        A source without a `future_skew` does not count: a row ahead of the clock has a partition once its day begins.
        """
        skews = [length_ms(s.future_skew, "future_skew") for s in self.sources if s.future_skew is not None]
        return max(skews, default=0) + self.final_after_ms

    @property
    def final_after_ms(self) -> int:
        """How far a result's `final_at` may be after its events, in ms: the largest sum of lookbacks along a chain of tables."""
        after_event: dict[str, int] = {}
        for table in self.tables:
            before = max(after_event.get(name, 0) for name in table.inputs)
            after_event[table.name] = before + table.operator.reads.longest_lookback
        return max(after_event.values(), default=0)


def _check_day(parameter: str, day: object) -> None:
    legal = f"a day, YYYY-MM-DD, from {EARLIEST_DAY} to {LATEST_DAY}; each day is a partition"
    parsed = read_day(day)
    if parsed is None or not EARLIEST_DAY <= parsed <= LATEST_DAY:
        raise ContractError.bad_value(parameter, day, legal)


def _checked_values(parameter: str, values: Any, kind: type) -> tuple[Any, ...]:
    """The values as a tuple. Raise `ContractError` if one is of another kind, or if two names differ at most in case."""
    legal = f"a list of {kind.__name__} values"
    if not isinstance(values, Iterable):
        raise ContractError.bad_value(parameter, values, legal)
    values = tuple(values)
    for value in values:
        if not isinstance(value, kind):
            raise ContractError.bad_value(parameter, value, legal)
    names = [value.name for value in values]
    if (duplicate := first_duplicate(names)) is not None:
        raise ContractError.bad_value(parameter, duplicate, "names that differ in more than case; rename one of the two")
    return values
