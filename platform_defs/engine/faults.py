"""Fault points: named points before and after the engine's writes, at which a test can kill the process. In production they do nothing.

`POINTS` lists all of them. `make chaos` writes them into the table in `docs/explanation/reliability.md`. It reports each point that its
script passes but at which it has killed no process.
"""

from collections.abc import Callable

POINTS: dict[str, str] = {
    "ingest.before_append": "ingest: before the rows of a source are appended to its log, or its rejected rows to its quarantine",
    "ingest.after_log": "ingest: the rows of a source are in its log, but not in a committed ledger batch",
    "ingest.after_quarantine": "ingest: the rejected rows of a source are in its quarantine too",
    "ingest.before_ledger": "ingest: the rows of all sources are written, the ledger batch is not",
    "ingest.after_ledger": "ingest: the batch is committed, but the call has not returned",
    "control_batch.before_ledger": "watermark, idle, clock, drain or retry of files: before the batch is committed to the ledger",
    "control_batch.after_ledger": "watermark, idle, clock, drain or retry of files: the batch is committed, but the call has not returned",
    "release.before_write": "release of rejected rows: before their file is written under a hidden name",
    "release.after_write": "release of rejected rows: the hidden file is written, but its rows are not marked as released",
    "release.after_mark": "release of rejected rows: the rows are marked, but the file still has its hidden name",
    "release.after_rename": "release of rejected rows: the file has its final name, but the call has not returned",
    "uncommitted.before_remove": "before uncommitted rows, which no ledger batch contains, are removed",
    "uncommitted.after_remove": "uncommitted rows are removed, and their batch number is not used yet",
    "ledger.before_compact": "the ledger has many files, before they are compacted",
    "ledger.after_compact": "the ledger is compacted, but the new checkpoint is not written yet",
    "lake.before_compact": "a commit left a table with many small files, before they are merged or compacted",
    "lake.after_compact": "the small files are merged or compacted, but the commit has not returned",
    "advance.before_commit": "advance or rebuild, appended table: before results or corrections are committed, with the progress",
    "advance.after_commit": "advance or rebuild, appended table: results or corrections are committed, but the step has not returned",
    "advance.before_changelog": "advance, upserting: before the changes and the progress are committed",
    "advance.after_changelog": "advance, upserting: changes and progress are committed, but not applied to the upserted table",
    "advance.before_create": "advance, upserting: before the upserted table is created",
    "advance.after_create": "advance, upserting: the upserted table is created, but the step has not returned",
    "advance.before_apply": "advance, upserting: before changes are applied to the upserted table",
    "advance.after_apply": "advance, upserting: changes are applied, but the step has not returned",
    "decisions.before_commit": "advance, sessions: before the lateness decisions of a batch are recorded",
    "decisions.after_commit": "advance, sessions: the lateness decisions are recorded, but no step has used them yet",
    "kept.before_commit": "advance, with kept rows: the step is committed, the rows that later steps need are not",
    "kept.after_commit": "advance, with kept rows: the rows that later steps need are committed too, but the step has not returned",
    "early.before_commit": "advance, early results: the steps are committed, the early results are not",
    "early.after_commit": "advance, early results: the early results are committed, but the call has not returned",
    "publish.before_write": "publish: before the steps that the folder lacks are written to it",
    "publish.after_write": "publish: the steps are in the folder, but its mark still has the number of an earlier step",
    "publish.after_mark": "publish: the mark has the number of the last step, but the call has not returned",
    "kafka.before_write": "publish to Kafka: before the records of a step are written to the topic",
    "kafka.after_write": "publish to Kafka: the records of a step are on the topic, but the consumer group does not record the step yet",
    "kafka.after_commit": "publish to Kafka: the consumer group records the step, but the call has not returned",
    "rebuild.before_write": "rebuild: before the rows that differ are written",
    "rebuild.after_write": "rebuild: the rows that differ are written, but the call has not returned",
    "rebuild.before_empty": "rebuild of a whole table: before it is emptied",
    "rebuild.after_empty": "rebuild of a whole table: the table or its changelog is empty, in its next generation; no step has run yet",
    "retention.before_totals": "retention: before the totals of the rows to remove from an event log are written",
    "retention.after_totals": "retention: the totals are written, but the rows are still in the log",
    "retention.after_remove": "retention: the rows are removed from the log, but the call has not returned",
    "retention.before_quarantine": "retention: before old rows are removed from a quarantine",
    "retention.after_quarantine": "retention: old rows are removed from a quarantine, but the call has not returned",
    "retention.before_changelog": "retention: before the oldest steps of a changelog are replaced by their result",
    "retention.after_changelog": "retention: the oldest steps of a changelog are replaced, but the call has not returned",
    "retention.before_decisions": "retention: before the lateness decisions of removed rows are removed",
    "retention.after_decisions": "retention: the lateness decisions are removed, but the call has not returned",
    "retention.before_format": "retention, ledger: before its format number is raised; older versions of Tidemark refuse the new format",
    "retention.before_summary": "retention, ledger: the format number is raised, but the old batches are not replaced by their summary",
    "retention.after_summary": "retention, ledger: the old batches are replaced, but the call has not returned",
    "maintenance.before_compact": "maintenance: before a table's small files are compacted",
    "maintenance.after_compact": "maintenance: the files are compacted, but the newest commit lacks the table's progress",
    "maintenance.before_vacuum": "maintenance: before files that no version needs are deleted",
    "maintenance.after_vacuum": "maintenance: the files are deleted, but the newest commit lacks the table's progress",
    "maintenance.before_carry": "maintenance: before a commit that repeats the table's progress",
    "maintenance.after_carry": "maintenance: the progress is repeated, but the new checkpoint is not written yet",
    "maintenance.before_checkpoint": "maintenance: before a checkpoint of the table's Delta log is written",
    "maintenance.after_checkpoint": "maintenance: the table is done, other tables are not",
    "lease.before_take": "a lake behind a URI: before a writer takes its lease",
    "lease.after_take": "a lake behind a URI: the lease is taken, but nothing is written under it",
    "lease.before_renew": "a lake behind a URI: before the heartbeat of a lease",
    "lease.after_renew": "a lake behind a URI: after the heartbeat of a lease",
    "lease.before_release": "a lake behind a URI: the writer has finished or failed, before its lease is released",
    "lease.after_release": "a lake behind a URI: the lease is released, but the call has not returned",
}
"""Each point, and the state of the lake at it."""

_handler: Callable[[str], None] | None = None


def install(handler: Callable[[str], None] | None) -> None:
    """Call `handler` with the name of every point that is reached from now on; None to stop."""
    global _handler  # noqa: PLW0603 - one handler for the process; passing a hook through every call would cost more
    _handler = handler


def point(name: str) -> None:
    """Call the installed handler, if any, with the name of a point."""
    if _handler is not None:
        _handler(name)
