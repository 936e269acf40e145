"""Waits for a pod that starts at the same time, as `cortex up & cortex jobs submit …` runs them.

On a new machine that pod first creates the embedded database and its schema. While the pod imports
its modules, nothing shows yet that it is coming, so a command waits a little before it reports that
there is no database. Once the pod holds the start lock, the command waits for as long as a start
may take.
"""

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Final

from cortex.cli.options import Options
from cortex.cli.screen.output import Output
from cortex.cli.target import data_dir, database, settings_from
from cortex.config import Settings
from cortex.domain.errors import SchemaError
from cortex.postgres.database import Profile
from cortex.postgres.session import Session, open_session
from cortex.store import codes, pods
from cortex.store.codes import ServedType

GRACE_S: Final = 10.0
"""Wait for a pod that shows no sign of itself yet."""
START_S: Final = 60.0
"""Wait for a pod that holds the start lock."""
POLL_S: Final = 0.1


class StartingPod:
    """The waits of one command, with one line for people in all."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._began = time.monotonic()
        self._has_waited = False

    @contextmanager
    def session(self, options: Options) -> Iterator[Session]:
        """Open the database once a pod that starts has created it; raises as `target.session`."""
        settings = settings_from(options)
        self._await_data(settings)
        with database(settings, must_exist=True) as address, ExitStack() as stack:
            yield self._opened(
                stack, Profile(dsn=address, connections_max=1, tenant=settings.tenant)
            )

    def _opened(self, stack: ExitStack, profile: Profile) -> Session:
        while True:
            try:
                return stack.enter_context(open_session(profile))
            except SchemaError:  # the roles come with the schema
                if not self._may_wait(is_known=self._has_waited):
                    raise
            threading.Event().wait(POLL_S)  # which Ctrl-C ends

    def _await_data(self, settings: Settings) -> None:
        if settings.dsn is not None:
            return
        from cortex.postgres.embedded.server import is_starting

        folder = data_dir(settings)
        while not (folder / "pgdata").exists():
            if not self._may_wait(is_known=is_starting(folder)):
                return
            threading.Event().wait(POLL_S)  # which Ctrl-C ends

    def served(self, call: Session, job_type: str) -> ServedType:
        """Return which pods serve a job type, once there is a schema and the pod is ready.

        Raises `SchemaError` where no pod comes to create it.
        """
        while True:
            try:
                served = call(codes.served, job_type, is_exact=True)
            except SchemaError:
                if not self._may_wait(is_known=self._has_waited):
                    raise
            else:
                if served.is_served or not self._has_waited or not self._may_wait(is_known=True):
                    return served
                if call(pods.live_types):  # it is ready, and does not have the type
                    return served
            call.pause(POLL_S)

    def _may_wait(self, *, is_known: bool) -> bool:
        if time.monotonic() - self._began > (START_S if is_known else GRACE_S):
            return False
        if not self._has_waited:
            self._output.say("no database yet: waiting for a pod that starts", "dim")
        self._has_waited = True
        return True
