"""What the ledger's offsets say of a file: read, set aside, asked to be read again, in whatever order they are kept."""

from itertools import permutations

import pytest

from platform_defs.resources.files import File, Known

FILE = File(5, "file:/in/a%20b.jsonl", 7, "l")
DAMAGED = File(5, "file:/in/a%20b.jsonl", 7, "l", fault="torn")
READ, UNREAD = FILE.offset, DAMAGED.offset


@pytest.mark.parametrize(
    ("offsets", "holds"),
    [
        ((READ,), True),
        ((UNREAD,), True),
        ((UNREAD, f"{READ}|retry|1"), False),
        ((UNREAD, f"{READ}|retry|1", f"{UNREAD}|1"), True),
        ((UNREAD, f"{READ}|retry|1", f"{UNREAD}|1", f"{READ}|retry|2"), False),
        ((UNREAD, f"{READ}|retry|1", READ), True),
        ((UNREAD, f"{READ}|retry|1", f"{UNREAD}|1", f"{READ}|retry|2", READ), True),
        (("file:/in/a b.jsonl|5|7|unread", f"{READ}|retry|1"), False),
        (("file:/in/a%20b.jsonl|5|-1|unread",), False),
    ],
)
def test_a_retry_voids_the_refusals_before_it_and_no_later_one(offsets: tuple[str, ...], holds: bool) -> None:
    for shuffled in permutations(offsets):
        assert Known(shuffled).holds(FILE) is holds
        assert Known(shuffled).holds_path(FILE)


def test_every_try_is_told_apart() -> None:
    offsets = [UNREAD]
    for number in (1, 2, 3):
        offsets.append(Known(offsets).retry_of(FILE))
        tried = Known(offsets).judged(FILE)
        assert (tried.fault, tried.retries, tried.offset) == (None, number, READ)
        assert Known([*offsets, READ]).judged(FILE).fault is not None
        refused = File(5, tried.path, 7, "l", fault="torn", retries=tried.retries)
        assert refused.offset == f"{UNREAD}|{number}"
        offsets.append(refused.offset)
        assert Known(offsets).holds(FILE)
