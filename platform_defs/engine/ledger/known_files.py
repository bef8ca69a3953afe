"""The files of a source that the ledger records, as columns, so that a look-up needs no object for each recorded file."""

from collections.abc import Collection, Sequence

import pyarrow as pa

from platform_defs.engine.formats.files import (
    TOPIC,
    File,
    FileRecords,
    decoded_name,
    decoded_path,
    one_path,
    status_of,
    uri_below,
    without_scheme,
)
from platform_defs.engine.ledger.arrow_values import arrow_scalar
from platform_defs.engine.ledger.columns import Column, pc

_TEXT, _INT, _STATUS = pa.string(), pa.int64(), pa.int32()
_READ = arrow_scalar(0, _STATUS)


class KnownFiles:
    """The files of one source.

    A path is relative to the source's folder (`./`), or absolute in ledgers of format 1. An absolute path below the folder is converted to
    a relative path. Any other absolute path was recorded before the folder was moved. It may have two relative paths: the part after
    the first and the part after the last occurrence of the folder's name.
    """

    def __init__(self) -> None:
        self._paths, self._modified, self._length, self._statuses = Column(_TEXT), Column(_INT), Column(_INT), Column(_STATUS)
        self._keys: dict[str | None, tuple[Column, Column]] = {}
        self._ends: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._paths)

    def add(self, offsets: pa.Array) -> None:
        """Add entries of the ledger's `offsets`: `path|modified|length` for a file that was read.

        For a range of offsets of a Kafka topic, these parts are the path of the partition, the first offset and the number of offsets.

        The suffix `|unread` means that no row of the file could be read, and `|unread|n` that no row could be read at the nth retry.
        `|retry|n` requests a retry: it cancels every `unread` with a lower number.
        """
        parts = pc.split_pattern(offsets, "|")
        paths = _decode_paths(pc.list_element(parts, 0))
        modified, length = (pc.list_element(parts, n).cast(_INT) for n in (1, 2))
        self._paths, self._statuses = self._paths.with_values(paths), self._statuses.with_values(_statuses(parts))
        self._modified, self._length = self._modified.with_values(modified), self._length.with_values(length)
        ranges = pc.starts_with(paths, TOPIC)
        ends = pc.add(modified, length).filter(ranges).to_pylist()
        for path, end in zip(paths.filter(ranges).to_pylist(), ends, strict=True):
            self._ends[path] = max(end, self._ends.get(path, end))

    def records_of(self, files: Collection[File]) -> FileRecords:
        """The ledger's records of some files of the source."""
        folder = next((f.folder for f in files), None)
        keys = self._keys_below(folder)
        requested_keys = pa.array([key for file in files for key in file.keys], _TEXT)
        is_requested = (
            pc.or_(*[pc.is_in(key.between(0), value_set=requested_keys) for key in keys]) if len(self) and len(requested_keys) else None
        )
        statuses: dict[str, dict[tuple[int, int], list[int]]] = {}
        if is_requested is None:
            return FileRecords(statuses)
        columns = [c.between(0).filter(is_requested).to_pylist() for c in (*keys, self._modified, self._length, self._statuses)]
        for first_key, last_key, modified, length, status in zip(*columns, strict=True):
            for key in {first_key, last_key}:
                statuses.setdefault(key, {}).setdefault((modified, length), []).append(status)
        return FileRecords(statuses)

    def topic_ends(self) -> dict[str, int]:
        """The offset after the last one that was read, by the path of each partition of Kafka's topics."""
        return dict(self._ends)

    def _keys_below(self, folder: str | None) -> tuple[Column, Column]:
        """The possible relative paths of the recorded files below a folder."""
        first, last = self._keys.get(folder, (Column(_TEXT), Column(_TEXT)))
        new_paths = self._paths.between(len(first))
        if len(new_paths):
            new_columns = (new_paths, new_paths) if folder is None else _relative_paths(new_paths, without_scheme(folder).rstrip("/"))
            first, last = (column.with_values(values) for column, values in zip((first, last), new_columns, strict=True))
            self._keys[folder] = first, last
        return first, last


def _relative_paths(paths: pa.ChunkedArray, root: str) -> tuple[pa.ChunkedArray, pa.ChunkedArray]:
    """Paths relative to a folder; for paths elsewhere, by the first and by the last occurrence of the folder's name."""
    if pc.all(pc.starts_with(paths, "./")).as_py():
        return paths, paths
    name = root.rsplit("/", 1)[-1]
    is_inside, has_folder_name = pc.starts_with(paths, f"{root}/"), pc.match_substring(paths, f"/{name}/")
    is_relative = pc.starts_with(paths, "./")
    inside = pc.binary_join_element_wise("./", pc.utf8_slice_codeunits(paths, len(root) + 1), "")
    escaped = "".join(c if c.isalnum() or ord(c) > 127 else f"\\{c}" for c in name)
    tails = [pc.replace_substring_regex(paths, f"^(?s:{prefix}/{escaped}/)", "./") for prefix in (".*?", ".*")]
    first, last = (
        pc.if_else(is_relative, paths, pc.if_else(is_inside, inside, pc.if_else(has_folder_name, tail, paths))) for tail in tails
    )
    return first, last


def uris_below(paths: Sequence[str], folder: str) -> list[str]:
    """The present URIs of files, given their paths in the ledger or a quarantine, and their source's folder.

    A path that cannot be converted to one below the folder is returned unchanged.
    """
    if not paths:
        return []
    root, names = without_scheme(one_path(folder)).rstrip("/"), _decode_paths(pa.array(paths, _TEXT))
    ends = zip(paths, *[end.to_pylist() for end in _relative_paths(pa.chunked_array([names]), root)], strict=True)
    return [path if first != last or not first.startswith("./") else _uri(path, first[2:], folder) for path, first, last in ends]


def _uri(path: str, name: str, folder: str) -> str:
    if path.startswith("./"):  # encoded already
        return uri_below(folder, "") + path[2:]
    return path if decoded_path(path) == f"{without_scheme(one_path(folder)).rstrip('/')}/{name}" else uri_below(folder, name)


def _statuses(parts: pa.Array) -> pa.Array:
    """The statuses of files, as `status_of` encodes them; most files were read, and their offsets have no suffix."""
    all_read = pa.repeat(_READ, len(parts))
    with_status = pc.greater_equal(pc.list_value_length(parts), 4)
    if not pc.any(with_status).as_py():
        return all_read
    statuses = pa.array([status_of(fields[3:]) for fields in parts.filter(with_status).to_pylist()], _STATUS)
    return pc.replace_with_mask(all_read, with_status, statuses)


def _decode_paths(paths: pa.Array) -> pa.Array:
    """Decoded paths; few need decoding."""
    plain_paths = pc.replace_substring_regex(paths, "^file:/+", "/")
    is_encoded = pc.match_substring(plain_paths, "%")
    if not pc.any(is_encoded).as_py():
        return plain_paths
    return pc.replace_with_mask(
        plain_paths, is_encoded, pa.array([decoded_name(path) for path in plain_paths.filter(is_encoded).to_pylist()], _TEXT)
    )
