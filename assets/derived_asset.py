"""The definition of a derived asset, as a value that is checked when it is created."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, get_args

from pyspark.sql import DataFrame

from assets.contract_checks import ContractError, check_group, check_owners, check_table_name, check_tags
from assets.operator_parameters import event_times
from assets.preparation import Preparation
from assets.shape import Shape
from operators.accounting import TracesInputs
from operators.as_of_join import AsOfJoin
from operators.contract import Operator, RunsAsQuery, has_query
from operators.engine_columns import EVENT_TIME
from operators.errors import StreamingError, is_instance

StreamsAs = Literal["ranges", "query"]
CHANGELOGS = "changelog"
"""The folder of the lake that holds the changelogs of upserted tables."""


@dataclass(frozen=True, kw_only=True)
class DerivedAsset:
    """A table that one operator computes from sources or other derived tables.

    Args:
        name: the table's name, by the same rules as a source's. Python's keywords, names that Dagster refuses, and the names of Tidemark's
            own jobs and steps are refused too.
        inputs: names of sources or derived assets, in the order of the operator's inputs.
        operator: the operator.
        prepare: for an input's name, what is done to its rows before the operator reads them; see `Preparation`. Rows with change kinds
            cannot be filtered: a deleted or updated row could remain in the result. If one input is joined with itself, the names of the
            operator's inputs (`left`, `right`) can be used instead, to prepare each side differently.
        shape: which results are in the table, and which columns are computed from them (`Shape`); or a pure Python function from the
            operator's result to the table's rows, which must keep the operator's own columns.
        description: what the table contains.
        columns: descriptions of the table's columns. By default a column has the description of the input's column from which it comes.
        group: the asset's group in Dagster: letters, digits, `_` and `/`.
        version: the version of the code that the engine cannot compare: a function as `shape`, an operator of your own, and functions or
            objects of your own among an operator's parameters. A table that was made with another version is refused until it is
            rebuilt.
        streams_as: how a stream computes the table's steps. With `ranges` a step reads the rows that it needs from the event logs; with
            `query` a Structured Streaming query keeps them in Spark's own state. The table is the same, so this can be changed at any
            time. A query is refused for operators for which Spark would compute other results, and for inputs that are tables.
        owners: the owners of the asset in Dagster: mail addresses, or `team:NAME`.
        tags: its tags in Dagster.

    Raises:
        OperatorError: a value is not legal; the text names the parameter and says what is legal.
    """

    name: str
    inputs: tuple[str, ...]
    operator: Operator
    prepare: Mapping[str, Preparation] = field(default_factory=dict)
    shape: Shape | Callable[[DataFrame], DataFrame] | None = None
    description: str = ""
    columns: Mapping[str, str] = field(default_factory=dict)
    group: str = "tables"
    version: str = ""
    streams_as: StreamsAs = "ranges"
    owners: Sequence[str] = ()
    tags: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for parameter in ("description", "version"):
            if getattr(self, parameter) is None:  # such as the docstring of a function that has none
                object.__setattr__(self, parameter, "")
        check_table_name(self.name)
        check_group(self.group)
        check_owners(self.owners)
        check_tags(self.tags)
        self._check_kinds()
        self._check_texts()
        self._check_streams_as()
        if len(self.inputs) != len(self.operator.inputs):
            raise ContractError.bad_value(
                "inputs", self.inputs, f"one name for each of the operator's inputs: {', '.join(self.operator.inputs)}"
            )
        self._check_preparations()
        for time, column in event_times(self.operator).items():
            if column != EVENT_TIME:
                legal = f"{EVENT_TIME!r}, by which the engine reads and counts rows; set the source's `event_time` to that column"
                raise ContractError.bad_value(time, column, legal)
        self._check_shape()

    def _check_kinds(self) -> None:
        """Raise `ContractError` if the value of a parameter is of another kind."""
        if not is_instance(self.operator, Operator):
            raise ContractError.bad_value("operator", self.operator, "an operator with its parameters, such as Aggregate(by=..., ...)")
        if not isinstance(self.inputs, list | tuple):  # pyright: ignore[reportUnnecessaryIsInstance]
            example = f", such as ({self.inputs!r},)" if isinstance(self.inputs, str) else ""
            raise ContractError.bad_value("inputs", self.inputs, f"a tuple of names of sources and tables{example}")
        for parameter, legal in (("prepare", "{name of an input: Preparation(...)}"), ("columns", "{name of a column: its description}")):
            if not isinstance(value := getattr(self, parameter), Mapping):
                raise ContractError.bad_value(parameter, value, legal)
        if self.shape is not None and not isinstance(self.shape, Shape) and (isinstance(self.shape, type) or not callable(self.shape)):
            legal = "Shape(where=..., select=...), a function from the operator's result to the table's rows, or None"
            raise ContractError.bad_value("shape", self.shape, legal)

    def _check_texts(self) -> None:
        """Raise `ContractError` if a value that is text, or consists of texts, is or contains anything else."""
        for parameter, texts, legal in (
            ("inputs", self.inputs, "a tuple of names of sources and tables"),
            ("columns", (*self.columns, *self.columns.values()), "{name of a column: its description}"),
            ("description", (self.description,), "text"),
            ("version", (self.version,), "text, such as '2'"),
        ):
            if not all(isinstance(text, str) for text in texts):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise ContractError.bad_value(parameter, getattr(self, parameter), legal)

    def _check_streams_as(self) -> None:
        """Raise `ContractError` if the table is to be computed by a query that would have other results."""
        if self.streams_as not in get_args(StreamsAs):
            raise ContractError.bad_value("streams_as", self.streams_as, ", ".join(get_args(StreamsAs)))
        if self.streams_as == "ranges":
            return
        kind, legal = type(self.operator).__name__, f"'ranges' for table {self.name!r}"
        if not isinstance(self.operator, RunsAsQuery) or not has_query(self.operator):
            reason = "Spark has no streaming form of it with the same results"
            raise ContractError.bad_value("streams_as", self.streams_as, f"{legal}, whose operator is {kind}: {reason}")
        try:
            self.operator.check_query()
        except StreamingError as error:
            raise ContractError.bad_value("streams_as", self.streams_as, f"{legal}: {error}") from error

    def _check_shape(self) -> None:
        kind = type(self.operator).__name__
        if isinstance(self.shape, Shape):
            if self.shape.where is not None and isinstance(self.operator, TracesInputs):
                legal = f"None for {kind}: its results account for the rows of its inputs; filter its inputs by `prepare`"
                raise ContractError.bad_value("where", self.shape.where, legal)
        elif self.shape and self.operator.reads.merges_rows:
            legal = f"a Shape: {kind} merges new rows into the table's rows, which a function could change"
            raise ContractError.bad_value("shape", self.shape, legal)

    def _check_preparations(self) -> None:
        for preparation in self.prepare.values():
            if not isinstance(preparation, Preparation):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise ContractError.bad_value("prepare", preparation, "Preparation(where=..., select=...)")
        for index, name in enumerate(self.inputs):
            preparation = self.preparation(index)
            if preparation is not None and preparation.where is not None and self._has_change_kinds(index):
                legal = f"no condition for {name!r}, whose rows have change kinds: filter them where they are made"
                raise ContractError.bad_value("where", preparation.where, legal)

    def _has_change_kinds(self, index: int) -> bool:
        """Whether the operator reads change kinds of the rows of input `index`, among them the versions of an as-of join."""
        reads = self.operator.reads
        return reads.change is not None or (
            reads.is_versioned(index) and isinstance(self.operator, AsOfJoin) and self.operator.change is not None
        )

    def preparation(self, index: int) -> Preparation | None:
        """What is done to the rows of input `index` before the operator reads them; None if nothing."""
        return self.prepare.get(self.preparation_key(index))

    def preparation_key(self, index: int) -> str:
        """The name under which `prepare` has the preparation of input `index`, if it has one."""
        name, sides = self.inputs[index], self.operator.inputs
        by_side = self.inputs.count(name) > 1 and any(side in self.prepare for side in sides)
        return sides[index] if by_side else name

    def prepares(self, name: str) -> bool:
        """Whether anything is done to the rows of an input, on any side."""
        return any(self.preparation(index) is not None for index, read in enumerate(self.inputs) if read == name)

    def columns_read(self, index: int, columns: Sequence[str]) -> Sequence[str]:
        """The columns of an input that the operator reads.

        Args:
            index: the input's index.
            columns: the input's own columns.
        """
        preparation = self.preparation(index)
        return columns if preparation is None else [*preparation.columns(columns)]

    def rows(self, *frames: DataFrame) -> DataFrame:
        """The table's rows for complete input."""
        return self.shaped(self.operator(*frames))

    def shaped(self, results: DataFrame) -> DataFrame:
        """The table's rows for results of the operator."""
        return self.shape(results) if self.shape else results

    @property
    def has_every_result(self) -> bool:
        """Whether the table has each result of the operator, so that it can be continued from its rows."""
        return self.shape is None or (isinstance(self.shape, Shape) and self.shape.where is None)

    @property
    def changelog(self) -> str:
        """The changelog's path in the lake, for an operator that upserts."""
        return f"{CHANGELOGS}/{self.name}"

    @property
    def decisions(self) -> str:
        """The path of the recorded lateness decisions in the lake, for an operator that decides lateness batch by batch."""
        return f"verdicts/{self.name}"

    @property
    def kept(self) -> str:
        """The path in the lake of the rows that later steps need, for an operator that says which these are (see `KeepsRows`)."""
        return f"kept_rows/{self.name}"

    @property
    def early(self) -> str:
        """The path of the early results in the lake, for an operator that shows the content of open windows."""
        return f"early/{self.name}"
