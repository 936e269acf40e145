"""Ids and names of the database, as shells complete them: at once, or not at all.

Invariants: never starts a database, never waits longer than `WITHIN_S` for one, shows no error. A
shell puts what is chosen into the command line as it stands, so that only values without meaning to
a shell are offered, whatever jobs and people have put into the record.
"""

import re
import threading
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from typing import Any, Final

import click
from click.shell_completion import CompletionItem

from cortex.cli.options import options_of
from cortex.cli.target import data_dir, settings_from
from cortex.domain.clock import system_chance
from cortex.postgres.database import Database, Profile, open_database
from cortex.postgres.session import run_alone

WITHIN_S: Final = 0.3
ROWS_MAX: Final = 50
WAITS_MAX: Final = 1_000
ID_DIGITS: Final = 6
UUID_CHARS: Final = 36
UUID_DASHES: Final = 4
_HARMLESS: Final = re.compile(r"[\w.:@/+-]+", re.ASCII)

Pair = tuple[str, str]
"""A value, and what zsh and fish show beside it."""


async def _jobs(db: Database) -> list[Pair]:
    from cortex.domain.job_filter import JobFilter
    from cortex.store.job_pages import page

    found = await page(db, JobFilter(), before=None, limit=ROWS_MAX)
    return [(str(each.id), f"{each.type} {each.status.value.lower()}") for each in found.jobs]


async def _approvals(db: Database) -> list[Pair]:
    from cortex.store.approvals import pending

    rows = await pending(db, limit=ROWS_MAX)
    return [(str(each.id), each.tool or each.key) for each in rows]


async def _dead(db: Database) -> list[Pair]:
    from cortex.store.dead_letters import page

    return [(str(each.job_id), each.type) for each in await page(db, limit=ROWS_MAX)]


async def _effects(db: Database) -> list[Pair]:
    from cortex.store.effects import page

    return [(str(each.id), each.tool) for each in await page(db, limit=ROWS_MAX)]


async def _types(db: Database) -> list[Pair]:
    from cortex.store.codes import types

    return [(each.type, "" if each.is_live else "no ready pod") for each in await types(db)]


async def _agents(db: Database) -> list[Pair]:
    from cortex.store.specs import SpecKind, page

    return [(each.name, "") for each in await page(db, SpecKind.AGENT, limit=ROWS_MAX)]


async def _flows(db: Database) -> list[Pair]:
    from cortex.store.specs import SpecKind, page

    return [(each.name, "") for each in await page(db, SpecKind.FLOW, limit=ROWS_MAX)]


async def _pods(db: Database) -> list[Pair]:
    from cortex.store.pods import page

    return [(each.name, each.version) for each in await page(db)]


async def _queues(db: Database) -> list[Pair]:
    from cortex.store.queues import page

    return [
        (each.queue or "default", "paused" if each.paused_at else "") for each in await page(db)
    ]


async def _schedules(db: Database) -> list[Pair]:
    from cortex.store.background.schedules import page

    return [(each.name, each.type) for each in await page(db, limit=ROWS_MAX)]


async def _signals(db: Database) -> list[Pair]:
    from cortex.store.signals import awaited

    return [(each, "a job waits for it") for each in await awaited(db, limit=WAITS_MAX)]


async def _tenants(db: Database) -> list[Pair]:
    """Read those of the newest jobs."""
    from cortex.domain.job_filter import JobFilter
    from cortex.store.job_pages import page

    found = await page(db, JobFilter(), before=None, limit=ROWS_MAX)
    return [(each, "") for each in dict.fromkeys(job.tenant for job in found.jobs)]


async def _pauses(db: Database) -> list[Pair]:
    from cortex.store.pauses import page

    return [(str(each.target), each.reason) for each in await page(db)]


READERS: Final[Mapping[str, Callable[[Database], Coroutine[Any, Any, list[Pair]]]]] = {
    "job": _jobs,
    "approval": _approvals,
    "dead letter": _dead,
    "effect": _effects,
    "type": _types,
    "agent": _agents,
    "flow": _flows,
    "pod": _pods,
    "queue": _queues,
    "schedule": _schedules,
    "signal": _signals,
    "tenant": _tenants,
    "pause": _pauses,
}
"""Reads the newest or first of what a noun names."""


def known(noun: str) -> Callable[[click.Context, click.Parameter, str], list[CompletionItem]]:
    """Return the completion of a parameter that names one of the database's `noun`."""
    read = READERS[noun]

    def complete(
        context: click.Context, parameter: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        given = context.params.get(parameter.name or "") or ()
        taken = {given} if isinstance(given, str) else {*given}
        rows = [] if incomplete and not _HARMLESS.fullmatch(incomplete) else _rows(context, read)
        found = [(_offered(value, incomplete), text) for value, text in rows]
        return [
            CompletionItem(value, help=text if _HARMLESS.fullmatch(text) else None)
            for value, text in dict(found).items()
            if value.startswith(incomplete) and value not in taken and _HARMLESS.fullmatch(value)
        ]

    return complete


def _offered(value: str, incomplete: str) -> str:
    """Return the end of an id, or the whole id once more than such an end was typed."""
    is_id = len(value) == UUID_CHARS and value.count("-") == UUID_DASHES
    is_longer = len(incomplete) > ID_DIGITS or (value.startswith(incomplete) and incomplete)
    return value[-ID_DIGITS:] if is_id and not is_longer else value


def _rows(
    context: click.Context, read: Callable[[Database], Coroutine[Any, Any, list[Pair]]]
) -> list[Pair]:
    """Read within `WITHIN_S`, else return nothing; the thread ends with the process."""
    found: list[Pair] = []

    def work(dsn: str) -> None:
        with suppress(Exception):
            found.extend(run_alone(lambda: _read(dsn, read)))

    with suppress(Exception):
        dsn = _dsn(context)
        if dsn is not None:
            thread = threading.Thread(target=work, args=(dsn,), name="completion", daemon=True)
            thread.start()
            thread.join(WITHIN_S)
    return [*found]


async def _read(
    dsn: str, read: Callable[[Database], Coroutine[Any, Any, list[Pair]]]
) -> list[Pair]:
    profile = Profile(dsn=dsn, connections_max=1, is_read_only=True, bound_s=WITHIN_S)
    db = await open_database(profile, rng=system_chance().rng)
    try:
        return await read(db)
    finally:
        await db.close()  # noqa: ASYNC102 -- bounded by itself; its thread is left behind


def _dsn(context: click.Context) -> str | None:
    """Return the address of the database; of the embedded one only while it runs."""
    settings = settings_from(options_of(context))
    if settings.dsn is not None:
        return settings.dsn
    from cortex.postgres.embedded.server import DATABASE
    from cortex.postgres.embedded.socket import Postmaster

    server = Postmaster.read(data_dir(settings) / "pgdata" / "postmaster.pid")
    return server.dsn(DATABASE) if server is not None and server.listens() else None
