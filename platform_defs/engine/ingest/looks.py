"""The result of a stream's newest look for a source's input. It decides for how long the source counts as silent.

Input that arrives while micro-batches are ingested is found only by the next look. So a source is known to be silent up to its newest look,
and not up to the present.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Look:
    """The newest look for the input of a source.

    Args:
        at: when the look began, in epoch ms of the wall clock.
        has_input: whether input was found, or the source waits for its alignment group. False if some input cannot be read.
    """

    at: int
    has_input: bool = False

    def silent_ms(self, active: int, now: int) -> int:
        """How long a source or a partition that was active at the time `active` has had no input, in ms, as far as is known at `now`."""
        return min(self.at, now) - active
