"""Named points before and after each write, where a test may kill the engine. In production they do nothing.

`POINTS` is the one list of them: the table in `docs/reliability.md` and the kills of `make chaos` are made from it.
"""

from collections.abc import Callable

POINTS: dict[str, str] = {
    "ingest.before_append": "ingest: before the rows of a source are appended to its log, or its rejects to its quarantine",
    "ingest.after_log": "ingest: the rows of a source are in its log, and no ledger batch names them",
    "ingest.after_quarantine": "ingest: its rejects are in the quarantine too",
    "ingest.before_ledger": "ingest: all sources are written, the ledger batch is not",
    "ingest.after_ledger": "ingest: the entry is committed, and the caller does not know",
    "signals.before_ledger": "watermark, idle or drain: before its ledger batch",
    "signals.after_ledger": "watermark, idle or drain: the entry is committed, and the caller does not know",
    "release.before_write": "release of rejected rows: before the file of them is written under a hidden name",
    "release.after_write": "release of rejected rows: the hidden file is there, and its rows are not marked as released",
    "release.after_mark": "release of rejected rows: they are marked, and the file still has its hidden name",
    "release.after_rename": "release of rejected rows: the file has its name, and the caller does not know",
    "orphans.before_remove": "before rows that no ledger batch names are removed",
    "orphans.after_remove": "such rows are removed, and their place in the order is not taken yet",
    "ledger.before_compact": "the ledger has many files, before they are compacted",
    "ledger.after_compact": "the ledger is compacted, and has no checkpoint yet",
    "lake.before_compact": "an append left a table with many small files, before they are compacted",
    "lake.after_compact": "they are compacted, and the caller does not know that its append is there",
    "advance.before_commit": "advance, appending: before the results and the progress",
    "advance.after_commit": "advance, appending: both are committed, and the caller does not know",
    "advance.before_changelog": "advance, upserting: before the changes and the progress",
    "advance.after_changelog": "advance, upserting: both are committed, the current table is not folded",
    "advance.before_create": "advance, upserting: the current table is about to be made",
    "advance.after_create": "advance, upserting: the current table is there, and the caller does not know",
    "advance.before_fold": "advance, upserting: before changes are folded into the current table",
    "advance.after_fold": "advance, upserting: folded, and the caller does not know",
    "verdicts.before_commit": "advance, sessions: before the verdicts on an entry's rows behind the watermark",
    "verdicts.after_commit": "advance, sessions: they are recorded, and no result is made of them",
    "early.before_commit": "advance, early results: the steps are committed, what open windows hold is not shown yet",
    "early.after_commit": "advance, early results: shown, and the caller does not know",
    "publish.before_write": "publish: before the steps that the folder lacks are written to it",
    "publish.after_write": "publish: they are in the folder, and its mark does not tell of them",
    "publish.after_mark": "publish: the mark names them, and the caller does not know",
    "rebuild.before_write": "rebuild: the difference is known, before it is written",
    "rebuild.after_write": "rebuild: the days are written, and the caller does not know",
    "rebuild.before_empty": "rebuild of a whole table: before it is emptied",
    "rebuild.after_empty": "rebuild of a whole table: it is empty, of its next generation, and no step has been made again",
    "maintenance.before_compact": "maintenance: before a table's small files are compacted",
    "maintenance.after_compact": "maintenance: compacted, and the newest commit does not hold what the table's commits remember",
    "maintenance.before_vacuum": "maintenance: before files that no version needs are deleted",
    "maintenance.after_vacuum": "maintenance: deleted, and the newest commit does not hold what the table's commits remember",
    "maintenance.before_carry": "maintenance: before a commit that carries forward what the table's commits remember",
    "maintenance.after_carry": "maintenance: carried forward, and no checkpoint is made",
    "maintenance.before_checkpoint": "maintenance: before a checkpoint of the table's log",
    "maintenance.after_checkpoint": "maintenance: the table is done, others are not",
    "lease.before_take": "a lake behind a URI: before a writer takes its lease",
    "lease.after_take": "a lake behind a URI: the lease is taken, and nothing is written under it",
    "lease.before_renew": "a lake behind a URI: before the heartbeat of a lease",
    "lease.after_renew": "a lake behind a URI: after the heartbeat of a lease",
    "lease.before_release": "a lake behind a URI: all is written, before the lease is given back",
    "lease.after_release": "a lake behind a URI: the lease is given back, and the caller does not know",
}
"""Each point, and the state of the lake that it stands for."""

_handler: Callable[[str], None] | None = None


def install(handler: Callable[[str], None] | None) -> None:
    """Call `handler` with the name of every point passed from now on; None to stop."""
    global _handler  # noqa: PLW0603 - one process, one engine; threading a hook through every call would cost more
    _handler = handler


def point(name: str) -> None:
    """Pass a point."""
    if _handler is not None:
        _handler(name)
