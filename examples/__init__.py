"""Pipelines that show how the operators are used."""
