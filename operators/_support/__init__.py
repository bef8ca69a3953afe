"""Shared code and implementation details of the operators. Only `operators` imports it."""
