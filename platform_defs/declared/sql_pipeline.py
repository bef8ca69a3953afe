"""A pipeline in SQL: CREATE TABLE statements are sources, and INSERT INTO statements are tables."""

from collections.abc import Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import replace
from pathlib import PurePosixPath

from assets.contracts import DerivedAsset, SourceContract
from assets.pipeline import Pipeline
from operators.errors import TidemarkError
from operators.sql.errors import SqlError
from operators.sql.plan import Plan, Script, plan
from operators.sql.relations import Input, walk
from platform_defs.declared.sql_sources import FILES, DeclaredSource, declared_source
from platform_defs.declared.sql_tables import SqlTables
from platform_defs.declared.sql_targets import Target, declared_target


def read_sql(text: str) -> Pipeline:
    """The pipeline of a text of SQL statements. Queries and EXPLAIN statements in it are ignored: `tidemark sql` runs them.

    Raises:
        SqlError: a statement cannot be parsed, or a part of it has no counterpart.
        ContractError: sources and tables do not fit together.
    """
    return pipeline_of(plan(text))


def pipeline_of(script: Script, plans: Sequence[Plan] | None = None) -> Pipeline:
    """The pipeline of a script.

    Args:
        script: the script.
        plans: the INSERT INTO statements whose tables the pipeline has; None for all of the script.

    Raises:
        SqlError, ContractError: see `read_sql`.
    """
    sources = sources_of(script)
    _check_folders(sources)
    targets = targets_of(script)
    tables = SqlTables(
        {name: [c.name for c in script.declared[name].stored] for name in sources},
        {name: table.comment for name, table in script.declared.items()},
        {name: target.parameters for name, target in targets.items()},
        script.views,
    )
    for planned in script.inserts if plans is None else plans:
        tables.add(planned.target, planned.relation)
    for name in tables.assets.keys() & targets.keys():
        targets[name].check(tables.assets[name])
    if not tables.assets:
        raise SqlError.refused("a pipeline without a table", "it has no INSERT INTO statement", "add INSERT INTO name SELECT ...")
    contracts = [_contract(source.contract, tables.versions.get(name, set())) for name, source in sources.items()]
    return Pipeline(sources=contracts, tables=list(tables.assets.values()))


def tables_of(script: Script) -> tuple[dict[str, DerivedAsset], dict[str, str]]:
    """The tables of a script that a pipeline accepts, and why each other INSERT INTO statement is refused, both by table."""
    if not script.inserts:
        return {}, {}
    with suppress(TidemarkError):
        return {table.name: table for table in pipeline_of(script).tables}, {}
    tables, refusals, accepted = dict[str, DerivedAsset](), dict[str, str](), list[Plan]()
    for planned in script.inserts:  # one after the other, to find out which of them are refused
        try:
            pipeline = pipeline_of(script, [*accepted, planned])
        except TidemarkError as error:
            refusals[planned.target] = str(error)
        else:
            accepted.append(planned)
            tables = {table.name: table for table in pipeline.tables}
    return tables, refusals


def sources_of(script: Script) -> dict[str, DeclaredSource]:
    """The sources of a script, by name: its declared tables, except those that are inserted into.

    A target of EXPLAIN INSERT INTO is no source either, unless a statement reads it.

    Raises:
        SqlError: an option has no counterpart.
        ContractError: a contract is not legal.
    """
    read = {relation.name for planned in script.plans for relation in walk(planned.relation) if isinstance(relation, Input)}
    targets = {*script.targets, *({planned.target for planned in script.plans} - read)}
    return {name: declared_source(table) for name, table in script.declared.items() if name not in targets}


def targets_of(script: Script) -> dict[str, Target]:
    """The options of a script's declared tables that statements insert into, by table.

    Raises:
        SqlError: an option has no counterpart.
    """
    return {name: declared_target(script.declared[name]) for name in script.targets if name in script.declared}


def _contract(contract: SourceContract, version_key: Set[str]) -> SourceContract:
    """The contract of a source; without its unique key if a join reads the rows as versions, since several versions have the same key."""
    return replace(contract, unique_key=()) if {*contract.unique_key} <= version_key else contract


def _check_folders(sources: Mapping[str, DeclaredSource]) -> None:
    """Raise `SqlError` unless the last folder of a source's path has the source's name, as the folder that a pipeline reads has it."""
    for name, source in sources.items():
        if source.connector == FILES and source.path and PurePosixPath(source.path).name != name:
            reason = f"a pipeline reads the files in the folder {name} of TIDEMARK_LANDING"
            way_out = f"name the folder {name}, or leave out 'path'; `tidemark sql` reads files at any path"
            raise SqlError.refused(f"the path {source.path!r} of table {name!r}", reason, way_out)
