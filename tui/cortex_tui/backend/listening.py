"""Streams the output of a job's model while an operator looks at that job.

Owns: a listening connection, and the watch in the database that makes the job's pod send. Messages
are read from the table when a notification hints at some; a lost one leaves a gap. Behind a pooler
LISTEN does not work, so it polls once a second.
A read-only session creates no watch: it sees only what others who watch the job cause to be sent.
On failure: it reconnects after a pause; the pod resends the output that it still has. On stop: when
cancelled, it ends the watch within a bound; a lost watch expires by itself.
"""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Final, TypeAlias
from uuid import UUID

from cortex.domain.answer_text import Message, messages_of
from cortex.domain.clock import system_chance
from cortex.domain.errors import CortexError
from cortex.postgres.database import Profile
from cortex.postgres.dedicated import Dedicated
from cortex.store import watches

Heard: TypeAlias = Callable[[Message], None]
OnStatus: TypeAlias = Callable[[str], None]
"""Takes the state of the listener: "" if healthy, else why not, in a few words."""

AGAIN_S: Final = 2.0
ASK_EVERY_S: Final = 1.0
GOODBYE_S: Final = 2.0
ONLY_OTHERS: Final = "read-only: heard while others look at this job, too"
POOLED: Final = "a pooler: asked for each second"


class Listeners:
    """The active listeners, so that shutdown can wait until they have ended their watches."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()
        self._goodbyes: set[asyncio.Task[None]] = set()

    def add(self) -> None:
        """Track the calling task until it is done."""
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 -- for the type checker
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def leave(self, goodbye: Coroutine[Any, Any, None]) -> None:
        """End a watch in a task of its own: the listener may be cancelled again and again."""
        task = asyncio.create_task(goodbye)
        self._goodbyes.add(task)
        task.add_done_callback(self._goodbyes.discard)

    async def close(self) -> None:
        """Cancel the listeners and wait until they have ended their watches."""
        for task in (tasks := set(self._tasks)):
            task.cancel()
        for waiting in (tasks, self._goodbyes):
            if waiting:
                await asyncio.wait(set(waiting), timeout=2 * GOODBYE_S)


class Listening:
    """The listener of one job. `renew` notifies the pod that runs it now."""

    def __init__(
        self,
        profile: Profile,
        job_id: UUID,
        *,
        heard: Heard,
        on_status: OnStatus,
        among: Listeners,
    ) -> None:
        self._profile = profile
        self._among = among
        self._job_id = job_id
        self._heard = heard
        self._on_status = on_status
        self._is_wanted = self._is_hinted = False
        self._woken = asyncio.Event()

    def renew(self) -> None:
        """Make the pod that runs the job now send, including its backlog."""
        self._is_wanted = True
        self._woken.set()

    def _hint(self) -> None:
        self._is_hinted = True
        self._woken.set()

    async def run(self) -> None:
        self._among.add()
        while True:
            try:
                await self._listen()
            except CortexError as error:
                self._on_status(error.message)
            await _pause(AGAIN_S)

    async def _listen(self) -> None:
        lost = asyncio.Event()

        def gone() -> None:
            lost.set()
            self._woken.set()

        line = Dedicated(self._profile, on_lost=gone)
        watcher = system_chance().new_id() if self._profile.may_write else None
        try:
            await line.open()
            if not line.is_pooled:
                await watches.listen(line, self._hint)
            status = ONLY_OTHERS if watcher is None else ""
            self._on_status(status or (POOLED if line.is_pooled else ""))
            await self._keep(line, watcher, lost)
        finally:
            self._among.leave(self._say_goodbye(line, watcher))

    async def _say_goodbye(self, line: Dedicated, watcher: UUID | None) -> None:
        try:
            if watcher is not None:
                with suppress(CortexError, TimeoutError):
                    async with asyncio.timeout(GOODBYE_S):
                        await watches.unwatch(line, watcher=watcher, job_ids=[self._job_id])
        finally:
            line.cut()

    async def _keep(self, line: Dedicated, watcher: UUID | None, lost: asyncio.Event) -> None:
        """Renew the watch, if there is one, until the connection is lost."""
        read_ids: set[int] = set()
        loop = asyncio.get_running_loop()
        due, is_first = loop.time(), True
        while not lost.is_set():
            if self._is_wanted or is_first or loop.time() >= due:
                is_new, self._is_wanted, is_first = self._is_wanted or is_first, False, False
                due = loop.time() + watches.RENEW_S
                if watcher is not None:
                    await watches.watch(
                        line,
                        watcher=watcher,
                        job_ids=[self._job_id],
                        new=[self._job_id] if is_new else [],
                    )
            if line.is_pooled or self._is_hinted:
                self._is_hinted = False
                read_ids = await self._ask(line, read_ids)
            await _pause(watches.SAID_APART_S)
            rest_s = min(ASK_EVERY_S, due - loop.time()) if line.is_pooled else due - loop.time()
            with suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, rest_s)):
                    await self._woken.wait()
            self._woken.clear()

    async def _ask(self, line: Dedicated, read_ids: set[int]) -> set[int]:
        payloads = await watches.said(line, read_ids)
        for payload in payloads.values():
            if payload is not None:
                self._take(payload)
        return set(payloads)

    def _take(self, payload: str) -> None:
        try:
            messages = messages_of(payload)
        except ValueError:
            self._on_status("the pod speaks another version")
            return
        for message in messages:
            if message.job_id == self._job_id:
                self._heard(message)


async def _pause(seconds: float) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await asyncio.Event().wait()
