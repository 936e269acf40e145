"""Agents with long conversations: in memory, and on pods that are killed."""

from tests.e2e.conftest import agent, database, gate, model, pods
from tests.unit.testing.conftest import harness

__all__ = ["agent", "database", "gate", "harness", "model", "pods"]
