"""Olist's real orders and payments, as input files for Tidemark."""
