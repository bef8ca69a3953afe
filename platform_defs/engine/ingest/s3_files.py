"""Finds new input files behind an `s3a://` URI: objects that the ledger does not record in their present state.

S3 has no modification times of folders, which would show that nothing has changed. So each look lists all objects, with one request for
each 1,000 objects. It compares each page with the ledger, and keeps only new objects in memory.
"""

from collections.abc import Iterator, Mapping

from pyspark.sql import SparkSession

from platform_defs.engine.formats.files import File, is_hidden, uri_below
from platform_defs.engine.ingest.new_files import ListingError, StoreFileFinder
from platform_defs.engine.lake.errors import store_reason
from platform_defs.engine.lake.objects import StoreError, pages
from platform_defs.engine.ledger.ledger import Ledger


class S3FileFinder(StoreFileFinder):
    """Finds new files in one source's folder in S3, without Spark.

    Args:
        source: the source.
        folder: the URI of its folder.
        ledger: the lake's ledger.
        options: deltalake's options for the store; None for those of the environment.
    """

    def __init__(self, source: str, folder: str, ledger: Ledger, options: Mapping[str, str] | None) -> None:
        super().__init__(source, folder, ledger)
        self._options = options

    def _pages(self, spark: SparkSession | None) -> Iterator[list[File]]:
        for page in self._objects():
            yield [
                File(modified, uri_below(self._folder, name), length, self._source, folder=self._folder)
                for name, modified, length in page
                if length and not any(is_hidden(part) for part in name.split("/"))
            ]

    def _objects(self) -> Iterator[list[tuple[str, int, int]]]:
        try:
            yield from pages(self._folder, self._options)
        except StoreError as error:
            raise ListingError(store_reason(error)) from error
