"""What an actor is: a named piece of work that owns its state and runs in one trio task.

An actor acquires nothing in `__init__`: connections, locks and trio tasks belong to `run`, which
gives them up on every way out. So a crashed actor is simply run again, on the same object.
"""

from typing import Protocol

import trio


class Actor(Protocol):
    """The contract between an actor and its supervisor."""

    @property
    def name(self) -> str:
        """Unique within its supervisor; the name in logs, errors and `Supervisor.children`."""
        ...

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Do the actor's work until it is finished or cancelled; may be called again after a crash.

        Calls `task_status.started()` once per run, when it is really ready to serve and not before.
        Raising an `Exception` is a crash; expected trouble is handled inside.
        State that must outlive a crash (a mailbox) is kept on the object, all other is local.
        """
        ...
