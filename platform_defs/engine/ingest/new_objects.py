"""Finds new input files behind an `s3a://` URI: objects that the ledger does not record in their present state.

S3 has no folders whose modification time would show that nothing has changed, so each look lists all objects: one request for 1,000 of
them. The objects are compared with the ledger page by page, and only new ones are kept.
"""

from collections.abc import Iterator, Mapping

from platform_defs.engine.formats.files import File, is_hidden, uri_below
from platform_defs.engine.lake.errors import store_reason
from platform_defs.engine.lake.objects import StoreError, pages
from platform_defs.engine.ledger.ledger import Ledger


class ObjectLanding:
    """Finds new files in one source's folder in S3. As in Spark's own listing, there are no empty and no hidden ones.

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
        """The folder, if the newest look could not list it, and why."""

    def forget(self) -> None:
        """Do nothing: every look examines everything."""

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
