"""The files of a source that the ledger records, as columns, so that a look-up needs no object for each recorded file."""

from collections.abc import Collection, Sequence

import pyarrow as pa

from platform_defs.engine.formats.files import (
    TOPIC,
    File,
    Known,
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
    a relative path. Any other absolute path was recorded before the lake was moved. It may have two relative paths: the part after the
    first and the part after the last occurrence of the folder's name.
    """

    def __init__(self) -> None:
        self._paths, self._modified, self._length, self._statuses = Column(_TEXT), Column(_INT), Column(_INT), Column(_STATUS)
        self._keys: dict[str | None, tuple[Column, Column]] = {}
        self._ends: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._paths)

    def add(self, offsets: pa.Array) -> None:
        """Add entries of the ledger's `offsets`: `path|modified|length` for a file that was read.

        For a range of offsets of a Kafka topic they are its partition's path, its first offset and the number of its offsets.

        The suffix `|unread` means that no row of the file could be read, and `|unread|n` that no row could be read at the nth retry.
        `|retry|n` requests a retry: it cancels every `unread` with a lower number.
        """
        parts = pc.split_pattern(offsets, "|")
        paths = _decoded(pc.list_element(parts, 0))
        modified, length = (pc.list_element(parts, n).cast(_INT) for n in (1, 2))
        self._paths, self._statuses = self._paths.extended(paths), self._statuses.extended(_statuses(parts))
        self._modified, self._length = self._modified.extended(modified), self._length.extended(length)
        ranges = pc.starts_with(paths, TOPIC)
        ends = pc.add(modified, length).filter(ranges).to_pylist()
        for path, end in zip(paths.filter(ranges).to_pylist(), ends, strict=True):
            self._ends[path] = max(end, self._ends.get(path, end))

    def among(self, files: Collection[File]) -> Known:
        """The ledger's records of some files of the source."""
        folder = next((f.folder for f in files), None)
        keys = self._of(folder)
        asked = pa.array([key for file in files for key in file.keys], _TEXT)
        found = pc.or_(*[pc.is_in(key.between(0), value_set=asked) for key in keys]) if len(self) and len(asked) else None
        statuses: dict[str, dict[tuple[int, int], list[int]]] = {}
        if found is None:
            return Known(statuses)
        columns = [c.between(0).filter(found).to_pylist() for c in (*keys, self._modified, self._length, self._statuses)]
        for one, other, modified, length, status in zip(*columns, strict=True):
            for key in {one, other}:
                statuses.setdefault(key, {}).setdefault((modified, length), []).append(status)
        return Known(statuses)

    def topic_ends(self) -> dict[str, int]:
        """The offset after the last one that was read, by the path of each partition of Kafka's topics."""
        return dict(self._ends)

    def _of(self, folder: str | None) -> tuple[Column, Column]:
        """The possible relative paths of the recorded files below a folder."""
        first, last = self._keys.get(folder, (Column(_TEXT), Column(_TEXT)))
        new = self._paths.between(len(first))
        if len(new):
            names = (new, new) if folder is None else _below(new, without_scheme(folder).rstrip("/"))
            first, last = (known.extended(name) for known, name in zip((first, last), names, strict=True))
            self._keys[folder] = first, last
        return first, last


def _below(paths: pa.ChunkedArray, root: str) -> tuple[pa.ChunkedArray, pa.ChunkedArray]:
    """Paths relative to a folder; for paths elsewhere, by the first and by the last occurrence of the folder's name."""
    if pc.all(pc.starts_with(paths, "./")).as_py():
        return paths, paths
    name = root.rsplit("/", 1)[-1]
    here, elsewhere = pc.starts_with(paths, f"{root}/"), pc.match_substring(paths, f"/{name}/")
    relative = pc.starts_with(paths, "./")
    inside = pc.binary_join_element_wise("./", pc.utf8_slice_codeunits(paths, len(root) + 1), "")
    escaped = "".join(c if c.isalnum() or ord(c) > 127 else f"\\{c}" for c in name)
    tails = [pc.replace_substring_regex(paths, f"^(?s:{any_}/{escaped}/)", "./") for any_ in (".*?", ".*")]
    first, last = (pc.if_else(relative, paths, pc.if_else(here, inside, pc.if_else(elsewhere, tail, paths))) for tail in tails)
    return first, last


def uris_below(paths: Sequence[str], folder: str) -> list[str]:
    """The present URIs of files, given their paths in the ledger or a quarantine, and their source's folder.

    A path that cannot be converted to one below the folder is returned unchanged.
    """
    if not paths:
        return []
    root, names = without_scheme(one_path(folder)).rstrip("/"), _decoded(pa.array(paths, _TEXT))
    ends = zip(paths, *[end.to_pylist() for end in _below(pa.chunked_array([names]), root)], strict=True)
    return [path if first != last or not first.startswith("./") else _uri(path, first[2:], folder) for path, first, last in ends]


def _uri(path: str, name: str, folder: str) -> str:
    if path.startswith("./"):  # encoded already
        return uri_below(folder, "") + path[2:]
    return path if decoded_path(path) == f"{without_scheme(one_path(folder)).rstrip('/')}/{name}" else uri_below(folder, name)


def _statuses(parts: pa.Array) -> pa.Array:
    """The statuses of files (see `status_of`); most files were read, and their offsets have no suffix."""
    plain = pa.repeat(_READ, len(parts))
    with_status = pc.greater_equal(pc.list_value_length(parts), 4)
    if not pc.any(with_status).as_py():
        return plain
    statuses = pa.array([status_of(found[3:]) for found in parts.filter(with_status).to_pylist()], _STATUS)
    return pc.replace_with_mask(plain, with_status, statuses)


def _decoded(paths: pa.Array) -> pa.Array:
    """Decoded paths; few need decoding."""
    plain = pc.replace_substring_regex(paths, "^file:/+", "/")
    encoded = pc.match_substring(plain, "%")
    if not pc.any(encoded).as_py():
        return plain
    return pc.replace_with_mask(plain, encoded, pa.array([decoded_name(p) for p in plain.filter(encoded).to_pylist()], _TEXT))
