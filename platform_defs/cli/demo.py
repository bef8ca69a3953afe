"""The demo: runs a simulated shop day, or Olist's sample, through Dagster in micro-batches."""

import shlex
from collections.abc import Callable, Iterable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, Literal

import dagster as dg

from assets.days import day_of
from assets.factories.partitions import range_tags
from assets.shop.names import PAYMENT_ORDER_WIDE
from operators.timing import duration_ms
from platform_defs.cli import status
from platform_defs.cli.demo_lake import FOLDER, PREPARED_FOLDER, DemoLake
from platform_defs.configured_engine import make_engine
from platform_defs.dagster_home.instance import prepare
from platform_defs.definitions import build
from platform_defs.engine import Engine
from platform_defs.settings import Settings, settings
from platform_defs.shop import shop
from platform_defs.simulator import SOURCES, Shop, ShopDay, drop, olist, simulate

_QUIET_LOGS = {"loggers": {"console": {"config": {"log_level": "WARNING"}}}}
Arrival = Literal["by_time", "as_is"]
OnStep = Callable[[str], object]
Send = Callable[[ShopDay, int], object]


def run(
    data: Path | None,
    *,
    orders: int,
    parts: int,
    seed: int,
    arrival: Arrival = "by_time",
    lake: str | None = None,
    on_step: OnStep = print,
    send: Send | None = None,
) -> dict[str, Any]:
    """Run the demo in a lake of its own, which it empties first. The lake, input files and Dagster instance of the settings are not used.

    Args:
        data: a folder of Olist's files; None for a simulated day.
        orders: the number of orders of the simulated day.
        parts: the number of micro-batches.
        seed: the simulated day's seed.
        arrival: for Olist, whether rows arrive sorted by time or in the order of the files.
        lake: the demo's lake: a new or empty folder, or one of an earlier demo; by default `.tidemark/demo`.
        on_step: called with a description of the present work, once for each micro-batch and once at the end.
        send: sends a part of a simulated day to the sources; by default the rows land in files.

    Returns:
        `status` (as `tidemark status --recount --json`), `planned` (the simulator's rows by kind), `tables` and `ui`.

    Raises:
        ForeignFolderError: the lake contains a file that no demo made, or overlaps the lake or the input files of the settings.
        LakeError: another process writes to the demo's lake.
    """
    folder = DemoLake(Path(lake) if lake else FOLDER)
    values = _settings(data, folder)
    pipeline = shop(values)
    definitions, engine = build(values, pipeline), make_engine(values, pipeline)
    folder.begin(engine)
    instance = _instance(values)
    planned_rows: dict[str, Any] = {}
    if data:
        land_part = _of_olist(data, folder, parts, arrival)
    else:
        land_part = _simulated(folder, simulate(_shop(values, seed=seed, orders=orders, parts=parts)), parts, planned_rows, send)
    for part in range(parts):
        on_step(f"micro-batch {part + 1} of {parts}")
        land_part(part)
        ingest_in_dagster(definitions, instance)
        _advance(definitions, engine, instance, bool(data))
    on_step("accounting")
    if data:
        engine.drain()
        _advance(definitions, engine, instance, True)
    return {"status": status.recounted_status(engine, engine.assets), "planned": planned_rows, "tables": _tables(engine), "ui": _ui(values)}


def _settings(data: Path | None, folder: DemoLake) -> Settings:
    """The demo's settings: daily partitions for the simulated day; for Olist, a payment bound of 72 hours if the environment has none."""
    values = settings()
    if data is None:
        day = _shop(values)
        return folder.settings(values, first_day=day.day, last_day=str(day_of(day.start + day.span)))
    return folder.settings(values, **({} if "payment_within" in values.model_fields_set else {"payment_within": "72 hours"}))


def _shop(values: Settings, **parameters: Any) -> Shop:
    return Shop(within_ms=duration_ms(values.payment_within, "payment_within"), **parameters)


def _instance(values: Settings) -> dg.DagsterInstance:
    """The demo's Dagster instance, without the assets of earlier demos."""
    instance = dg.DagsterInstance.from_config(str(prepare(values.dagster_home)))
    instance.wipe_assets(list(instance.all_asset_keys()))
    return instance


def _simulated(folder: DemoLake, day: ShopDay, parts: int, planned_rows: dict[str, Any], send: Send | None) -> Callable[[int], object]:
    truth = asdict(day.truth)
    planned_rows.update({source: dict(truth[source]) for source in SOURCES})
    if send is not None:
        folder.record_topics(SOURCES)
        return partial(send, day)
    return lambda part: _land(folder, SOURCES, f"part-{part:05d}.jsonl", lambda: drop(day, folder.landing, part, parts))


def _of_olist(data: Path, folder: DemoLake, parts: int, arrival: Arrival) -> Callable[[int], object]:
    """Prepare Olist's files in a separate folder; returns a function that lands a part of them."""
    prepared_folder = folder.root / PREPARED_FOLDER
    olist.prepare(data, prepared_folder, parts, arrival)

    def move(name: str) -> None:
        for source in olist.PREPARED:
            (folder.landing / source).mkdir(parents=True, exist_ok=True)
            (prepared_folder / source / name).rename(folder.landing / source / name)

    def land_part(part: int) -> None:
        name = f"part-{part:05d}.csv"
        _land(folder, olist.PREPARED, name, lambda: move(name))

    return land_part


def _land(folder: DemoLake, sources: Iterable[str], name: str, write_files: Callable[[], object]) -> None:
    """Land a file of each source, and record it before and after, so that a killed demo still knows its own files."""
    folder.record_planned_files(f"{source}/{name}" for source in sources)
    write_files()
    folder.record_landed_files()


def ingest_in_dagster(definitions: dg.Definitions, instance: dg.DagsterInstance) -> None:
    """Ingest what has landed, in a run of Dagster in this process."""
    definitions.resolve_job_def("ingest").execute_in_process(instance=instance, run_config=_QUIET_LOGS)


def advance_in_dagster(definitions: dg.Definitions, engine: Engine, instance: dg.DagsterInstance) -> None:
    """Advance every asset, account for it and check it, in a run of Dagster in this process."""
    days, job = engine.pending.all_days(), definitions.resolve_job_def("advance")
    if days:
        job.execute_in_process(instance=instance, run_config=_QUIET_LOGS, tags=range_tags(*days))
    elif upserted := engine.pending.upserted_tables():
        job.execute_in_process(instance=instance, run_config=_QUIET_LOGS, asset_selection=[dg.AssetKey(name) for name in upserted])


def _advance(definitions: dg.Definitions, engine: Engine, instance: dg.DagsterInstance, covers_years: bool) -> None:
    """Advance every asset through Dagster; if the input covers years, only `payment_order_wide`, and the others without Dagster.

    Dagster stores several events for each asset and day of a run. For all assets and Olist's two years, this would take minutes.
    """
    if not covers_years:
        advance_in_dagster(definitions, engine, instance)
        return
    if days := engine.pending.days(PAYMENT_ORDER_WIDE):
        job, selection = definitions.resolve_job_def("advance"), [dg.AssetKey(PAYMENT_ORDER_WIDE)]
        job.execute_in_process(instance=instance, run_config=_QUIET_LOGS, tags=range_tags(*days), asset_selection=selection)
    for name in engine.assets:
        for _ in engine.steps(name, checked=True):
            pass


def _tables(engine: Engine) -> dict[str, str]:
    names = ["ledger", *[t for c in engine.sources.values() for t in (c.log, c.quarantine)], *engine.assets]
    return {name: engine.lake.path(name) for name in names if engine.lake.exists(name)}


def _ui(values: Settings) -> str:
    """The command that opens the UI on the demo's lake."""
    own = settings()
    variables = {"TIDEMARK_LAKE": values.lake, "TIDEMARK_DAGSTER_HOME": values.dagster_home}
    variables |= {"TIDEMARK_LANDING": values.landing_root} if own.landing else {}
    variables |= {
        f"TIDEMARK_{name.upper()}": day for name in ("first_day", "last_day") if (day := getattr(values, name)) != getattr(own, name)
    }
    variables |= {"TIDEMARK_PAYMENT_WITHIN": values.payment_within} if values.payment_within != own.payment_within else {}
    unset_pipeline = ["env", "-u", "TIDEMARK_PIPELINE"] if own.pipeline is not None else []
    return " ".join([*unset_pipeline, *[f"{name}={shlex.quote(value)}" for name, value in variables.items()], "make ui"])
