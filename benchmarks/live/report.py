"""Write the results of the live benchmarks into docs/explanation/benchmarks.md, and the plot of the soak."""

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.report import replace_section

_OUTPUTS = {
    ("tidemark", "window to table"): "Tidemark, closed window, in the Delta table",
    ("tidemark", "window to topic"): "Tidemark, closed window, in the sink's topic",
    ("tidemark", "upsert to table"): "Tidemark, upserted row, in the Delta table",
    ("tidemark", "upsert to topic"): "Tidemark, upserted row, in the sink's topic",
    ("spark", "window to table"): "Spark's own state, closed window, in a Delta table",
    ("spark", "window to topic"): "Spark's own state, closed window, in a topic",
}
PLOT = "bench-soak.svg"


def write_latency(found: Mapping[str, Any], docs: Path) -> None:
    """Replace the table of latencies."""
    rates = [f"{rate:g}" for rate in found["latency"]["rates"]]
    lines = [f"| | {' | '.join(f'{float(rate):,.0f}/s' for rate in rates)} |", f"|---|{'---:|' * len(rates)}"]
    for (engine, output), title in _OUTPUTS.items():
        if engine in found["found"]:
            lines.append(f"| {title} | {' | '.join(_cell(found['found'][engine][rate][output]) for rate in rates)} |")
    _replace(docs, "latency", "\n".join([*lines, "", _machine(found)]))


def _cell(summary: Mapping[str, float]) -> str:
    return f"{summary['p50_ms'] / 1000:.2f} / {summary['p99_ms'] / 1000:.2f}" if "p50_ms" in summary else "none"


def write_soak(found: Mapping[str, Any], docs: Path) -> None:
    """Replace the table of the soak, draw its plot, and write its samples as CSV beside it."""
    soak, samples = found["soak"], found["samples"]
    last, hours = samples[-1], samples[-1]["seconds"] / 3600
    rows = {
        "rate, and for how long": f"{soak['rate']:,.0f} events/s for {soak['minutes']:g} min",
        "events acknowledged by the broker": f"{found['acked']:,}",
        "kills of the broker": f"{len(found['kills'])}",
        "batches; steps of `windows`; of `totals`": "; ".join(f"{found['steps'][name]:,}" for name in ("ledger", "windows", "totals")),
        "growth of the live heap, first third to last": _times(found, "live_mb"),
        "growth of the JVM's resident memory outside the heap": _times(found, "outside_mb"),
        "growth of the Python process's resident memory": _times(found, "python_mb"),
        "growth of the data files in the newest versions": _times(found, "files"),
        "files on disk, added in an hour": f"{(last['on_disk'] - samples[0]['on_disk']) / hours:,.0f}",
        "problems": "; ".join(found["problems"]) or "none",
    }
    table = ["| | |", "|---|---:|", *(f"| {name} | {value} |" for name, value in rows.items())]
    plot(found, docs / "images" / PLOT)
    _replace(docs, "soak", "\n".join([f"![Soak](../images/{PLOT})", "", *table, "", _machine(found)]))


def _times(found: Mapping[str, Any], name: str) -> str:
    return f"{found['growth'][name]:.2f} times" if name in found["growth"] else "not recorded"


def write_samples(samples: Sequence[Mapping[str, Any]], file: Path) -> None:
    """Write samples as CSV."""
    with file.open("w", newline="") as out:
        writer = csv.DictWriter(out, fieldnames=[*samples[0]])
        writer.writeheader()
        writer.writerows(samples)


def plot(found: Mapping[str, Any], path: Path) -> None:
    """Events behind, memory and files over time, with the kills of the broker."""
    from benchmarks.plots import OTHERS, OURS, figure  # only the plots need matplotlib

    samples, minutes = found["samples"], [sample["seconds"] / 60 for sample in found["samples"]]
    with figure(path, 9, 2.8, 3) as (behind, memory, files):
        behind.plot(minutes, [(s["acked"] - s["accepted"]) / found["soak"]["rate"] for s in samples], color=OURS)
        behind.set(ylabel="ledger behind the broker, s")
        for name, label, color in (("jvm_mb", "JVM", OTHERS), ("live_mb", "live heap", OURS), ("python_mb", "Python", "#d98a29")):
            known = [(at, s[name]) for at, s in zip(minutes, samples, strict=True) if s[name] is not None]
            memory.plot([at for at, _ in known], [value for _, value in known], label=label, color=color)
        memory.set(ylabel="MiB")
        memory.legend(frameon=False, loc="center right")  # between the JVM's memory and the others
        files.plot(minutes, [s["files"] for s in samples], color=OURS)
        files.set(ylabel="data files, newest versions")
        for axes in (behind, memory, files):
            axes.set(xlabel="min", ylim=(0, None))
            for kill in found["kills"]:
                axes.axvline(kill / 60, color=OTHERS, linewidth=0.7, linestyle=":")


def _machine(found: Mapping[str, Any]) -> str:
    host = found["machine"]
    versions = ", ".join(f"{name} {host['versions'][name]}" for name in ("pyspark", "deltalake") if name in host["versions"])
    return (
        f"{host['cores']} cores ({host['cpu']}), {host['memory_gib']} GiB; {versions}. Measured {found['at'][:10]} at `{host['commit']}`."
    )


def _replace(docs: Path, section: str, body: str) -> None:
    page = docs / "explanation" / "benchmarks.md"
    page.write_text(replace_section(page.read_text(), section, body, page))
