"""Write the results of the live benchmarks into docs/explanation/benchmarks.md, and the plot of the soak."""

import csv
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
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
    """Replace the table of latencies, with the machine of each engine if they differ."""
    engines = found["engines"]
    rates = sorted({rate for run in engines.values() for rate in run["found"]}, key=float)
    lines = [f"| | {' | '.join(f'{float(rate):,.0f}/s' for rate in rates)} |", f"|---|{'---:|' * len(rates)}"]
    machines = dict[str, str]()
    for (engine, output), title in _OUTPUTS.items():
        if engine in engines:
            lines.append(f"| {title} | {' | '.join(_cell(engines[engine]['found'].get(rate), output) for rate in rates)} |")
            machines[title.partition(",")[0]] = _machine(engines[engine])
    texts = {*machines.values()}
    _replace(docs, "latency", "\n".join([*lines, "", *(texts if len(texts) == 1 else map(": ".join, machines.items()))]))


def _cell(of_rate: Mapping[str, Any] | None, output: str) -> str:
    if of_rate is None:
        return "not measured"
    summary = of_rate[output]
    return f"{summary['p50_ms'] / 1000:.2f} / {summary['p99_ms'] / 1000:.2f}" if "p50_ms" in summary else "none"


def write_soak(found: Mapping[str, Any], docs: Path) -> None:
    """Replace the tables of the soak, draw its plot, and write its samples as CSV beside it."""
    soak, samples = found["soak"], found["samples"]
    last, hours = samples[-1], samples[-1]["seconds"] / 3600
    workers = f", {soak['workers']} workers of one core" if soak["workers"] else ""
    rows = {
        "rate, and for how long": f"{soak['rate']:,.0f} events/s for {soak['minutes']:g} min{workers}",
        "events acknowledged by the broker": f"{found['acked']:,}",
        "kills; starts of the stream after it had ended by itself": f"{len(found['kills'])}; {len(found['ended'])}",
        "batches; steps of `windows`; of `totals`": "; ".join(f"{found['steps'][name]:,}" for name in ("ledger", "windows", "totals")),
        "events behind the broker, in seconds of the rate: median; most": _behind(samples, soak["rate"]),
        **{f"{title}: median; most, MiB": _sizes(samples, name) for name, title in _MEMORY.items()},
        **{f"growth of {title}": _times(found["growth"][name]) for name, title in _GROWTH.items()},
        "data files in the newest versions of all tables: most": f"{max(sample['files'] for sample in samples):,}",
        "files on disk, added in an hour": f"{(last['on_disk'] - samples[0]['on_disk']) / hours:,.0f}",
        "problems": "; ".join(found["problems"]) or "none",
    }
    table = ["| | |", "|---|---:|", *(f"| {name} | {value} |" for name, value in rows.items())]
    plot(found, docs / "images" / PLOT)
    body = [
        f"![Soak](../images/{PLOT})",
        "",
        *table,
        "",
        *_kills(found["kills"]),
        "",
        *_on_disk(found["on_disk"], found["maintained"]),
        "",
        _machine(found),
    ]
    _replace(docs, "soak", "\n".join(body))


_MEMORY = {
    "jvm_mb": "resident memory of the driver's JVM",
    "python_mb": "resident memory of the stream's Python process",
    "executors_mb": "resident memory of all executors",
    "live_mb": "live heap of the driver",
}
_GROWTH = {
    "live_mb": "the live heap of the stream process that ran longest, first third to last",
    "python_mb": "the Python process's resident memory, in the same process",
    "live_mb between processes": "the live heap from early stream processes to late ones of the same age",
    "python_mb between processes": "the Python process's resident memory, from early ones to late ones",
}


def _behind(samples: Sequence[Mapping[str, Any]], rate: float) -> str:
    behind = [(sample["acked"] - sample["accepted"]) / rate for sample in samples]
    return f"{median(behind):.1f}; {max(behind):.1f}"


def _sizes(samples: Sequence[Mapping[str, Any]], name: str) -> str:
    known = [sample[name] for sample in samples if sample[name] is not None]
    return f"{median(known):,.0f}; {max(known):,.0f}" if known else "not measured"


def _times(growth: float | None) -> str:
    return "not measured" if growth is None else f"{growth:.2f} times"


def _kills(kills: Sequence[Mapping[str, Any]]) -> list[str]:
    """A table of the kills by kind."""
    lines = ["| killed | times | until it is back, s: median; most | until the next step, s: median; most |", "|---|---:|---:|---:|"]
    for kind in dict.fromkeys(kill["kind"] for kill in kills):
        of_kind = [kill for kill in kills if kill["kind"] == kind]
        lines.append(f"| {kind} | {len(of_kind)} | {_seconds(of_kind, 'back_s')} | {_seconds(of_kind, 'step_s')} |")
    return lines


def _seconds(kills: Sequence[Mapping[str, Any]], name: str) -> str:
    known = [kill[name] for kill in kills if kill[name] is not None]
    return f"{median(known):.1f}; {max(known):.1f}" if known else "none"


def _on_disk(tables: Mapping[str, Mapping[str, int]], maintained: Mapping[str, Mapping[str, int]]) -> list[str]:
    """A table of the files below the folder of each table by kind, at the end and after maintenance."""
    kinds = list(dict.fromkeys(kind for of in tables.values() for kind in of))
    lines = [f"| files of, at the end / after maintenance | {' | '.join(kinds)} |", f"|---|{'---:|' * len(kinds)}"]
    for table, of in tables.items():
        after = maintained.get(table, {})
        lines.append(f"| `{table}` | {' | '.join(f'{of.get(kind, 0):,} / {after.get(kind, 0):,}' for kind in kinds)} |")
    return lines


def write_samples(samples: Sequence[Mapping[str, Any]], file: Path) -> None:
    """Write samples as CSV."""
    with file.open("w", newline="") as out:
        writer = csv.DictWriter(out, fieldnames=[*samples[0]])
        writer.writeheader()
        writer.writerows(samples)


_ABOVE: Mapping[str, Any] = {"frameon": False, "loc": "lower left", "bbox_to_anchor": (0, 1)}
_COLORS = {"job": "#c0392b", "broker": "#7d8790", "worker": "#8e44ad"}


def plot(found: Mapping[str, Any], path: Path) -> None:
    """Events behind, memory and files over time, with the kills by kind."""
    from benchmarks.plots import OTHERS, OURS, figure  # only the plots need matplotlib

    samples, minutes = found["samples"], [sample["seconds"] / 60 for sample in found["samples"]]
    lines = {
        "jvm_mb": ("JVM", OTHERS),
        "executors_mb": ("executors", "#3c9d5b"),
        "live_mb": ("live heap", OURS),
        "python_mb": ("Python", "#d98a29"),
    }
    with figure(path, 9, 6.4, 1, 3) as (behind, memory, files):
        behind.plot(minutes, [(s["acked"] - s["accepted"]) / found["soak"]["rate"] for s in samples], color=OURS)
        behind.set(ylabel="ledger behind the broker, s")
        for name, (label, color) in lines.items():
            memory.plot(minutes, [math.nan if s[name] is None else s[name] for s in samples], label=label, color=color)
        memory.set(ylabel="MiB")
        memory.legend(ncols=4, **_ABOVE)
        files.plot(minutes, [s["files"] for s in samples], color=OURS)
        files.set(ylabel="data files, newest versions", xlabel="min")
        for axes in (behind, memory, files):
            axes.set(xlim=(0, max(minutes)), ylim=(0, None))
            for kill in found["kills"]:
                axes.axvline(kill["seconds"] / 60, color=_COLORS[kill["kind"]], linewidth=0.9, linestyle=":")
        for kind in dict.fromkeys(kill["kind"] for kill in found["kills"]):
            behind.plot([], [], color=_COLORS[kind], linestyle=":", label=f"{kind} killed")
        behind.legend(ncols=3, **_ABOVE)


def _machine(found: Mapping[str, Any]) -> str:
    host = found["machine"]
    versions = ", ".join(f"{name} {host['versions'][name]}" for name in ("pyspark", "deltalake") if name in host["versions"])
    return (
        f"{host['cores']} cores ({host['cpu']}), {host['memory_gib']} GiB; {versions}. Measured {found['at'][:10]} at `{host['commit']}`."
    )


def _replace(docs: Path, section: str, body: str) -> None:
    page = docs / "explanation" / "benchmarks.md"
    page.write_text(replace_section(page.read_text(), section, body, page))
