"""Finds new input files behind an `s3a://` URI: objects that the ledger does not record in their present state.

S3 has no modification times of folders, which would show that nothing has changed. So each look lists all objects, with one request for
each 1,000 objects. It compares each page with the ledger, and keeps only new objects in memory.
"""

from collections.abc import Iterator, Mapping

from platform_defs.engine.formats.files import File, is_hidden, uri_below
from platform_defs.engine.lake.errors import store_reason
from platform_defs.engine.lake.objects import StoreError, pages
from platform_defs.engine.ledger.ledger import Ledger


class ObjectLanding:
    """Finds new files in one source's folder in S3. As in Spark's own listing, empty and hidden files are left out.

    Args:
        source: the source.
        folder: the URI of its folder.
        ledger: the lake's ledger.
        options: deltalake's options for the store; None for those of the environment.
    """

    links: tuple[str, ...] = ()
    """S3 has no links."""

    def __init__(self, source: str, folder: str, ledger: Ledger, options: Mapping[str, str] | None) -> None:
        self._source, self._folder, self._ledger, self._options = source, folder, ledger, options
        self.unlisted: dict[str, str] = {}
        """Why the newest look could not list the folder, by the folder; empty if it could."""

    def forget(self) -> None:
        """Do nothing: every look examines all objects."""

    def new(self) -> list[File]:
        """The files that the ledger does not record in their present state, the oldest first; none if the folder cannot be listed."""
        files = list[File]()
        self.unlisted = {}
        try:
            for page in self._pages():
                files += self._ledger.files_to_read(self._source, page)
        except StoreError as error:
            self.unlisted[self._folder] = store_reason(error)
            return []
        return sorted(files)

    def _pages(self) -> Iterator[list[File]]:
        for page in pages(self._folder, self._options):
            yield [
                File(modified, uri_below(self._folder, name), length, self._source, folder=self._folder)
                for name, modified, length in page
                if length and not any(is_hidden(part) for part in name.split("/"))
            ]
