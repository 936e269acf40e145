"""Load in the database while a terminal UI is measured: jobs change at an even pace."""

import threading
import time
from collections.abc import Sequence
from itertools import count
from typing import Final, Self
from uuid import UUID

from bench import jobs
from cortex.domain.errors import CortexError
from cortex.postgres.database import Profile
from cortex.postgres.session import Session, open_session

_NUMBERS: Final = count(1)
"""Every change has a number of its own, larger than those of earlier changes."""
BOUND_S: Final = 30.0


class Load:
    """Changes running jobs in turn, in a thread of its own; a context manager.

    Results: `changes` (number, job and instant of the commit by `time.perf_counter`), changes per
    second, and transactions per second of others. Each wake-up of a listener is a transaction: with
    `is_notified` they are not statements.
    """

    def __init__(
        self,
        dsn: str,
        ids: Sequence[UUID],
        *,
        per_s: float,
        batch: int = 1,
        is_notified: bool = False,
    ) -> None:
        """`per_s`: changes; 0 for none. `is_notified`: each with a notification."""
        self._dsn, self._ids = dsn, ids
        self._pause_s = batch / per_s if per_s else BOUND_S
        self._batch = batch if per_s else 0
        self._is_notified = is_notified
        self._stop = threading.Event()
        self._begun = threading.Event()
        self._error: CortexError | None = None
        self._thread = threading.Thread(target=self._run, name="load", daemon=True)
        self._at = 0
        self.changes: list[tuple[int, UUID, float]] = []
        self.count = 0
        self.per_s = self.others_per_s = 0.0

    def __enter__(self) -> Self:
        self._thread.start()
        self._begun.wait(BOUND_S)
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(BOUND_S)
        self.check()

    def check(self) -> None:
        """Raise the error that ended the load early, if any."""
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            with open_session(Profile(dsn=self._dsn, connections_max=1)) as call:
                self._change(call)
        except CortexError as error:
            self._error = error
        finally:
            self._begun.set()

    def _change(self, call: Session) -> None:
        before = call(jobs.transactions)
        began = due = time.perf_counter()
        self._begun.set()
        batches = 0
        while not self._stop.wait(max(0.0, due - time.perf_counter())):
            due += self._pause_s
            if self._batch:
                self._commit(call)
                batches += 1
        elapsed_s = time.perf_counter() - began
        # Each read of the count is a transaction as well: two at the end, and the count includes
        # one.
        others = call(jobs.transactions) - before - batches - 2
        self.per_s = self.count / elapsed_s
        self.others_per_s = others / elapsed_s

    def _commit(self, call: Session) -> None:
        places = range(self._at, self._at + self._batch)
        self._at += self._batch
        ids = [self._ids[place % len(self._ids)] for place in places]
        numbers = [next(_NUMBERS) for _ in ids]
        call(jobs.advance, ids, numbers, is_notified=self._is_notified)
        at = time.perf_counter()
        self.count += len(ids)
        if self._batch == 1:
            self.changes.append((numbers[0], ids[0], at))
