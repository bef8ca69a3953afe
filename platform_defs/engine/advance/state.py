"""The state of a table: the stored rows that its later steps may read again. It is found without a Spark job."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from assets.contracts import DerivedAsset
from operators.columns import RESULT_TIME
from operators.engine_columns import EVENT_TIME, SEQ
from platform_defs.engine.inputs.progress import Progress
from platform_defs.engine.inputs.workspace import Workspace
from platform_defs.engine.lake.data_skipping import Ends, FileSize
from platform_defs.engine.lake.tables import Lake

StateKind = Literal["table", "kept_rows", "event_log", "input_table"]
"""Where rows are: in the table itself, in `kept_rows/<table>`, in a source's event log, or in another table."""


@dataclass(frozen=True)
class StatePart:
    """Rows of one table of the lake.

    Args:
        kind: where the rows are.
        table: the name of the table.
        within: for columns of the rows, the first and the last value; None for no end.
    """

    kind: StateKind
    table: str
    within: Mapping[str, Ends] = field(default_factory=dict)

    def files(self, lake: Lake) -> dict[tuple[str, str], FileSize]:
        """The sizes of the data files that can contain the rows, by table and path."""
        return {(self.table, path): size for path, size in lake.file_sizes(self.table, self.within).items()}


def input_rows(workspace: Workspace, asset: DerivedAsset, index: int, now: Progress, first: int | None = None) -> Iterator[StatePart]:
    """The rows of an input that later steps of an asset may read: for a source the rows of handled batches, for a table all rows.

    Args:
        workspace: the session, the lake and its ledger.
        asset: the asset.
        index: the input's index.
        now: the asset's progress.
        first: the first event time (epoch ms); None for all rows.
    """
    upstream = workspace.input_named(asset.inputs[index])
    if upstream.table is None:
        times = {} if first is None else {EVENT_TIME: (first, None)}
        yield StatePart("event_log", workspace.sources[upstream.name].log, {SEQ: (None, now.seq), **times})
        return
    time = EVENT_TIME if upstream.table.operator.emits.upserts else RESULT_TIME
    yield StatePart("input_table", upstream.name, {} if first is None else {time: (first, None)})


def all_input_rows(workspace: Workspace, asset: DerivedAsset, now: Progress) -> Iterator[StatePart]:
    """The rows of all inputs that later steps of an asset may read, of any event time (see `input_rows`)."""
    for index in range(len(asset.inputs)):
        yield from input_rows(workspace, asset, index, now)
