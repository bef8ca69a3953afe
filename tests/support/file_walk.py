"""Lists the files below a folder by a plain walk, as a reference for the finder of new files."""

import os
from collections.abc import Iterator

from platform_defs.engine.formats.files import File, found_file, is_hidden, one_path


def landed_files(folder: str, source: str) -> Iterator[File]:
    """The files below a local folder that an ingest reads: no hidden files, no links, and nothing behind links."""
    root = one_path(folder)
    for below, folders, names in os.walk(root):
        folders[:] = [f for f in folders if not is_hidden(f)]
        for path in (f"{below}/{name}" for name in names if not is_hidden(name)):
            if (file := found_file(path, source, root)) is not None:
                yield file
