"""Whether memory and files stay level during a soak, and whether the stream keeps up."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from statistics import median

from benchmarks.live.samples import Sample
from platform_defs.engine.lake.compaction import MANY_FILES

MEMORY = ("live_mb", "python_mb")
BETWEEN_PROCESSES = " between processes"
MOST_GROWTH = 1.15
"""How much the memory of the stream may grow from the first third of the samples to the last, or from early processes to late ones."""
SHORTEST_PROCESS_S = 300.0
"""Memory growth is checked only if a process of the stream ran at least this long, because a young process always grows."""
MOST_FILES = 5 * MANY_FILES
"""The most data files in the newest versions of the five tables: a table with `MANY_FILES` is compacted."""
OUTSIDE_MB, OUTSIDE_EXECUTOR_MB = 1_024, 512
"""How much resident memory the driver's JVM, and that of an executor, may have beside their heaps."""
BEHIND_S, MOST_MORE_BEHIND = 20.0, 1.5
"""In the last third the ledger may be this many seconds behind (median), or this many times as far behind as in the first third."""
WARM_UP_S = 360.0
"""The warm-up, at most half of a process's samples: Spark's Kafka connector keeps idle consumers and their records for five minutes."""


def longest_process(samples: Sequence[Sample]) -> list[Sample]:
    """The samples of the process of the stream that has run the longest."""
    longest = max(samples, key=lambda sample: sample.age_s, default=None)
    return [] if longest is None else [sample for sample in samples if sample.start == longest.start]


def growth(samples: Sequence[Sample], name: str) -> float | None:
    """How much a measure has grown: the median of its last third over that of its first third, without the warm-up; None if not measured.

    Args:
        samples: the samples of one process, in order.
        name: the measure.
    """
    began = samples[0].seconds if samples else 0.0
    warm_up_s = min(WARM_UP_S, (samples[-1].seconds - began) / 2) if samples else 0.0
    values = [value for s in samples if s.seconds - began >= warm_up_s and (value := getattr(s, name)) is not None]
    third = max(1, len(values) // 3)
    return median(values[-third:]) / max(1e-9, median(values[:third])) if values else None


def growth_between_processes(samples: Sequence[Sample], name: str) -> float | None:
    """The ratio of a measure in late stream processes to that in early ones of the same age, in minutes.

    It is the median over the ages that both the first half of the processes and the second half reached; None if there is none.

    Args:
        samples: all samples.
        name: the measure.
    """
    by_age, last = defaultdict[int, tuple[list[float], list[float]]](lambda: ([], [])), max((s.start for s in samples), default=0)
    for sample in samples:
        if sample.age_s >= 60 and (value := getattr(sample, name)) is not None:
            by_age[int(sample.age_s // 60)][2 * sample.start > last].append(value)
    both = [median(late) / max(1e-9, median(early)) for early, late in by_age.values() if early and late]
    return median(both) if both else None


def growths(samples: Sequence[Sample]) -> dict[str, float | None]:
    """How much the memory has grown: in the process that ran longest, and from process to process; None if that was not measured."""
    longest = longest_process(samples)
    between = {f"{name}{BETWEEN_PROCESSES}": growth_between_processes(samples, name) for name in MEMORY}
    return {name: growth(longest, name) for name in MEMORY} | between


def not_flat(samples: Sequence[Sample], rate: float, most_mb: Mapping[str, float]) -> list[str]:
    """What grows, what takes too much memory or was not measured, and whether the stream falls behind more and more.

    Args:
        samples: all samples.
        rate: events per second.
        most_mb: the most memory, by the name of the measure.
    """
    grown, longest = growths(samples), longest_process(samples)
    if longest[-1].age_s < SHORTEST_PROCESS_S:
        grown = {name: value for name, value in grown.items() if name not in MEMORY}
    too_large = {name: value for name, value in grown.items() if value is not None and value > MOST_GROWTH}
    found = [f"{name} has grown {value:.2f} times; legal: {MOST_GROWTH} times" for name, value in too_large.items()]
    limits = {**most_mb, "files": MOST_FILES}
    peaks = {name: max((value for s in samples if (value := getattr(s, name)) is not None), default=None) for name in limits}
    found += [f"{name} was {peaks[name]:,.0f}; legal: {most:,.0f}" for name, most in limits.items() if (peaks[name] or 0) > most]
    measured = {name: grown[name] for name in MEMORY if name in grown} | peaks
    found += [f"{name} was not measured" for name, value in measured.items() if value is None]
    first, last = behind_s(samples, rate)
    if last > max(BEHIND_S, MOST_MORE_BEHIND * first):
        found.append(f"the ledger was {last:.0f} s behind in the last third, and {first:.0f} s in the first")
    return found


def behind_s(samples: Sequence[Sample], rate: float) -> tuple[float, float]:
    """How far the ledger was behind the broker in the first third of the samples and in the last, in seconds of the rate: medians."""
    values = [(sample.acked - sample.accepted) / rate for sample in samples]
    third = max(1, len(values) // 3)
    return median(values[:third]), median(values[-third:])
