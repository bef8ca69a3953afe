"""Loads the configured pipeline."""

from platform_defs.pipelines.loading import PipelineError, configured_pipeline, load

__all__ = ["PipelineError", "configured_pipeline", "load"]
