"""Kill the processes of a stream repeatedly, and compare the resulting lake with that of an undisturbed run: `make chaos`."""

import argparse
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from random import Random

from tests.chaos.content import Content
from tests.chaos.life import Life, LifeError
from tests.chaos.plan import Planner
from tests.chaos.stream import script, shop
from tests.chaos.table import table, write


@dataclass
class Chaos:
    """One run.

    Args:
        kills: how many process groups to kill.
        seed: decides the stream and every kill.
        lanes: lives at a time.
        parts: how many parts a stream lands in.
        work: the folder of the lives.
    """

    kills: int
    seed: int
    lanes: int
    parts: int
    work: Path
    failed: list[str] = field(default_factory=list)
    lived: int = 0
    _began: float = field(default_factory=time.monotonic)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self) -> Planner:
        """Run until enough kills were made; returns the planner, which counts them."""
        first = Life(self.work / "undisturbed", self.seed, self.parts, True, self.work / "classes.jsa", self.log)
        wanted = first.undisturbed()
        self.log(f"undisturbed: {sum(c.total() for c in wanted.values())} rows, {sum(map(len, first.passages.values()))} points passed")
        planner = Planner(script(shop(self.seed, self.parts)), first.passages, self.kills, share=max(3, self.kills // 60))
        with ThreadPoolExecutor(self.lanes) as pool:
            list(pool.map(lambda lane: self._lane(lane, planner, wanted), range(self.lanes)))
        return planner

    def _lane(self, lane: int, planner: Planner, wanted: Content) -> None:
        """Run one life after the other; the lake of every second one is behind a URI."""
        number = lane
        while not planner.done and not self.failed:
            life = Life(self.work / f"life-{number}", self.seed, self.parts, number % 2 == 0, self.work / "classes.jsa", self.log)
            try:
                life.disturbed(planner, Random(f"{self.seed}/{number}"), wanted)
                self.log(f"life-{number} is over: its lake is that of an undisturbed run; {planner.made.total()} kills by now")
            except LifeError as error:
                self.log(f"life-{number} FAILED: {error}")
                self.failed.append(str(error))
            with self._lock:
                self.lived += 1
            number += self.lanes if self.lanes % 2 else self.lanes + 1

    def log(self, message: str) -> None:
        """Write a line to the log and to the terminal."""
        with self._lock, (self.work / "chaos.log").open("a", encoding="utf-8") as file:
            line = f"{time.monotonic() - self._began:7.1f} s  {message}"
            file.write(f"{line}\n")
            print(line, flush=True)


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--kills", type=int, default=300, help="process groups to kill")
    parser.add_argument("--seed", type=int, default=7, help="decides the stream and every kill")
    parser.add_argument("--lanes", type=int, default=2, help="lives at a time")
    parser.add_argument("--parts", type=int, default=4, help="parts a stream lands in; fewer make shorter lives")
    parser.add_argument("--work", type=Path, default=None, help="folder of the lives; a new temporary one by default")
    parser.add_argument("--no-docs", action="store_true", help="leave docs/reliability.md as it is")
    asked = parser.parse_args()
    work = (asked.work or Path(tempfile.mkdtemp(prefix="chaos-"))).absolute()
    work.mkdir(parents=True, exist_ok=True)
    chaos = Chaos(asked.kills, asked.seed, asked.lanes, asked.parts, work)
    planner = chaos()
    again = f"python -m tests.chaos --kills {asked.kills} --seed {asked.seed} --lanes {asked.lanes} --parts {asked.parts}"
    how = (
        f"{planner.made.total()} kills of the whole process group in {chaos.lived} lives, {datetime.now(UTC):%Y-%m-%d}, by `{again}`: "
        f"{chaos.lived - len(chaos.failed)} lakes of {chaos.lived} equal the undisturbed run's."
    )
    text = table(planner, how, len(chaos.failed))
    if not asked.no_docs:
        write(text)
    chaos.log(how)
    missing = planner.missing()
    if missing:
        chaos.log(f"never killed: {', '.join(missing)}")
    if chaos.failed:
        print("\n".join(chaos.failed), f"\nRepeat it with: {again}", file=sys.stderr)
    return 1 if chaos.failed or (missing and asked.kills >= 300) else 0


if __name__ == "__main__":
    raise SystemExit(main())
