"""Write the recorded results as tables between the markers of docs/explanation/benchmarks.md, and as plots."""

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median

from benchmarks import results
from benchmarks.contenders import HOT_ITEMS, JOIN, TOP_BIDS, Contender
from benchmarks.growth import age, backlog, growth, hot_items_growth, lake_sizes
from benchmarks.markdown import NOT_MEASURED, joined, joined_numbers, number, rounded, table
from benchmarks.results import Record, medians, slope, successful
from benchmarks.steps import PARTS, SECONDS


class ReportError(ValueError):
    """The page has no markers for a section of the report."""

    @classmethod
    def no_marker(cls, section: str, page: Path) -> "ReportError":
        """Report the missing markers of a section."""
        return cls(f"{page} has no `<!-- measured:{section} -->` and `<!-- /measured:{section} -->`: add both where the table belongs")


def write(recorded: Path, docs: Path) -> list[Path]:
    """Write tables and plots of the results; returns their files. A section without results keeps its text."""
    from benchmarks import plots  # only the plots need matplotlib

    records, page = results.read(recorded), docs / "explanation" / "benchmarks.md"
    drawn = plots.draw(records, docs / "images")
    text = page.read_text()
    measured = {record["kind"] for record in records}
    for section, tables in SECTIONS.items():
        if not measured & KINDS[section]:
            continue
        images = [f"![{alt}](../{drawn[alt].relative_to(docs)})\n" for alt in PLOTS.get(section, ()) if alt in drawn]
        text = replace_section(text, section, "\n".join([*images, tables(records)]), page)
    page.write_text(text)
    return [page, *drawn.values()]


def replace_section(text: str, section: str, body: str, page: Path) -> str:
    """The page with a section's text replaced."""
    marked = re.compile(rf"(<!-- measured:{section} -->\n).*?(<!-- /measured:{section} -->)", re.DOTALL)
    if not marked.search(text):
        raise ReportError.no_marker(section, page)
    return marked.sub(lambda match: f"{match[1]}{body}\n{match[2]}", text)


def machine(records: Sequence[Record]) -> str:
    """The machine, its software, and the days of the measurements."""
    if not records:
        return NOT_MEASURED
    host = records[-1]["machine"]
    commits = sorted({r["machine"]["commit"] for r in records})
    versions = ", ".join(f"{name} {version}" for name, version in host["versions"].items())
    days = sorted({r["at"][:10] for r in records})
    span = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
    host_text = (
        f"{host['cores']} cores ({host['cpu']}), {host['memory_gib']} GiB, {host['system']}; Java {host['java']}, Python {host['python']}"
    )
    measured_at = f"Measured {span} at {', '.join(f'`{c}`' for c in commits)}"
    return f"{host_text}; {versions}. {measured_at}. Other processes used at most {_other_load(records):.0%} of the CPU during a run."


def _other_load(records: Sequence[Record]) -> float:
    """The largest share of the machine's CPU that other processes used during a run."""
    return max((r["other_cpu_s"] / (r["wall_s"] * r["machine"]["cores"]) for r in records if "failed" not in r), default=0.0)


def join(records: Sequence[Record]) -> str:
    """The payment-order join: one line per contender."""
    return _contenders([r for r in records if r["kind"] == "join"], "join", JOIN, tables=2)


def hot_items(records: Sequence[Record]) -> str:
    """Hot items: one line per contender."""
    return _contenders([r for r in records if r["kind"] == "hot_items"], "hot_items", HOT_ITEMS, tables=1)


def _contenders(records: Sequence[Record], kind: str, contenders: Sequence[Contender], tables: int) -> str:
    lines = [_contender_line(records, kind, c, tables) for c in contenders if successful(records, kind, contender=c.name)]
    if not lines:
        return NOT_MEASURED
    header = ("", "rows per table", "runs", "slope, s/M rows", "job, s", "process, s", "CPU, s", "peak, MiB")
    notes = [_ingest_note(records, kind), _step_note(records, kind)]
    flink_note = [] if successful(records, kind, contender="flink") else ["", "Flink was skipped: its benchmark was not set up."]
    failures = [
        f"- {r['cell']['contender']} at {rounded(r['cell']['rows'])}: {r['failed'].splitlines()[0]}" for r in records if "failed" in r
    ]
    return "\n".join([table(header, lines), "", *notes, *flink_note, *(["", "Failed:", "", *failures] if failures else [])])


def _contender_line(records: Sequence[Record], kind: str, contender: Contender, tables: int) -> list[str]:
    name = contender.name
    seconds = medians(records, kind, name, *SECONDS)
    runs = [len(successful(records, kind, contender=name, rows=rows)) for rows in seconds]
    cost = [medians(records, kind, name, figure) for figure in ("wall_s", "cpu_s", "peak_mb")]
    return [
        contender.title,
        joined(rounded(r) for r in seconds),
        joined(map(str, sorted(set(runs)))),
        number(slope(seconds, tables)),
        *map(joined_numbers, [seconds, *cost]),
    ]


def _ingest_note(records: Sequence[Record], kind: str) -> str:
    ingest = medians(records, kind, "catch_up", "outcome", "ingest_s")
    return f"Ingest of all rows as one micro-batch, before the catch-up: {joined_numbers(ingest) or '-'} s."


def _step_note(records: Sequence[Record], kind: str) -> str:
    """Median times of a micro-batch in the last run at each size, without the first one, which runs in a cold session.

    A part that no micro-batch has is left out, such as the conservation check of hot items.
    """
    by_rows: dict[int, Record] = {r["cell"]["rows"]: r for r in successful(records, kind, contender="ten")}
    steps = [by_rows[rows]["outcome"]["steps"][1:] for rows in sorted(by_rows)]
    timed = [part for part in PARTS if any(part in lap for laps in steps for lap in laps)]
    seconds = {part: [median(lap.get(part, 0.0) for lap in laps) for laps in steps] for part in timed}
    parts = ", ".join(f"{PARTS[part]} {joined(map(number, values))} s" for part, values in seconds.items())
    return f"Median times of a micro-batch in the last run, without the first: {parts or '-'}."


def targets(records: Sequence[Record]) -> str:
    """The targets of the join, and whether they are met."""
    slopes = {c.name: slope(medians(records, "join", c.name, *SECONDS)) for c in JOIN}
    lines = [_ratio_line(slopes, *target) for target in JOIN_RATIOS]
    empty = medians(records, "join", "ten", "outcome", "empty_s")
    lines.append(_target_line("empty step", max(empty.values(), default=None), 1.5, " s"))
    return table(("target", "at most", "measured", ""), lines)


def hot_items_targets(records: Sequence[Record]) -> str:
    """The targets of hot items, and whether they are met."""
    slopes = {c.name: slope(medians(records, "hot_items", c.name, *SECONDS), tables=1) for c in HOT_ITEMS}
    return table(("target", "at most", "measured", ""), [_ratio_line(slopes, *target) for target in HOT_ITEMS_RATIOS])


def top_bids(records: Sequence[Record]) -> str:
    """Top bids: one line per contender, and the number of changes per input row."""
    comparison = _contenders([r for r in records if r["kind"] == "top_bids"], "top_bids", TOP_BIDS, tables=1)
    lines = [[c.title, _changes(records, c)] for c in TOP_BIDS if c.module != "top_bids_in_duckdb"]
    return f"{comparison}\n\n{table(('', 'changes per input row'), [line for line in lines if line[1]])}"


def _changes(records: Sequence[Record], contender: Contender) -> str:
    """Changes per input row. Flink counts them in its counting sink, Tidemark in the changelog."""
    outcomes = {r["cell"]["rows"]: r["outcome"] for r in successful(records, "top_bids", contender=contender.name)}
    counts = {rows: outcome.get("changes", outcome.get("found")) for rows, outcome in sorted(outcomes.items())}
    return joined(number(count / rows) for rows, count in counts.items() if count is not None)


def top_bids_targets(records: Sequence[Record]) -> str:
    """The targets of top bids, and whether they are met."""
    slopes = {c.name: slope(medians(records, "top_bids", c.name, *SECONDS), tables=1) for c in TOP_BIDS}
    return table(("target", "at most", "measured", ""), [_ratio_line(slopes, *target) for target in TOP_BIDS_RATIOS])


HOT_ITEMS_RATIOS = (
    ("catch_up", "flink", 0.4, "catch-up slope, relative to Flink (heap state, no sink)"),
    ("ten", "flink", 1.0, "ten-batch slope, relative to Flink (heap state, no sink)"),
)


JOIN_RATIOS = (
    ("catch_up", "flink", 0.2, "catch-up slope, relative to Flink (heap state, no sink)"),
    ("ten", "flink", 0.5, "ten-batch slope, relative to Flink (heap state, no sink)"),
    ("catch_up", "spark_stream_rocksdb", 1 / 30, "catch-up slope, relative to Spark's stream-stream join (RocksDB)"),
    ("catch_up", "spark_batch", 1.3, "catch-up slope, relative to the hand-written batch query (both into Delta)"),
)


TOP_BIDS_RATIOS = (
    ("catch_up", "flink", 0.7, "catch-up slope, relative to Flink (heap state), with ranks"),
    ("catch_up_norn", "flink_norn", 0.7, "catch-up slope, relative to Flink (heap state), without ranks"),
    ("ten", "flink", 1.0, "ten-batch slope, relative to Flink (heap state), with ranks"),
    ("ten_norn", "flink_norn", 1.0, "ten-batch slope, relative to Flink (heap state), without ranks"),
)


def _ratio_line(slopes: Mapping[str, float | None], ours: str, theirs: str, limit: float, title: str) -> list[str]:
    our_slope, their_slope = slopes[ours], slopes[theirs]
    return _target_line(title, our_slope / their_slope if our_slope is not None and their_slope else None, limit, " times")


def _target_line(title: str, measured: float | None, limit: float, unit: str) -> list[str]:
    if measured is None:
        return [title, f"{number(limit)}{unit}", "not measured", ""]
    return [title, f"{number(limit)}{unit}", f"{number(measured)}{unit}", "met" if measured <= limit else "**missed**"]


Section = Callable[[Sequence[Record]], str]
SECTIONS: Mapping[str, Section] = {
    "machine": machine,
    "join": join,
    "targets": targets,
    "growth": growth,
    "lake": lake_sizes,
    "age": age,
    "backlog": backlog,
    "hot_items": hot_items,
    "hot_items_targets": hot_items_targets,
    "hot_items_growth": hot_items_growth,
    "top_bids": top_bids,
    "top_bids_targets": top_bids_targets,
}
KINDS: Mapping[str, set[str]] = {
    "machine": {"join"},
    "join": {"join"},
    "targets": {"join"},
    "growth": {"rows", "keys", "bounds", "batch"},
    "lake": {"lake"},
    "age": {"age"},
    "backlog": {"backlog"},
    "hot_items": {"hot_items"},
    "hot_items_targets": {"hot_items"},
    "hot_items_growth": {"bids_rows", "bids_keys", "bids_overlap"},
    "top_bids": {"top_bids"},
    "top_bids_targets": {"top_bids"},
}
"""The kinds of results that each section shows."""
PLOTS = {"join": ["Slopes"], "hot_items": ["Hot items"], "growth": ["Growth", "Latency and throughput"], "age": ["Age"]}
