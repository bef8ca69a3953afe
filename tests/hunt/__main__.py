"""Run thousands of random histories against a model, and print the findings: `make hunt ARGS="--seed N --seconds S"`."""

import argparse
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from random import SystemRandom

from tests.hunt.history import generate
from tests.hunt.simulation import shrink, simulate

_CHUNK = 200
_REPORTED = 10_000
"""After how many histories the progress is printed to standard error."""
_SHOWN = 20
"""The number of kinds of findings that are shrunk and printed."""


@dataclass(frozen=True)
class Found:
    """A finding."""

    seed: int
    kind: str
    text: str


def main() -> int:
    """Run histories; returns 1 if there is a finding."""
    parser = argparse.ArgumentParser(prog="make hunt", description=__doc__)
    parser.add_argument("--seed", type=int, help="seed of the first history; the next histories have the next seeds (default: random)")
    parser.add_argument("--seconds", type=float, help="for how long to run histories (default: 60, unless --histories is given)")
    parser.add_argument("--histories", type=int, help="how many histories")
    parser.add_argument("--jobs", type=int, default=2, help="how many processes (default: 2)")
    options = parser.parse_args()
    first = SystemRandom().randrange(10**9) if options.seed is None else options.seed
    seconds = 60.0 if options.seconds is None and options.histories is None else options.seconds
    print(f"seed {first}", flush=True)
    count, found = hunt(first, options.histories, seconds, options.jobs)
    kinds = {f.kind: [g for g in found if g.kind == f.kind] for f in found}
    for kind, findings in list(kinds.items())[:_SHOWN]:
        show(kind, findings)
    print(f"{count} histories, {len(found)} findings" + (f" of {len(kinds)} kinds" if found else ""))
    return 1 if found else 0


def hunt(first: int, histories: int | None, seconds: float | None, jobs: int) -> tuple[int, list[Found]]:
    """Run histories from a seed on, until their number or the time is reached; returns their number and the findings."""
    count, found, until = 0, list[Found](), None if seconds is None else time.monotonic() + seconds
    with ProcessPoolExecutor(jobs) as pool:
        chunks = _chunks(first, histories)
        while batch := [chunk for _, chunk in zip(range(jobs * 2), chunks, strict=False)]:
            for chunk, answer in zip(batch, pool.map(_simulate_all, batch), strict=True):
                count, found = count + len(chunk), found + answer
                if count % _REPORTED == 0:
                    print(f"{count} histories so far, {len(found)} findings", file=sys.stderr, flush=True)
            if until is not None and time.monotonic() > until:
                break
    return count, found


def _chunks(first: int, histories: int | None) -> Iterator[range]:
    start, end = first, None if histories is None else first + histories
    while end is None or start < end:
        upto = start + _CHUNK if end is None else min(start + _CHUNK, end)
        yield range(start, upto)
        start = upto


def _simulate_all(seeds: range) -> list[Found]:
    found = [(seed, simulate(generate(seed))) for seed in seeds]
    return [Found(seed, finding.kind, str(finding)) for seed, finding in found if finding is not None]


def show(kind: str, findings: list[Found]) -> None:
    """Print one shrunk finding of a kind, and how to reproduce it."""
    seed = findings[0].seed
    finding = simulate(generate(seed))
    if finding is None:
        print(f"{kind}: seed {seed} does not reproduce it; {findings[0].text}")
        return
    history, finding = shrink(generate(seed), finding)
    print(
        f"\n{finding}\n{history}\n  found {len(findings)} times; to reproduce it: make hunt ARGS='--seed {seed} --histories 1'\n",
        flush=True,
    )


if __name__ == "__main__":
    sys.exit(main())
