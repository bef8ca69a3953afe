"""What a stream's newest look for a source's input found, by which the silence of the source is measured.

Input that arrives while micro-batches are ingested is found by the next look only. So a source is known to be silent up to its newest look,
and not up to the present.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Look:
    """The newest look for the input of a source.

    Args:
        at: when it began, in epoch ms of the wall clock.
        has_input: whether it found input, or did not look because the source waits for its alignment group.
    """

    at: int
    has_input: bool = False

    def silent_ms(self, active: int, now: int) -> int:
        """For how long a source or a partition that was active at the time `active` had no input, as far as is known at the time `now`."""
        return min(self.at, now) - active
