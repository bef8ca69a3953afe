"""The errors of a sink; needs no session."""

from platform_defs.engine.operations.sink import SinkError


def test_the_error_for_deleted_files_says_what_changes_when_files_are_deleted() -> None:
    text = str(SinkError.no_files("pairs", "topic_of_pairs", 3))
    assert "by default after 7 days" in text
    assert "`delta.deletedFileRetentionDuration`" in text
    assert "`retention_hours`" in text
