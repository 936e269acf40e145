"""One connection: straight to Postgres, or through a pooler that lends its sessions out.

A pooler (PgBouncer in transaction mode) gives each transaction any session that is free. So a
session keeps nothing there: no setting, no lock, no subscription, no prepared statement; and what
is left in one meets strangers. It is known for certain at connecting: the settings that a client
sends with its start-up reach a session that was begun for it, and no other. PgBouncer refuses
them, or drops them when told to (`ignore_startup_parameters`).

Behind a pooler the settings come with each transaction, and statements are prepared for one use.
"""

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final, NamedTuple

import asyncpg
import attrs
from asyncpg.connect_utils import SessionAttribute

from cortex.domain import redaction
from cortex.domain.errors import UnavailableError
from cortex.postgres.dsn import hosts, names_server, redact
from cortex.postgres.queries import sql

# --- What the driver need not ask the server: array types that are the same in every Postgres.


ARRAYS: Final = {
    199: ("json", 114),
    1000: ("bool", 16),
    1001: ("bytea", 17),
    1005: ("int2", 21),
    1007: ("int4", 23),
    1016: ("int8", 20),
    1022: ("float8", 701),
    1182: ("date", 1082),
    1185: ("timestamptz", 1184),
    1187: ("interval", 1186),
    1231: ("numeric", 1700),
    2951: ("uuid", 2950),
    3807: ("jsonb", 3802),
}
"""By the array's oid: name and oid of what is in it. Oids below 10,000 are for good."""


class NoStatement(NamedTuple):
    """In place of the one that would have asked; a name, as it has displaced no unnamed one."""

    name: str = "none"


def split(oids: Iterable[int]) -> tuple[list[dict[str, Any]], list[int]]:
    """What the driver would be told of the known ones, and those that have to be asked for."""
    asked = list(oids)
    return [_told(oid) for oid in asked if oid in ARRAYS], [
        oid for oid in asked if oid not in ARRAYS
    ]


def _told(oid: int) -> dict[str, Any]:
    name, element = ARRAYS[oid]
    return {
        "oid": oid,
        "ns": "pg_catalog",
        "name": f"_{name}",
        "kind": b"b",
        "basetype": None,
        "elemtype": element,
        "elemdelim": b",",
        "range_subtype": None,
        "attrtypoids": None,
        "attrnames": None,
        "depth": 0,
        "basetype_name": None,
        "elemtype_name": name,
        "range_subtype_name": None,
    }


# ---


Record = asyncpg.Record

STATEMENTS_MAX: Final = 100
"""Prepared statements that a session of our own keeps."""
OWN_SESSION: Final = {"cortex.session": "own"}
"""Sent to the server only to see whether it got there."""
FOLLOWING_SETTINGS: Final = frozenset({"application_name", "timezone"})
"""What every pooler brings to each session that it lends out."""

NEWER_SETTINGS: Final = frozenset({"transaction_timeout"})
"""What not each server knows (17 does): one that does not would refuse a start-up with it."""
READ_ONLY: Final = "default_transaction_read_only"
"""Sent at the start, it would make a primary look like a standby to the driver."""
LATER_SETTINGS: Final = NEWER_SETTINGS | {READ_ONLY}

ELSEWHERE: Final = (
    OSError,
    TimeoutError,
    asyncpg.CannotConnectNowError,
    asyncpg.TooManyConnectionsError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
)
"""What one of several hosts may answer: the next one may answer better."""


class Connection(asyncpg.Connection):
    """A connection to which no secret is sent that this process knows of, in any parameter.

    It has these methods only: the store's tests see to it that it uses no others.
    """

    is_pooled = False
    """Each transaction may have another session, which was somebody else's a moment ago."""

    async def fetch(self, query: str, *args: Any, **options: Any) -> Any:
        with _cut_while_in_use(self):
            return await super().fetch(query, *_redacted(args), **options)

    async def fetchrow(self, query: str, *args: Any, **options: Any) -> Any:
        with _cut_while_in_use(self):
            return await super().fetchrow(query, *_redacted(args), **options)

    async def fetchval(self, query: str, *args: Any, **options: Any) -> Any:
        with _cut_while_in_use(self):
            return await super().fetchval(query, *_redacted(args), **options)

    async def execute(self, query: str, *args: Any, **options: Any) -> Any:
        with _cut_while_in_use(self):
            return await super().execute(query, *_redacted(args), **options)

    async def _introspect_types(self, typeoids: Any, timeout: float | None) -> Any:
        """Ask only for types that nobody can know; the driver calls it by this name."""
        known, unknown = split(typeoids)
        if not unknown:
            return known, NoStatement()
        rows, statement = await super()._introspect_types(  # type: ignore[misc]
            unknown, timeout
        )
        return [*known, *rows], statement


class PooledConnection(Connection):
    """A connection to a pooler; `set_locally` begins each transaction."""

    is_pooled = True
    _server_caps: Any

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        # Looking at types asyncpg turns compilation off for its session: which is not ours.
        self._server_caps = self._server_caps._replace(jit=False)


@attrs.frozen(kw_only=True)
class Target:
    """Where to connect and with which settings; one host."""

    dsn: str = attrs.field(repr=redact)
    settings: Mapping[str, str]
    place: Mapping[str, Any] = attrs.field(factory=dict)
    """Which of several hosts."""
    server: SessionAttribute | None = None
    """Which one it must be; None: as the address says."""

    async def open(
        self, kind: type[Connection], settings: Mapping[str, str], *, statements_max: int
    ) -> Connection:
        """Connect; raises what the driver raises."""
        opened: Connection = await asyncpg.connect(
            self.dsn,
            **self.place,
            server_settings=dict(settings),
            statement_cache_size=statements_max,
            # For good: to prepare anew costs a second round trip, which a slow network cannot bear.
            max_cached_statement_lifetime=0,
            connection_class=kind,
            target_session_attrs=self.server,
        )
        return opened


async def connect(
    dsn: str, *, settings: Mapping[str, str], is_pooled: bool | None, bound_s: float
) -> Connection:
    """Open a connection within the bound; raises what the driver raises.

    Of several hosts each is tried, in order and with its share of the time; the one is taken that
    takes writes, unless the address asks for another. `is_pooled`: None to find out, which makes a
    connection that keeps no prepared statements. False where there is a pooler now raises
    `UnavailableError`.
    """
    several = [{"host": host, "port": port} for host, port in hosts(dsn)]
    server = SessionAttribute.read_write if several and not names_server(dsn) else None
    *others, last = [
        Target(dsn=dsn, settings=settings, place=place, server=server) for place in several or [{}]
    ]
    share_s = bound_s / (len(others) + 1)
    for target in others:
        with suppress(*ELSEWHERE):
            async with asyncio.timeout(share_s):
                return await _connect(target, is_pooled=is_pooled)
    async with asyncio.timeout(share_s):
        return await _connect(last, is_pooled=is_pooled)


async def _connect(target: Target, *, is_pooled: bool | None) -> Connection:
    if not is_pooled:
        kept = STATEMENTS_MAX if is_pooled is False else 0
        if (own := await _own(target, statements_max=kept)) is not None:
            return own
        if is_pooled is False:
            raise UnavailableError(
                "a pooler has come between here and the database",
                hint="start this process again: it works behind one, in another way",
            )
    settings = target.settings
    following = {name: settings[name] for name in FOLLOWING_SETTINGS & settings.keys()}
    lent = await target.open(PooledConnection, following, statements_max=0)
    with _cut_unless_done(lent):
        async with lent.transaction():
            await set_locally(lent, settings)
        return lent


async def _own(target: Target, *, statements_max: int) -> Connection | None:
    """Connect with all settings; None if they do not get to the session."""
    later = {name: target.settings[name] for name in LATER_SETTINGS & target.settings.keys()}
    known = {name: value for name, value in target.settings.items() if name not in later}
    try:
        opened = await target.open(
            Connection, {**known, **OWN_SESSION}, statements_max=statements_max
        )
    except asyncpg.ProtocolViolationError as error:
        if "startup parameter" in str(error):
            return None
        raise
    with _cut_unless_done(opened):
        # Its tag tells how many rows, without a prepared statement: a pooler could not bear one.
        tag = await opened.execute(sql("sessions.is_own"))
        if tag.endswith(" 1"):
            await opened.fetch(sql("sessions.set"), list(later), list(later.values()))
            return opened
    opened.terminate()
    return None


@contextmanager
def _cut_while_in_use(connection: Connection) -> Iterator[None]:
    """Tell of a connection that was terminated between two messages of a call.

    asyncpg has no word for that. It is what becomes of a call whose process stood still for longer
    than its bound: the reply is there, and the watchdog comes first.
    """
    try:
        yield
    except AttributeError as error:
        if not connection.is_closed():
            raise
        raise asyncpg.InterfaceError("it was cut while it was in use") from error


@contextmanager
def _cut_unless_done(opened: Connection) -> Iterator[None]:
    try:
        yield
    except BaseException:
        opened.terminate()
        raise


async def set_locally(connection: "asyncpg.Connection[Record]", values: Mapping[str, str]) -> None:
    """Give a transaction that has just begun the settings that a session of our own has."""
    local = {
        # The default is for transactions to come: this one has begun.
        "transaction_read_only" if name == READ_ONLY else name: value
        for name, value in values.items()
        # Those of TCP are between the pooler and the server: theirs.
        if name not in FOLLOWING_SETTINGS and not name.startswith("tcp_")
    }
    await connection.fetch(sql("sessions.set_locally"), list(local), list(local.values()))


def _redacted(args: Sequence[object]) -> Sequence[object]:
    """Parameters whose texts, and the texts in whose lists, are redacted; bytes are left alone."""
    if not redaction.knows_any():
        return args
    return [
        redaction.redact_each(each) if isinstance(each, list | tuple) else each
        for each in redaction.redact_each(args)
    ]
