"""Mutants of how pods and clients use the database, and how they learn of work."""

from typing import Final

from chaos.mutants.mutant import Mutant, Patch

MUTANTS: Final = (
    Mutant(
        name="deaf-and-slow",
        what="notifications are ignored, and polling is very rare",
        scene="trickle",
        invariant="I8",
        patches=(
            Patch(
                "cortex/runtime/jobs/dispatcher.py",
                "        self._promote_next = self._promote_next or promote\n"
                "        self._pacer.wake()\n",
                "        self._promote_next = self._promote_next or promote\n",
            ),
            Patch(
                "cortex/runtime/jobs/dispatcher.py",
                "        self._poll_s = poll_s\n",
                "        self._poll_s = 40 * poll_s\n",
            ),
        ),
    ),
    Mutant(
        name="no-bound",
        what="a database call waits for its answer without bound",
        scene="silence",
        invariant="I12",
        patches=(
            Patch(
                "cortex/postgres/database.py",
                "            cut_at = self._watchdog.watch(connection)\n"
                "            clean = False\n",
                "            cut_at = asyncio.get_running_loop().time() + 3600.0\n"
                "            clean = False\n",
            ),
        ),
    ),
    Mutant(
        name="open-snapshot",
        what="a session of each pod never ends its first transaction",
        scene="silence",
        invariant="I13",
        patches=(
            Patch(
                "cortex/postgres/database.py",
                "            await holder.transaction().start()\n",
                '            await holder.transaction(isolation="repeatable_read").start()\n',
            ),
            Patch(
                "cortex/postgres/database.py",
                "    return database\n",
                '    await database.hold("jobs.types")\n    return database\n',
            ),
        ),
    ),
    Mutant(
        name="kept-connections",
        what="new connections are opened although idle ones exist",
        scene="silence",
        invariant="I22",
        patches=(
            Patch(
                "cortex/postgres/database.py",
                "            while self._idle:\n",
                "            while len(self._idle) > 12:\n",
            ),
        ),
    ),
)
