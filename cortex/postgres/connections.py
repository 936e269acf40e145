"""One connection: straight to Postgres, or through a pooler that lends out its sessions.

A pooler (PgBouncer in transaction mode) gives each transaction any free session. So nothing lasts
in a session: no setting, no lock, no subscription, no prepared statement; and what is left in one
affects other clients. Connecting detects a pooler reliably: settings sent at startup reach a
session that was started for this client, and no other. PgBouncer refuses them, or drops them if
configured so (`ignore_startup_parameters`).

Behind a pooler the settings come with each transaction, and statements are prepared for one use.
"""

import asyncio
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final, Literal, NamedTuple

import asyncpg
import attrs
from asyncpg.connect_utils import SessionAttribute

from cortex.domain import redaction
from cortex.domain.errors import UnavailableError
from cortex.postgres.dsn import hosts, names_server, redact, required_tls
from cortex.postgres.queries import sql

# --- What the driver need not query: array types that are the same in every Postgres.


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
"""By the array's oid: name and oid of its element type. Oids below 10,000 never change."""


class NoStatement(NamedTuple):
    """Replaces the introspection statement; has a name, since it has displaced no unnamed one."""

    name: str = "none"


def split(oids: Iterable[int]) -> tuple[list[dict[str, Any]], list[int]]:
    """Return the driver's rows for the known types, and the oids that have to be queried."""
    requested = list(oids)
    return [_type_row(oid) for oid in requested if oid in ARRAYS], [
        oid for oid in requested if oid not in ARRAYS
    ]


def _type_row(oid: int) -> dict[str, Any]:
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
"""Sent to the server only to see whether it arrives."""
FOLLOWING_SETTINGS: Final = frozenset({"application_name", "timezone"})
"""Settings that every pooler applies to each session that it lends out."""

NEWER_SETTINGS: Final = frozenset({"transaction_timeout"})
"""Settings that only newer servers know (17 does): older ones refuse a startup with them."""
READ_ONLY: Final = "default_transaction_read_only"
"""Sent at startup, it would make a primary look like a standby to the driver."""
LATER_SETTINGS: Final = NEWER_SETTINGS | {READ_ONLY}

ELSEWHERE: Final = (
    OSError,
    TimeoutError,
    asyncpg.CannotConnectNowError,
    asyncpg.TooManyConnectionsError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
)
"""Errors of one of several hosts after which another one may succeed."""


numbers: Final = itertools.count()


class Connection(asyncpg.Connection):
    """A connection that sends no secret known to this process, in any parameter.

    It has only these methods: the store's tests ensure that the store uses no others.
    """

    is_pooled = False
    """Each transaction may have another session, which belonged to another client a moment ago."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.number = next(numbers)
        """In the order in which this process opened its connections."""

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
        """Query only unknown types; the driver calls this method by its name."""
        builtin, unknown = split(typeoids)
        if not unknown:
            return builtin, NoStatement()
        rows, statement = await super()._introspect_types(  # type: ignore[misc]
            unknown, timeout
        )
        return [*builtin, *rows], statement


class PooledConnection(Connection):
    """A connection to a pooler; `set_locally` starts each transaction."""

    is_pooled = True
    _server_caps: Any

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        # asyncpg turns JIT off for its session while it reads types, but the session is not ours.
        self._server_caps = self._server_caps._replace(jit=False)


@attrs.frozen(kw_only=True)
class Target:
    """Where to connect and with which settings; one host."""

    dsn: str = attrs.field(repr=redact)
    settings: Mapping[str, str]
    place: Mapping[str, Any] = attrs.field(factory=dict)
    """One of several hosts."""
    server: SessionAttribute | None = None
    """The server's required role; None: as in the address."""
    tls: Literal["require"] | None = None
    """The `sslmode`; None: as in the address."""

    async def open(
        self, kind: type[Connection], settings: Mapping[str, str], *, statements_max: int
    ) -> Connection:
        """Connect; raises what the driver raises."""
        opened: Connection = await asyncpg.connect(
            self.dsn,
            **self.place,
            server_settings=dict(settings),
            statement_cache_size=statements_max,
            # Unlimited: preparing again costs a second round trip, which a slow network cannot
            # afford.
            max_cached_statement_lifetime=0,
            connection_class=kind,
            target_session_attrs=self.server,
            ssl=self.tls,
        )
        return opened


async def connect(
    dsn: str, *, settings: Mapping[str, str], is_pooled: bool | None, bound_s: float
) -> Connection:
    """Open a connection within the bound; raises what the driver raises.

    A server on another machine is reached with TLS unless the address or PGSSLMODE says otherwise.
    Of several hosts, each is tried in order with its share of the time; the first that accepts
    writes is used, unless the address asks for another. `is_pooled`: None to find out, which makes
    a connection without prepared statements. If it is False and there is a pooler now, raises
    `UnavailableError`.
    """
    several: list[dict[str, Any]] = [{"host": host, "port": port} for host, port in hosts(dsn)]
    server = SessionAttribute.read_write if several and not names_server(dsn) else None
    *others, last = [
        Target(
            dsn=dsn,
            settings=settings,
            place=place,
            server=server,
            tls=required_tls(dsn, host=place.get("host")),
        )
        for place in several or [{}]
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
    """Connect with all settings; None if they do not reach the session."""
    later = {name: target.settings[name] for name in LATER_SETTINGS & target.settings.keys()}
    settings = {name: value for name, value in target.settings.items() if name not in later}
    try:
        opened = await target.open(
            Connection, {**settings, **OWN_SESSION}, statements_max=statements_max
        )
    except asyncpg.ProtocolViolationError as error:
        if "startup parameter" in str(error):
            return None
        raise
    with _cut_unless_done(opened):
        # Its tag has the number of rows, without a prepared statement, which a pooler may not
        # support.
        tag = await opened.execute(sql("sessions.is_own"))
        if tag.endswith(" 1"):
            await opened.fetch(sql("sessions.set"), list(later), list(later.values()))
            return opened
    opened.terminate()
    return None


@contextmanager
def _cut_while_in_use(connection: Connection) -> Iterator[None]:
    """Raise an error for a connection that was terminated between two messages of a call.

    asyncpg has no error for that. It happens when the process stood still for longer than the
    bound: the reply has arrived, but the watchdog runs first.
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
    """Give a transaction that has just started the settings that our own sessions have."""
    local = {
        # The default applies to later transactions: this one has already started.
        "transaction_read_only" if name == READ_ONLY else name: value
        for name, value in values.items()
        # TCP settings are between the pooler and the server.
        if name not in FOLLOWING_SETTINGS and not name.startswith("tcp_")
    }
    await connection.fetch(sql("sessions.set_locally"), list(local), list(local.values()))


def _redacted(args: Sequence[object]) -> Sequence[object]:
    """Redact texts and texts in lists of the parameters; bytes stay unchanged."""
    if not redaction.knows_any():
        return args
    return [
        redaction.redact_each(each) if isinstance(each, list | tuple) else each
        for each in redaction.redact_each(args)
    ]
