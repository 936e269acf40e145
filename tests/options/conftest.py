"""Jobs in memory with a scripted model, and on pods."""

from tests.e2e.conftest import agent, database, gate, model, pods
from tests.unit.testing.conftest import harness

__all__ = ["agent", "database", "gate", "harness", "model", "pods"]
