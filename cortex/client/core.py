"""An open client in its asyncio loop: a small pool, the waits, the followers.

Every call has a deadline: those of the pool by its watchdog, waits by their caller. A database that
restarts costs the calls that were under way; waits and followers go on by themselves.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeVar
from uuid import UUID

import attrs

from cortex.client.following import Followers
from cortex.client.signals import Signal
from cortex.client.submission import Options, SubmittableJob, submission, submissions
from cortex.client.waiting import Waits
from cortex.domain.argument_check import CodeArguments, check_payload
from cortex.domain.clock import Chance, system_chance
from cortex.domain.errors import (
    ForbiddenError,
    InvalidValueError,
    OutcomeUnknownError,
    SchemaError,
    UsageError,
)
from cortex.domain.job import Submission
from cortex.domain.policy import check_timeout, default_timeout_s
from cortex.domain.token import of_login
from cortex.durable.registry import JobType
from cortex.postgres import dsn as addresses
from cortex.postgres.database import (
    RUNTIME_ROLE,
    SUBMITTER_ROLE,
    Connection,
    Database,
    Profile,
    open_database,
)
from cortex.postgres.dedicated import Dedicated
from cortex.postgres.migrate import check_applied
from cortex.store import clients, codes, jobs, signals
from cortex.store.clients import Rights
from cortex.store.codes import ServedType
from cortex.store.lost_replies import repeat_if_lost

T = TypeVar("T")

SERVED_S: Final = 10.0
"""How long the arguments of a type are taken from memory, as long as they fit."""
TYPES_MAX: Final = 1_000
CONNECTIONS_MAX: Final = 100
MANY_MAX: Final = 20_000
"""Jobs in one transaction, whose connection is cut after ten seconds."""
SLICE: Final = 50
"""Jobs that are prepared at once while the event loop waits."""
WAIT_DEFAULT_S: Final = 3_600.0
WAIT_MAX_S: Final = 30 * 86_400.0
APPLICATION: Final = "cortex client"


@attrs.define(eq=False)
class Core:
    """The work of a client, in asyncio."""

    db: Database
    rights: Rights
    waits: Waits
    followers: Followers
    chance: Chance
    _served: dict[str, tuple[float, ServedType]] = attrs.field(factory=dict)

    @classmethod
    async def open(cls, dsn: str, *, connections: int, tenant: str | None = None) -> "Core":
        """Connect, and find out what the login may do.

        Raises `UsageError` for an address that is none, `UnavailableError` without an answer,
        `SchemaError` for a database without Cortex or of another version, `ForbiddenError` for a
        login that may not submit.
        """
        addresses.check(dsn, source="dsn")
        if not 1 <= connections <= CONNECTIONS_MAX:
            raise UsageError(
                f"connections {connections!r} is not a number from 1 to {CONNECTIONS_MAX}"
            )
        chance = system_chance()
        plain = Profile(dsn=dsn, role=None, connections_max=connections, application=APPLICATION)
        found, is_pooled = await _rights(plain)
        _check_rights(found)
        profile = attrs.evolve(plain, role=found.role, is_pooled=is_pooled, tenant=tenant)
        db = await open_database(profile, rng=chance.rng)
        try:
            check_applied(await db.fetch("migrations.applied"))
        except SchemaError as error:
            await db.close()  # noqa: ASYNC120 -- a cancellation wins
            raise SchemaError(
                f"database {found.database!r}: {error.message}", hint=error.hint
            ) from error
        except BaseException:
            await db.close()
            raise
        return cls(
            db=db,
            rights=found,
            waits=Waits(db.profile, rng=chance.rng, new_id=chance.new_id),
            followers=Followers(db),
            chance=chance,
        )

    async def close(self) -> None:
        await self.waits.close()
        await self.followers.close()
        await self.db.close()

    @property
    def credential(self) -> str:
        """Recorded with what the client does: the login, as the database has authenticated it."""
        return of_login(self.rights.login)

    def require_all(self, what: str) -> None:
        """Raise `ForbiddenError` for a login that may only submit, and read what it submitted."""
        if RUNTIME_ROLE not in (*self.rights.takes, *self.rights.has):
            login = self.rights.login
            raise ForbiddenError(
                f"login {login!r} may submit jobs and read its own, but not {what}",
                hint=f"an administrator runs: GRANT {RUNTIME_ROLE} TO {login}",
            )

    # --- Submit.

    async def submit(
        self, job: SubmittableJob[Any] | str, arguments: Mapping[str, Any], options: Options
    ) -> tuple[UUID, bool]:
        """Submit a job; return its id, and whether it is new."""
        one = submission(job, arguments, options, new_id=self.chance.new_id)
        await self._check(job, [one], options.given)
        if options.key is not None:
            once = partial(clients.submit_once, self.db, one, key=options.key, by=options.by)
            first = await self._surely(once, [one])
            return first, first == one.id
        done = await self._surely(partial(jobs.submit, self.db, [one], by=options.by), [one])
        return done.job_of(one.id), one.id not in done.existing

    async def submit_many(
        self,
        job: SubmittableJob[Any] | str,
        given: Sequence[Mapping[str, Any]],
        options: Options,
    ) -> list[tuple[UUID, bool]]:
        """Submit all or none; checks one batch while the database inserts the one before."""
        if options.key is not None:
            raise UsageError("key is for one job", hint="submit each job with a key of its own")
        if len(given) > MANY_MAX:
            raise UsageError(
                f"{len(given):,} jobs are more than {MANY_MAX:,} in one transaction",
                hint="submit them in several calls",
            )
        ids: list[UUID] = []  # a repeated transaction takes the same: it inserts nothing twice
        first = given[: jobs.SUBMIT_BATCH]
        many = submissions(job, first, options, new_id=self._ids_from(ids, 0))
        await self._check(job, many)  # most mistakes are in all of them: before any work
        if len(given) <= jobs.SUBMIT_BATCH:
            if not many:
                return []
            done = await self._surely(partial(jobs.submit, self.db, many, by=options.by), many)
            return [(done.job_of(each), each not in done.existing) for each in ids]
        insert = partial(
            self._insert_all, job=job, given=given, ids=ids, options=options, first=many
        )
        existing = await self._surely(partial(self.db.transact, insert), many)
        return [(existing.get(each, each), each not in existing) for each in ids]

    async def _insert_all(
        self,
        connection: Connection,
        *,
        job: SubmittableJob[Any] | str,
        given: Sequence[Mapping[str, Any]],
        ids: list[UUID],
        options: Options,
        first: list[Submission],
    ) -> dict[UUID, UUID]:
        inside = self.db.bound(connection)
        existing: dict[UUID, UUID] = {}
        batch, at = first, jobs.SUBMIT_BATCH
        while batch:
            inserting = asyncio.ensure_future(jobs.submit(inside, batch, by=options.by))
            try:
                until = at + jobs.SUBMIT_BATCH
                new_id = self._ids_from(ids, at)
                batch = await self._prepared(job, given[at:until], options, new_id=new_id)
                at = until
            finally:
                existing |= (await inserting).existing
        return existing

    async def _prepared(
        self,
        job: SubmittableJob[Any] | str,
        some: Sequence[Mapping[str, Any]],
        options: Options,
        *,
        new_id: Callable[[], UUID],
    ) -> list[Submission]:
        """Return checked submissions; lets the loop run in between."""
        ready: list[Submission] = []
        for at in range(0, len(some), SLICE):
            await asyncio.sleep(0)
            ready += submissions(job, some[at : at + SLICE], options, new_id=new_id)
            self._check_known(job, ready[at:])
        return ready

    def _ids_from(self, ids: list[UUID], at: int) -> Callable[[], UUID]:
        """Return a source of the ids from a place on; new ones are appended."""

        def new_id() -> UUID:
            nonlocal at
            if at == len(ids):
                ids.append(self.chance.new_id())
            at += 1
            return ids[at - 1]

        return new_id

    async def signal(self, wanted: Signal) -> UUID:
        """Send a signal and return its id: once, although a reply may be lost.

        Raises `NotFoundError`, `ConflictError` for a job that has ended, `KeyReusedError`.
        """
        call = partial(
            signals.send,
            self.db,
            wanted.name,
            wanted.payload,
            job=wanted.job,
            key=wanted.key,
            tenant=wanted.tenant,
            idempotency_key=wanted.idempotency_key or str(self.chance.new_id()),
        )
        sent, _ = await repeat_if_lost(call)
        return sent

    async def _surely(self, call: Callable[[], Awaitable[T]], some: Sequence[Submission]) -> T:
        """Make a submit that may be repeated; repeat it if its reply was lost."""
        try:
            result, _ = await repeat_if_lost(call)
        except OutcomeUnknownError as error:
            what = f"job {some[0].id}" if len(some) == 1 else "the jobs"
            raise OutcomeUnknownError(
                f"it is not known whether {what} was submitted: the connection broke",
                hint="submit with key=… to be able to repeat it safely",
            ) from error
        return result

    async def _check(
        self,
        job: SubmittableJob[Any] | str,
        many: Sequence[Submission],
        options: Collection[str] = (),
    ) -> None:
        """Raise `InvalidValueError` for arguments that neither the handler nor a pod takes."""
        if not many:
            return
        name, timeout_s = many[0].type, many[0].timeout_s
        if not isinstance(job, JobType) or timeout_s is not None:
            served = await self._served_type(name)
            if timeout_s is not None:
                own_s = job.policy.timeout_s if isinstance(job, JobType) else None
                default_s = own_s or default_timeout_s(name, served.timeout_s)
                check_timeout(name, timeout_s, default_s=default_s, name="timeout_s")
        try:
            self._check_known(job, many, options)
        except InvalidValueError:  # pods may have other code by now
            await self._served_type(name, is_exact=True)
            self._check_known(job, many, options)

    def _check_known(
        self,
        job: SubmittableJob[Any] | str,
        many: Sequence[Submission],
        options: Collection[str] = (),
    ) -> None:
        own = None if isinstance(job, str) else job
        live: tuple[CodeArguments, ...] = ()
        if many and (known := self._served.get(many[0].type)) is not None:
            live = known[1].codes
        for each in many:
            check_payload(each.type, each.payload, own=own, live=live, options=options)

    async def _served_type(self, name: str, *, is_exact: bool = False) -> ServedType:
        now = asyncio.get_running_loop().time()
        read_at, served = self._served.get(name, (float("-inf"), None))
        if served is None or is_exact or now - read_at > SERVED_S:
            served = await codes.served(self.db, name, is_exact=is_exact)
            while len(self._served) >= TYPES_MAX:
                self._served.pop(next(iter(self._served)))
            self._served[name] = (now, served)
        return served


async def _rights(profile: Profile) -> tuple[Rights, bool]:
    session = Dedicated(profile, on_lost=lambda: None)
    try:
        await session.open()
        found = await clients.rights(session)
        is_pooled = session.is_pooled
        await session.close()
        return found, is_pooled
    finally:
        session.cut()


def _check_rights(found: Rights) -> None:
    if not found.has_schema:
        raise SchemaError(
            f"database {found.database!r} has no cortex schema",
            hint="name the database of your pods, or create the schema: cortex migrate",
        )
    if not found.may_submit:
        raise ForbiddenError(
            f"login {found.login!r} may not submit jobs in database {found.database!r}",
            hint=f"an administrator runs: GRANT {SUBMITTER_ROLE} TO {found.login}",
        )


def checked_timeout(timeout: object) -> float:
    """Return the seconds of a wait. Raises `UsageError`; every wait has a deadline."""
    if isinstance(timeout, int | float) and 0 <= timeout <= WAIT_MAX_S:
        return float(timeout)
    raise UsageError(
        f"timeout {timeout!r:.80} is not 0 to {WAIT_MAX_S:,.0f} seconds",
        hint="a wait that ended may be begun again",
    )


def job_id_of(given: object) -> UUID:
    """Return the id of a job. Raises `UsageError` for text that is none."""
    if isinstance(given, UUID):
        return given
    try:
        return UUID(str(given))
    except ValueError:
        raise UsageError(
            f"{str(given)[:80]!r} is not the id of a job", hint="it looks like handle.id"
        ) from None
