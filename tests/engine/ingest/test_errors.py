"""The error of an ingest that could not read everything names some of the input, and says how much more there is."""

from platform_defs.engine.formats.files import File
from platform_defs.engine.formats.unreadable_files import Unread
from platform_defs.engine.ingest.errors import UnreadError


def test_files_and_folders_beyond_the_fifth_are_counted() -> None:
    unread = [Unread(File(1, f"file:/in/{n}.jsonl", 7, "l"), "timeout") for n in range(7)]
    text = str(UnreadError(unread, [], {f"/in/{n}": "Permission denied" for n in range(8)}))
    assert "file:/in/4.jsonl (timeout), and 2 more; /in/0 cannot be listed: Permission denied; /in/1 " in text
    assert "/in/4 cannot be listed: Permission denied; and 3 more. The cause is" in text
    assert str(UnreadError([], [], {f"/in/{n}": "Permission denied" for n in range(5)})).count("more") == 0
