"""The demo: a shop day, or Olist's real sample, fed through Dagster in micro-batches."""

import shutil
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

import dagster as dg

from assets.keys import PAYMENT_ORDER_WIDE
from platform_defs import report
from platform_defs.definitions import build
from platform_defs.engine import Engine
from platform_defs.jobs import over
from platform_defs.resources.engine import make_engine
from platform_defs.resources.files import is_local
from platform_defs.resources.spark import SparkResource
from platform_defs.settings import Settings, settings
from platform_defs.simulator import SOURCES, Shop, drop, simulate

MARK = "_made_by_the_demo"
_DAGSTER = "nux: {enabled: false}\ntelemetry: {enabled: false}\n"
_QUIET = {"loggers": {"console": {"config": {"log_level": "WARNING"}}}}
Arrival = Literal["by_time", "as_is"]
Tick = Callable[[str], object]


def run(data: Path | None, *, orders: int, parts: int, seed: int, arrival: Arrival = "by_time", tick: Tick = print) -> dict[str, Any]:
    """Run the demo in a lake of its own, from the start.

    Args:
        data: a folder of Olist's files; None for a simulated day.
        orders: orders of the simulated day.
        parts: micro-batches.
        seed: the simulated day's seed.
        arrival: for Olist, whether rows come sorted by time or as the files have them.
        tick: called with what is being done, once a micro-batch and once at the end.

    Returns:
        `status` (as `tidemark status --json`), `planned` (what the simulator put in), `tables` and `ui`.

    Raises:
        FileExistsError: the lake holds something that no demo made.
    """
    values = _settings(data)
    _clear(values)
    instance = _instance(values)
    definitions, engine = build(values), make_engine(values, SparkResource())
    planned: dict[str, Any] = {}
    feed = _olist(data, values, parts, arrival) if data else _shop(values, orders, parts, seed, planned)
    for part in range(parts):
        tick(f"micro-batch {part + 1} of {parts}")
        feed(part)
        definitions.resolve_job_def("ingest").execute_in_process(instance=instance, run_config=_QUIET)
        _advance(definitions, engine, instance, bool(data))
    tick("accounting")
    if data:
        engine.drain()
        _advance(definitions, engine, instance, True)
    return {"status": report.status(engine, engine.assets), "planned": planned, "tables": _tables(engine), "ui": _ui(values)}


def _settings(data: Path | None) -> Settings:
    """Olist's payments come up to three days after their order; whatever the environment says goes first."""
    values = settings()
    wanted = {} if data is None or "payment_within" in values.model_fields_set else {"payment_within": "72 hours"}
    return values.model_copy(update=wanted)


def _clear(values: Settings) -> None:
    """Empty the lake of an earlier demo; touch nothing else."""
    if not is_local(values.lake):
        raise ValueError(f"TIDEMARK_LAKE is {values.lake!r}; the demo needs a folder on this machine, which it may empty")
    root = Path(values.lake)
    if root.exists() and any(root.iterdir()):
        if not (root / MARK).exists():
            raise FileExistsError(
                f"the lake {root} holds something that no demo made; set TIDEMARK_LAKE to an empty folder, so that nothing of it is lost"
            )
        shutil.rmtree(root)
    root.mkdir(parents=True, exist_ok=True)
    (root / MARK).write_text("The demo empties this folder each time it starts.\n")


def _instance(values: Settings) -> dg.DagsterInstance:
    """The instance that `make ui` shows; one that only demos used is rid of what the earlier ones left in it."""
    home = Path(values.dagster_home)
    own = (home / MARK).exists() or not home.exists() or not any(home.iterdir())
    home.mkdir(parents=True, exist_ok=True)
    if not (home / "dagster.yaml").exists():
        (home / "dagster.yaml").write_text(_DAGSTER)
    instance = dg.DagsterInstance.from_config(str(home))
    if own:
        (home / MARK).touch()
        instance.wipe_assets(list(instance.all_asset_keys()))
    return instance


def _shop(values: Settings, orders: int, parts: int, seed: int, planned: dict[str, Any]) -> Callable[[int], object]:
    from operators.timing import duration_ms

    day = simulate(Shop(seed=seed, orders=orders, parts=parts, within_ms=duration_ms(values.payment_within, "payment_within")))
    truth = asdict(day.truth)
    planned.update({source: dict(truth[source]) for source in SOURCES})
    return lambda part: drop(day, Path(values.landing_root), part, parts)


def _olist(data: Path, values: Settings, parts: int, arrival: Arrival) -> Callable[[int], object]:
    """Olist's files, prepared aside and landed part by part."""
    from examples.olist.prepare import PREPARED, prepare

    prepared, landing = Path(values.lake) / "_prepared", Path(values.landing_root)
    prepare(data, prepared, parts, arrival)

    def land(part: int) -> None:
        for source in PREPARED:
            (landing / source).mkdir(parents=True, exist_ok=True)
            name = f"part-{part:05d}.csv"
            (prepared / source / name).rename(landing / source / name)

    return land


def _advance(definitions: dg.Definitions, engine: Engine, instance: dg.DagsterInstance, years: bool) -> None:
    """Advance every asset through Dagster; over years the joined payments alone.

    Dagster stores several events for each asset and day of a run: minutes for all assets over Olist's two years. The
    others are advanced by the engine, as the stream does it.
    """
    days = engine.due.days(PAYMENT_ORDER_WIDE) if years else engine.due.all_days()
    only = [dg.AssetKey(PAYMENT_ORDER_WIDE)] if years else None
    job = definitions.resolve_job_def("advance")
    if days:
        job.execute_in_process(instance=instance, run_config=_QUIET, tags=over(*days), asset_selection=only)
    elif not years and (boards := engine.due.boards()):
        job.execute_in_process(instance=instance, run_config=_QUIET, asset_selection=[dg.AssetKey(name) for name in boards])
    for name in engine.assets if years else ():
        for _ in engine.lawful_steps(name):
            pass


def _tables(engine: Engine) -> dict[str, str]:
    names = ["ledger", *[t for c in engine.sources.values() for t in (c.log, c.quarantine)], *engine.assets]
    return {name: engine.lake.path(name) for name in names if engine.lake.delta(name) is not None}


def _ui(values: Settings) -> str:
    """The command that opens the UI on this lake."""
    defaults = Settings.model_fields
    changed = {"TIDEMARK_PAYMENT_WITHIN": values.payment_within} if values.payment_within != defaults["payment_within"].default else {}
    changed |= {"TIDEMARK_LAKE": values.lake} if values.lake != defaults["lake"].default else {}
    return " ".join([*[f"{k}='{v}'" for k, v in changed.items()], "make ui"])
