"""Chooses the finder of new files for each source's folder, by the folder's URI."""

from collections.abc import Mapping

from platform_defs.engine.ingest.hadoop_files import HadoopFileFinder
from platform_defs.engine.ingest.local_files import LocalFileFinder
from platform_defs.engine.ingest.new_files import FileFinder
from platform_defs.engine.ingest.s3_files import S3FileFinder
from platform_defs.engine.ledger.ledger import Ledger
from platform_defs.paths import is_in_s3, is_local


def file_finders(folders: Mapping[str, str], ledger: Ledger, options: Mapping[str, str] | None = None) -> dict[str, FileFinder]:
    """The finders of new files, by source.

    Args:
        folders: each source's folder.
        ledger: the lake's ledger.
        options: deltalake's options for S3; None for those of the environment.
    """
    return {source: _finder(source, folder, ledger, options) for source, folder in folders.items()}


def _finder(source: str, folder: str, ledger: Ledger, options: Mapping[str, str] | None) -> FileFinder:
    if is_local(folder):
        return LocalFileFinder(source, folder, ledger)
    return S3FileFinder(source, folder, ledger, options) if is_in_s3(folder) else HadoopFileFinder(source, folder, ledger)
