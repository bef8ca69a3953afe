"""Finders of new files: the files in a source's folder that the ledger does not record in their present state.

There is one finder for each kind of folder, which `file_finders` chooses: `local_files` for folders on this machine, `s3_files` for S3, and
`hadoop_files` for other URIs, which only Spark can list.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from operators.errors import TidemarkError
from platform_defs.engine.formats.files import File, hadoop_file
from platform_defs.engine.ingest.errors import IngestError
from platform_defs.engine.lake.errors import spark_condition
from platform_defs.engine.ledger.ledger import Ledger

_NO_FILE_SYSTEM = ("UnsupportedFileSystemException", "ClassNotFoundException", "NoClassDefFoundError")
"""Signs that Spark lacks the JARs of a store. Any other error may be a fault of the store or the network."""


class FileFinder(ABC):
    """Finds new files in one source's folder. It keeps no session, so that one engine can use the finders of an earlier one.

    Args:
        source: the source.
        folder: its folder, a path or a URI.
        ledger: the lake's ledger.
    """

    needs_spark = False
    """Whether only Spark can list the folder."""

    def __init__(self, source: str, folder: str, ledger: Ledger) -> None:
        self._source, self._folder, self._ledger = source, folder, ledger
        self.unlisted: dict[str, str] = {}
        """Why the newest look could not examine a folder or a file, by its path or URI."""

    @property
    def links(self) -> Sequence[str]:
        """The symbolic links below the folder that were skipped so far, by path."""
        return ()

    @abstractmethod
    def prepare(self, spark: SparkSession) -> None:
        """Prepare the folder for an ingest, before the first look.

        Raises:
            IngestError: the folder cannot be used, whatever it contains.
        """

    @abstractmethod
    def new(self, spark: SparkSession | None = None) -> list[File]:
        """The files that the ledger does not record in their present state, the oldest first; none if the folder does not exist.

        Folders and files that cannot be examined now are left out, and are in `unlisted`; they are no error.

        Args:
            spark: the session; None if there is none, as in a sensor. A folder that only Spark can list is then in `unlisted`.
        """

    @abstractmethod
    def forget(self) -> None:
        """Make the next look examine everything, as the first look of a process does."""


class ListingError(TidemarkError):
    """A store could not list a folder. The text is the reason, in one line."""


class StoreFileFinder(FileFinder):
    """Finds new files in a store, whose folders have no modification times. Each look lists all files, and keeps the new ones."""

    def prepare(self, spark: SparkSession) -> None:
        """Raise `IngestError` if Spark has no file system for the folder's URI, as without the JARs of its store."""
        try:
            hadoop_file(spark, self._folder)
        except Py4JJavaError as error:
            if any(sign in str(error) for sign in _NO_FILE_SYSTEM):
                raise IngestError.no_store(self._source, self._folder, spark_condition(error)) from error

    def new(self, spark: SparkSession | None = None) -> list[File]:
        """The files that the ledger does not record in their present state, the oldest first; none if the store cannot list the folder."""
        self.unlisted, new_files = {}, list[File]()
        try:
            for page in self._pages(spark):
                new_files += self._ledger.files_to_read(self._source, page)
        except ListingError as error:
            self.unlisted[self._folder] = str(error)
            return []
        return sorted(new_files)

    def forget(self) -> None:
        """Do nothing: each look examines all files."""

    @abstractmethod
    def _pages(self, spark: SparkSession | None) -> Iterator[list[File]]:
        """All files in the folder, without empty and hidden ones, in pages; raises `ListingError` if the store cannot list them now."""
