"""Kill the processes of a stream repeatedly, and compare the resulting lake with that of an undisturbed run: `make chaos`."""

import argparse
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from random import Random

from tests.chaos.content import Content
from tests.chaos.plan import Planner
from tests.chaos.stream import script, shop
from tests.chaos.table import table, write
from tests.chaos.trial import Trial, TrialError

PUBLISHED = 300
"""The number of kills of the run whose table is in docs/explanation/reliability.md."""


@dataclass
class Chaos:
    """One run: trials that are disturbed by kills.

    Args:
        kills: how many process groups to kill.
        seed: determines the stream. With one lane it also determines the kills, except kills that depend on the clock: by a timer, and at
            the heartbeat of a lease.
        lanes: how many trials run at the same time.
        parts: how many parts a stream lands in.
        work: the folder of the trials.
    """

    kills: int
    seed: int
    lanes: int
    parts: int
    work: Path
    failed: list[str] = field(default_factory=list)
    trials: int = 0
    _began: float = field(default_factory=time.monotonic)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self) -> Planner:
        """Run trials until enough kills were made; returns the planner, which counts them."""
        first = Trial(self.work / "undisturbed", self.seed, self.parts, True, self.work / "classes.jsa", self.log)
        expected = first.undisturbed()
        self.log(f"undisturbed: {sum(c.total() for c in expected.values())} rows, {sum(map(len, first.passages.values()))} points passed")
        planner = Planner(script(shop(self.seed, self.parts)), first.passages, self.kills, max(3, self.kills // 60))
        with ThreadPoolExecutor(self.lanes) as pool:
            list(pool.map(lambda lane: self._lane(lane, planner, expected), range(self.lanes)))
        return planner

    def _lane(self, lane: int, planner: Planner, expected: Content) -> None:
        """Run one trial after the other; the lake of every second one has a URI. The step is odd, so that each lane has both kinds."""
        number = lane
        while not planner.is_done and not self.failed:
            trial = Trial(self.work / f"trial-{number}", self.seed, self.parts, number % 2 == 0, self.work / "classes.jsa", self.log)
            try:
                trial.disturbed(planner, Random(f"{self.seed}/{number}"), expected)
                self.log(
                    f"trial-{number} has passed: its lake equals that of an undisturbed run; {planner.kills_by_point.total()} kills so far"
                )
            except TrialError as error:
                self.log(f"trial-{number} FAILED: {error}")
                self.failed.append(str(error))
            with self._lock:
                self.trials += 1
            number += self.lanes if self.lanes % 2 else self.lanes + 1

    def log(self, message: str) -> None:
        """Write a line to the log and to the terminal."""
        with self._lock, (self.work / "chaos.log").open("a", encoding="utf-8") as file:
            line = f"{time.monotonic() - self._began:7.1f} s  {message}"
            file.write(f"{line}\n")
            print(line, flush=True)


def main(given: Sequence[str] | None = None) -> int:
    """The command line. Returns 1 if a trial failed, or if a full run has no kill at a point that the script passes."""
    options = arguments(given)
    work = (options.work or Path(tempfile.mkdtemp(prefix="chaos-"))).absolute()
    work.mkdir(parents=True, exist_ok=True)
    chaos = Chaos(options.kills, options.seed, options.lanes, options.parts, work)
    planner = chaos()
    command = f"python -m tests.chaos --kills {options.kills} --seed {options.seed} --lanes {options.lanes} --parts {options.parts}"
    summary = (
        f"{planner.kills_by_point.total()} kills of the whole process group in {chaos.trials} trials, "
        f"{datetime.now(UTC):%Y-%m-%d}, by `{command}`: "
        f"{chaos.trials - len(chaos.failed)} lakes of {chaos.trials} equal the undisturbed run's."
    )
    text = table(planner, summary, len(chaos.failed))
    if options.docs:
        write(text)
    else:
        print(text)
    chaos.log(summary)
    without_kill = planner.points_without_kill()
    if without_kill:
        chaos.log(f"points without a kill: {', '.join(without_kill)}")
    if chaos.failed:
        print("\n".join(chaos.failed), f"\nThe same stream, with --lanes 1 nearly the same kills: {command}", file=sys.stderr)
    return 1 if chaos.failed or (without_kill and options.kills >= PUBLISHED) else 0


def arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    """The arguments. A run with fewer kills than the published one does not replace its table, unless `--docs` is given."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--kills", type=int, default=PUBLISHED, help="process groups to kill")
    parser.add_argument(
        "--seed",
        type=int,
        default=7,
        help="determines the stream; with --lanes 1 also the kills, except kills that depend on the clock",
    )
    parser.add_argument("--lanes", type=int, default=2, help="how many trials run at the same time")
    parser.add_argument("--parts", type=int, default=4, help="how many parts the stream lands in; fewer make shorter trials")
    parser.add_argument("--work", type=Path, default=None, help="folder of the trials; a new temporary one by default")
    parser.add_argument(
        "--docs",
        action=argparse.BooleanOptionalAction,
        help=f"write the table into docs/explanation/reliability.md, and do not print it; the default from {PUBLISHED} kills on",
    )
    options = parser.parse_args(given)
    options.docs = options.kills >= PUBLISHED if options.docs is None else options.docs
    return options


if __name__ == "__main__":
    raise SystemExit(main())
