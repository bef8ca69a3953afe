"""What a run's newest look for a source's input found, by which the silence of the source is measured.

Input that arrives while micro-batches are ingested is found by the next look only. So a source is known to be silent up to its newest look,
and not up to the present.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Look:
    """The newest look for the input of a source.

    Args:
        at: when it began, in epoch ms of the wall clock.
        has_input: whether it found input, or did not look because the source waits for its alignment group.
        unreadable_since: since when some input of the source cannot be read, in epoch ms of the wall clock; None if all of it can.
        more_files: whether it found more files than the present micro-batch reads.
    """

    at: int
    has_input: bool = False
    unreadable_since: int | None = None
    more_files: bool = False

    def silent_ms(self, active: int, now: int) -> int:
        """For how long a source or a partition that was active at the time `active` had no input, as far as is known at the time `now`.

        Input that cannot be read may have rows, so before it counts as silence, a whole idle timeout passes with it. If the clock was ahead
        when it was first found, that time is not used.
        """
        at, since = min(self.at, now), self.unreadable_since
        return at - (active if since is None or since > at else max(active, since))


def note_more_files(looks: dict[str, Look], sources: Collection[str]) -> None:
    """Note which sources have more files than the next micro-batch reads."""
    looks.update({source: replace(look, more_files=source in sources) for source, look in looks.items()})
