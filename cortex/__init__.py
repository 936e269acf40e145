"""Cortex: a durable runtime for AI agents on trio and Postgres."""

__version__ = "0.1.0"
