"""A session, a client or a login that keeps to one tenant lists, finds and changes no other one.

`--tenant`, the setting `tenant` and the argument of a client open such sessions. They keep people
from mistakes; only for a login that may submit and nothing else it is a border.
"""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any, Final

import asyncpg
import pytest

from cortex import CapReachedError, SyncClient
from cortex.domain.errors import ForbiddenError, NotFoundError
from cortex.domain.job_filter import DEAD, parse_filter
from cortex.postgres.database import SUBMITTER_ROLE, Profile
from cortex.postgres.session import Session
from cortex.store import (
    approvals,
    budgets,
    dead_letters,
    effects,
    facts,
    job_pages,
    jobs,
    logs,
    quotas,
)
from cortex.store.background import outbox, schedules
from tests.hostile.test_tenants import Records, of_two_tenants
from tests.support.logins import login_with, name_of
from tests.support.records.factories import a_submission
from tests.support.records.rows import new_id
from tests.support.servers.kept_sessions import kept_session
from tests.support.servers.postgres import sql

LISTS: Final[dict[str, Callable[[Session], Any]]] = {
    "jobs": lambda call: call(job_pages.page),
    "jobs upwards": lambda call: call(job_pages.page_up),
    "jobs of a filter": lambda call: call(job_pages.page, parse_filter("tenant:*")),
    "waiting requests": lambda call: call(approvals.pending),
    "requests": lambda call: call(approvals.page),
    "changes of requests": lambda call: call(
        approvals.changes, since=datetime(2020, 1, 1, tzinfo=UTC)
    ),
    "effects": lambda call: call(effects.page),
    "effects of a tool": lambda call: call(effects.page, tool="pay"),
    "facts": lambda call: call(facts.page, since_s=3600.0),
    "lines": lambda call: call(logs.page, since_s=3600.0),
    "dead letters": lambda call: call(dead_letters.page),
    "chosen dead letters": lambda call: call(dead_letters.choose, DEAD, limit=9),
    "messages": lambda call: call(outbox.page),
    "unsent messages": lambda call: call(outbox.unsent, limit=9),
    "schedules": lambda call: call(schedules.page),
    "budgets": lambda call: call(budgets.page),
    "caps": lambda call: call(quotas.caps),
}
FINDERS: Final[dict[str, Callable[[Session, Records], Any]]] = {
    "job": lambda call, r: call(jobs.find, r.job),
    "job by its end": lambda call, r: call(jobs.find, r.job[-12:]),
    "request": lambda call, r: call(approvals.find, r.approval),
    "request by its end": lambda call, r: call(approvals.find, r.approval[-12:]),
    "effect": lambda call, r: call(effects.find, r.effect),
    "schedule": lambda call, r: call(schedules.show, r.schedule),
    "paused schedule": lambda call, r: call(schedules.pause, r.schedule, by="ana", reason="x"),
    "resumed schedule": lambda call, r: call(schedules.resume, r.schedule, by="ana", reason="x"),
}


@pytest.fixture(scope="module")
def records(shared_database: str) -> tuple[Records, Records]:
    """Of acme and of bolt."""
    return of_two_tenants(shared_database)


@pytest.fixture(scope="module")
def call(shared_database: str) -> Iterator[Session]:
    """A session of acme, as `cortex --tenant acme` opens it."""
    with kept_session(Profile(dsn=shared_database, tenant="acme")) as session:
        yield session


@pytest.mark.parametrize("name", LISTS)
def test_a_list_of_a_session_holds_only_its_tenants(
    call: Session, records: tuple[Records, Records], name: str
) -> None:
    own, foreign = records
    text = repr(LISTS[name](call))
    assert not [each for each in foreign.names if each in text]
    assert [each for each in own.names if each in text]


@pytest.mark.parametrize("name", FINDERS)
def test_a_session_finds_only_what_is_its_tenants(
    call: Session, records: tuple[Records, Records], name: str
) -> None:
    own, foreign = records
    with pytest.raises(NotFoundError):
        FINDERS[name](call, foreign)
    FINDERS[name](call, own)


def test_a_session_submits_for_its_tenant_alone(call: Session, shared_database: str) -> None:
    job = a_submission()
    call(jobs.submit, [job])
    query = "SELECT tenant FROM cortex.job WHERE id = $1"
    assert sql(shared_database, query, job.id)[0]["tenant"] == "acme"
    with pytest.raises(ForbiddenError):
        call(jobs.submit, [a_submission(tenant="bolt")])


CLIENT_CALLS: Final[dict[str, Callable[[SyncClient, Records], Any]]] = {
    "result": lambda client, r: client.handle(r.job).result(timeout=1),
    "cancel": lambda client, r: client.handle(r.job).cancel(reason="x"),
    "approve": lambda client, r: client.approvals.approve(r.approval, by="ana"),
    "retry": lambda client, r: client.dead.retry(r.letter, by="ana", reason="x"),
}


@pytest.mark.parametrize("name", CLIENT_CALLS)
def test_a_client_reaches_only_its_tenant(
    shared_database: str, records: tuple[Records, Records], name: str
) -> None:
    with SyncClient(shared_database, tenant="acme") as client:
        with pytest.raises(NotFoundError):
            CLIENT_CALLS[name](client, records[1])


def test_a_client_raises_an_error_of_its_own_beyond_the_cap(shared_database: str) -> None:
    cap = "INSERT INTO cortex.tenant_cap VALUES ('small', 1, NULL, 'ana', now(), 'test')"
    sql(shared_database, cap)
    with SyncClient(shared_database, tenant="small") as client:
        client.submit("work")
        with pytest.raises(CapReachedError, match="has 1 of at most 1 jobs"):
            client.submit("work")


# --- logins


@pytest.fixture
def web(shared_database: str) -> Iterator[str]:
    """A login that may submit, of acme."""
    with login_with(shared_database, SUBMITTER_ROLE) as dsn:
        sql(shared_database, "INSERT INTO cortex.login_tenant VALUES ($1, 'acme')", name_of(dsn))
        yield dsn
        sql(shared_database, "DELETE FROM cortex.login_tenant WHERE login = $1", name_of(dsn))


SUBMIT: Final = "SELECT cortex.submit_job('work', tenant => $1, id => $2)"


@pytest.mark.parametrize("tenant", ["bolt", "default"])
def test_a_login_submits_for_its_tenant_alone(web: str, shared_database: str, tenant: str) -> None:
    job = new_id()
    with pytest.raises(asyncpg.InsufficientPrivilegeError, match="is of tenant"):
        sql(web, SUBMIT, tenant, job)
    sql(web, SUBMIT, None, job)
    query = "SELECT tenant FROM cortex.job WHERE id = $1"
    assert sql(shared_database, query, job)[0]["tenant"] == "acme"


def test_no_setting_changes_the_tenant_of_a_login(web: str) -> None:
    claim = "SELECT set_config('cortex.tenant', 'bolt', false), cortex.caller_tenant() AS tenant"
    assert sql(web, claim)[0]["tenant"] == "acme"
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        sql(web, "UPDATE cortex.login_tenant SET tenant = 'bolt'")


def test_a_login_sees_no_job_of_a_former_tenant(web: str, shared_database: str) -> None:
    job = new_id()
    sql(web, SUBMIT, None, job)
    read = "SELECT status FROM cortex.job_events(ARRAY[$1::uuid], '{0}', '{0}', '{0}', '{0}', 9)"
    assert sql(web, read, job)[0]["status"] == "PENDING"
    sql(shared_database, "UPDATE cortex.login_tenant SET tenant = 'bolt'")
    assert sql(web, read, job)[0]["status"] is None
