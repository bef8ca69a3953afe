"""How the watermark of a source is computed, and how the watermarks of several sources are kept together."""

from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from typing import Protocol, runtime_checkable

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from assets.contract_checks import ContractError, check_length, check_sql
from operators.timing import Duration, length_ms


@dataclass(frozen=True)
class BoundedOutOfOrderness:
    """The watermark after a batch is `max(event_time) - bound - 1 ms`; it never decreases.

    Args:
        bound: how far a row may be behind the newest one without being late, zero or more.

    Raises:
        OperatorError: a value is not legal; the text names the parameter and says what is legal.
    """

    bound: Duration

    def __post_init__(self) -> None:
        check_length("bound", self.bound)

    @cached_property
    def bound_ms(self) -> int:
        """The bound in ms."""
        return length_ms(self.bound, "bound")


@dataclass(frozen=True)
class Punctuated:
    """Some rows carry a watermark (punctuated watermarks). The watermark after a batch is the highest of them; it never decreases.

    Args:
        watermark: SQL for a row's watermark (a timestamp; null if the row has none).
        marker: SQL that is true for a row that only carries a watermark and is no event; such rows are counted as markers and are not
            written to the log.

    Raises:
        OperatorError: a value is not legal; the text names the parameter and says what is legal.
    """

    watermark: str
    marker: str | None = None

    def __post_init__(self) -> None:
        check_sql("watermark", self.watermark)
        if self.marker is not None:
            check_sql("marker", self.marker)


@dataclass(frozen=True)
class BatchExpression:
    """The watermark after a batch is the value of an SQL expression over the batch's rows; it never decreases.

    It corresponds to a periodic `WatermarkGenerator` of Flink that is called once after each batch. For example, rows that are far ahead of
    the others can be left out: `timestamp_millis(bigint(percentile(unix_millis(event_time), 0.99))) - INTERVAL 10 MINUTES`.

    Args:
        watermark: SQL with aggregate functions, such as `max(event_time) - INTERVAL 10 MINUTES`: a timestamp, or null to leave the
            watermark as it is. It reads the source's columns, and `event_time`, of the accepted rows and duplicates of one batch.

    Raises:
        OperatorError: a value is not legal; the text names the parameter and says what is legal.

    >>> BatchExpression("max(event_time) - INTERVAL 10 MINUTES").watermark
    'max(event_time) - INTERVAL 10 MINUTES'
    """

    watermark: str

    def __post_init__(self) -> None:
        check_sql("watermark", self.watermark)
        if not _may_aggregate(self.watermark):
            legal = "SQL with an aggregate function, such as max(event_time), over a batch; for watermarks in rows use Punctuated"
            raise ContractError.bad_value("watermark", self.watermark, legal)


@dataclass(frozen=True, kw_only=True)
class BatchStatistics:
    """The statistics of a batch that a `WatermarkGenerator` receives. Times are in epoch ms, UTC.

    Args:
        rows: the number of accepted rows and duplicates, at least 1.
        first_event_time: the oldest event time among them.
        last_event_time: the newest event time among them.
        mean_event_time: their mean event time.
        newest_event_time: the newest event time of the source so far, this batch included.
        watermark: the source's watermark before the batch; None if it has none yet.
        ingested_at: the batch's time, by the ledger's clock.
    """

    rows: int
    first_event_time: int
    last_event_time: int
    mean_event_time: float
    newest_event_time: int
    watermark: int | None
    ingested_at: int


@runtime_checkable
class WatermarkGenerator(Protocol):
    """A watermark generator of your own, which corresponds to Flink's `WatermarkGenerator`.

    It is called once after each batch with rows, like `onPeriodicEmit`. It must not keep state, because a batch that was killed and is
    tried again must get the same watermark; the watermark before the batch and the newest event time are given.
    """

    def on_batch(self, batch: BatchStatistics) -> int | None:
        """The watermark after a batch, in epoch ms: every row up to it is expected to have arrived. None leaves it as it is."""
        ...


@dataclass(frozen=True)
class Generated:
    """The watermark after a batch is computed by a Python object from the batch's statistics; it never decreases.

    Args:
        generator: the object, a `WatermarkGenerator`; or text that names it or its class, `package.module:name`.

    Raises:
        OperatorError: a value is not legal; the text names the parameter and says what is legal.
    """

    generator: WatermarkGenerator | str

    def __post_init__(self) -> None:
        _ = self.instance

    @cached_property
    def instance(self) -> WatermarkGenerator:
        """The generator: the given object, or the one that the text names."""
        generator = _imported(self.generator) if isinstance(self.generator, str) else self.generator
        if isinstance(generator, type):
            try:
                generator = generator()
            except Exception as error:
                legal = f"a class that can be called without arguments; {type(error).__name__}: {error}"
                raise ContractError.bad_value("generator", self.generator, legal) from error
        if not isinstance(generator, WatermarkGenerator):
            raise ContractError.bad_value("generator", self.generator, "an object with a method `on_batch(batch)`")
        return generator


NO_DISORDER = BoundedOutOfOrderness("0 ms")
"""The watermark of a source whose rows arrive in order of event time."""
STRATEGIES = (BoundedOutOfOrderness, Punctuated, BatchExpression, Generated)


@dataclass(frozen=True)
class Alignment:
    """Keeps the watermarks of a group of sources together, as Flink's watermark alignment does.

    A source whose watermark is more than `max_drift` ahead of the lowest one in the group is not read until the others have caught up. So
    the rows that a join must keep for the slower source are bounded. A source with a watermark also waits while another source of the
    group has none yet. Idle sources hold back no other source.

    Args:
        group: the group's name; sources with the same name are aligned with each other.
        max_drift: how far the source's watermark may be ahead of the lowest one of the group.

    Raises:
        OperatorError: a value is not legal; the text names the parameter and says what is legal.
    """

    group: str
    max_drift: Duration

    def __post_init__(self) -> None:
        if not isinstance(self.group, str) or not self.group.strip() or not self.group.isprintable():  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ContractError.bad_value("group", self.group, "printable text that is not blank")
        check_length("max_drift", self.max_drift)

    @cached_property
    def max_drift_ms(self) -> int:
        """The largest drift in ms."""
        return length_ms(self.max_drift, "max_drift")


def _may_aggregate(expression: str) -> bool:
    """Whether an expression may aggregate: it calls an aggregate function, or a function or syntax that only Spark may know."""
    try:
        tree = sqlglot.parse_one(expression, dialect="spark")
    except SqlglotError:
        return True
    return tree.find(exp.AggFunc, exp.Anonymous) is not None


def _imported(text: str) -> object:
    """The object that `package.module:name` names."""
    module, _, name = text.partition(":")
    legal = "a WatermarkGenerator, or the name of one, 'package.module:name'"
    if not module or not name:
        raise ContractError.bad_value("generator", text, legal)
    try:
        return getattr(import_module(module), name)
    except Exception as error:  # the module is a user's, so it may raise anything
        raise ContractError.bad_value("generator", text, f"{legal}, that can be imported; {type(error).__name__}: {error}") from error
