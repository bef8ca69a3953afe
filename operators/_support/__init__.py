"""Shared code and implementation details of the operators. Only `operators` and its tests import it."""
