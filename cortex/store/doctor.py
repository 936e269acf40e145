"""What `cortex doctor` reads from a database: each check is separate, so that one may fail."""

import asyncio
from contextlib import suppress
from datetime import datetime
from typing import Final

import attrs

from cortex.domain.drain import Liveness
from cortex.domain.errors import UnavailableError
from cortex.domain.server_facts import (
    IntruderFacts,
    OpenDatabase,
    PodFacts,
    ServerFacts,
    SnapshotFacts,
)
from cortex.postgres.database import Database, Record
from cortex.postgres.dedicated import Dedicated
from cortex.store import pods

HINT_BOUND_S: Final = 2.0
PODS_MAX: Final = 1_000
INTRUDERS_MAX: Final = 100
COUNTED_MAX: Final = 10_000
CHANNEL: Final = "cortex_doctor"


@attrs.frozen(kw_only=True)
class Connected:
    """A server that accepts connections."""

    version: str
    is_pooled: bool
    now: datetime
    server: ServerFacts


async def connected(db: Database) -> Connected:
    """Read the server's properties; works without a schema, on a standby, and through a pooler."""
    (row,) = await db.fetch("doctor.server")
    snapshots = await db.fetch("doctor.snapshots")
    return Connected(
        version=row["version"],
        is_pooled=bool(db.profile.is_pooled),
        now=row["now"],
        server=ServerFacts(
            is_standby=row["is_standby"],
            is_read_only=row["is_read_only"],
            synchronous_commit=row["synchronous_commit"],
            fsync=row["fsync"],
            connections_used=row["connections_used"],
            connections_max=row["connections_max"],
            snapshots=tuple(_snapshot(each) for each in snapshots),
        ),
    )


async def living(db: Database) -> list[PodFacts]:
    """Return the pods that are marked alive."""
    return [
        PodFacts(
            name=row["name"],
            version=row["version"],
            state=row["state"],
            liveness=Liveness(row["liveness"]),
            is_locked=row["is_locked"],
            silent_s=row["silent_s"],
            running=row["running"],
            loop_lag_ms=row["loop_lag_ms"],
            hint_latency_ms=row["hint_latency_ms"],
            threads_lost=row["threads_lost"],
            trouble=row["trouble"],
            confinement=row["confinement"],
            silent_after_s=row["silent_after_s"],
            zombie_s=row["zombie_s"],
        )
        for row in await db.fetch("doctor.pods", PODS_MAX)
    ]


async def open_to_all(db: Database) -> OpenDatabase | None:
    """Return the database if every login of its server may connect to it."""
    (row,) = await db.fetch("doctor.access")
    return OpenDatabase(name=row["name"], roles=row["roles"]) if row["is_open"] else None


async def intruders(db: Database) -> list[IntruderFacts]:
    """Return the sessions that hold advisory locks of pods but cannot be pods."""
    return [
        IntruderFacts(name=row["name"], pid=row["pid"], what=row["what"])
        for row in await db.fetch("doctor.intruders", INTRUDERS_MAX)
    ]


async def unknown_effects(db: Database) -> int:
    """Count effects that a person must resolve, up to a limit."""
    (row,) = await db.fetch("doctor.unknown_effects", COUNTED_MAX)
    return int(row["count"])


async def unnoticed_approvals(db: Database) -> int:
    """Count the waiting requests that nobody was notified of, up to a limit."""
    (row,) = await db.fetch("doctor.unnoticed_approvals", COUNTED_MAX)
    return int(row["count"])


async def hint_ms(db: Database) -> float | None:
    """Send a notification to this process; return how long it took, None if it does not arrive.

    Not through a pooler, where listening is impossible. Raises `UnavailableError` when the session
    that listens is lost meanwhile.
    """
    loop = asyncio.get_running_loop()
    came = asyncio.Event()
    session = Dedicated(db.profile, on_lost=came.set)  # stops the wait when the session is lost
    await session.open()
    try:
        await session.listen(CHANNEL, lambda _: came.set())
        sent_at = loop.time()
        await pods.probe(db, channel=CHANNEL)
        with suppress(TimeoutError):
            async with asyncio.timeout(HINT_BOUND_S):
                await came.wait()
        if not session.is_open:
            raise UnavailableError(
                "the session that listened was lost", hint="look into the server's log for why"
            )
        return 1000 * (loop.time() - sent_at) if came.is_set() else None
    finally:
        await session.close()


def _snapshot(row: Record) -> SnapshotFacts:
    return SnapshotFacts(
        kind=row["kind"], name=row["name"], pid=row["pid"], held_s=row["held_s"], xids=row["xids"]
    )
