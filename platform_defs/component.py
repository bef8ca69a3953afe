"""The Dagster component of a pipeline in YAML: `dg scaffold defs platform_defs.component.TidemarkPipeline rides`."""

from pathlib import Path
from textwrap import indent
from typing import Any

import dagster as dg
from dagster.components.scaffold.scaffold import ScaffoldRequest, scaffold_with
from pydantic import BaseModel

from assets.pipeline import Pipeline
from platform_defs.declared.pipeline import Document, document_model, validate
from platform_defs.declared.text import parse
from platform_defs.definitions import build
from platform_defs.settings import settings

EXAMPLE = Path(__file__).resolve().parent / "template" / "pipeline.yaml"


class TidemarkScaffolder(dg.Scaffolder[Any]):
    """Writes a `defs.yaml` with the pipeline of rides and fares that `tidemark new` writes."""

    def scaffold(self, request: ScaffoldRequest[Any]) -> None:
        """Write the file with the example's comments. In a file with other components, Dagster writes the example without comments.

        In Python, Dagster writes a function `load` without the example, for you to complete.
        """
        if request.scaffold_format != "yaml" or request.append:
            dg.scaffold_component(request, parse(EXAMPLE.read_text("utf-8")))
            return
        attributes = indent(EXAMPLE.read_text("utf-8"), "  ")
        (request.target_path / "defs.yaml").write_text(f"type: {request.type_name}\n\nattributes:\n{attributes}", "utf-8")


@scaffold_with(TidemarkScaffolder)
class TidemarkPipeline(dg.Component):
    """Sources, the tables that are computed from them, and the expectations that their rows must meet.

    The component defines their assets, checks, jobs, sensors and schedules. The lake, the landing folder and Spark are settings, as for the
    command line: `TIDEMARK_LAKE` and so on; set `TIDEMARK_PIPELINE` to the `defs.yaml`, so that `tidemark` finds the same pipeline.

    A Dagster project has at most one such component: it defines the resources `spark` and `engine`, and the project's executor, so that a
    run uses one Spark session. Templates in its values, such as `{{ env.NAME }}`, are not evaluated.
    """

    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline = pipeline

    @classmethod
    def get_model_cls(cls) -> type[BaseModel]:
        """The schema of the attributes."""
        return document_model()

    @classmethod
    def load(cls, attributes: BaseModel | None, context: dg.ComponentLoadContext) -> "TidemarkPipeline":
        """The component that the attributes define.

        Raises:
            DeclaredError: there are no attributes, or a source or a table is not legal.
            ContractError: a table does not match the sources or tables that it reads.
        """
        document = attributes if isinstance(attributes, Document) else validate({})
        return cls(document.pipeline())

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """The definitions of the pipeline, with the settings of the process."""
        return build(settings(), self.pipeline)
