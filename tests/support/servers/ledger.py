"""The other side of effects for one test: see `chaos.cluster.ledger`."""

from collections.abc import Iterator
from contextlib import contextmanager

from chaos.cluster.ledger import Ledger


@contextmanager
def running_ledger() -> Iterator[Ledger]:
    """Run a ledger until the block is left; fails if a request did what none may do."""
    with Ledger() as ledger:
        yield ledger
    assert not ledger.errors, ledger.errors
