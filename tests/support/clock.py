"""A wall clock under a test's control."""

from dataclasses import dataclass

NOON = 1_772_366_400_000  # 2026-03-01 12:00:00 UTC


@dataclass
class Clock:
    """Returns the same time until it is set."""

    now: int = NOON

    def __call__(self) -> int:
        return self.now

    def pass_ms(self, ms: int) -> None:
        """Advance the clock."""
        self.now += ms
