"""A token of one tenant neither reads, changes nor finds out anything of another one.

Each route of the API has a row. The tenant acme asks; the records of bolt are what it must not get.
"""

import http.client
import json
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

import attrs
import pytest

from cortex.domain.budget import Budget
from cortex.domain.effect import Resolution
from cortex.domain.errors import ConflictError, ForbiddenError, NotFoundError
from cortex.domain.people import Identity
from cortex.domain.token import Role, digest_of_token
from cortex.http.framework.cursor import cursor_of
from cortex.http.framework.route import Route
from cortex.http.framework.tenancy import PARAMS, Tenancy
from cortex.http.routes import ALL
from cortex.postgres.database import Profile
from cortex.postgres.session import Session
from cortex.store import approvals, breakers, budgets, effects, people, tokens
from tests.support.records.approvals import Askers, a_request
from tests.support.records.dead_letters import fail
from tests.support.records.effects import Doers
from tests.support.records.rows import new_id
from tests.support.servers.http_server import Answered, HttpServer
from tests.support.servers.kept_sessions import kept_session
from tests.support.servers.postgres import sql

WHY: Final = {"reason": "because"}
CAPPED: Final = """
    INSERT INTO cortex.tenant_cap VALUES ($1, 1000, NULL, 'ana', now(), 'capped ' || $1)
"""
SCHEDULED: Final = """
    INSERT INTO cortex.schedule (name, cron, zone, type, origin, changed_by, tenant)
    VALUES ('nightly-' || $1, '0 3 * * *', 'UTC', 'work', 'file', 'ana', $1)
"""
PAUSED: Final = """
    INSERT INTO cortex_worker.pause (kind, name, paused_by, reason)
    VALUES ('tenant', $1, 'ana', 'capped ' || $1)
"""
BUDGETED: Final = """
    INSERT INTO cortex.budget (scope, subject, unit, period, limit_amount, changed_by, reason)
    VALUES ('tenant', $1, 'usd', 'day', 5, 'ana', 'test')
"""


@attrs.frozen
class Records:
    """One record of each kind, of one tenant."""

    job: str
    approval: str
    digest: str
    effect: str
    worker: str
    """The job of the effect."""
    letter: str
    message: str
    schedule: str
    budget: str
    fact: str
    cap: str

    def of(self, tenancy: Tenancy) -> str:
        """The record that a path of this tenancy names."""
        return str(getattr(self, tenancy.value))

    @property
    def names(self) -> tuple[str, ...]:
        """All of them."""
        return attrs.astuple(attrs.evolve(self, digest=self.job))


def of_two_tenants(dsn: str) -> tuple[Records, Records]:
    """Make the records of acme and of bolt, and let messages of both be kept."""
    subscribe = (
        "INSERT INTO cortex.subscription (name, topic, channel, changed_by) "
        "VALUES ('all', 'app.*', 'log', 'test')"
    )
    sql(dsn, subscribe)
    with kept_session(Profile(dsn=dsn, hot_path=True)) as call:
        return made(call, dsn, "acme"), made(call, dsn, "bolt")


def made(call: Session, dsn: str, tenant: str) -> Records:
    """Make one record of each kind."""
    request = a_request()
    job = Askers(call, dsn).ask(request, tenant=tenant, tags=(f"mark-{tenant}",))
    doers = Doers(call, dsn)
    claim = doers.claimed(tenant=tenant)
    effect = doers.begin(claim).id
    (letter,) = fail(dsn, steps=1, submitted={"tenant": tenant})
    publish = "SELECT cortex.publish('app.made', '{}', tenant => $1) AS id"
    (message,) = sql(dsn, publish, tenant)
    for query in (SCHEDULED, BUDGETED, CAPPED, PAUSED):
        sql(dsn, query, tenant)
    sql(
        dsn,
        "INSERT INTO cortex.log_line (job_id, attempt, number, at, level, message) "
        "VALUES ($1, 1, 1, now(), 30, 'a line')",
        job,
    )
    sql(
        dsn,
        "INSERT INTO cortex.job_file (job_id, sha256, media_type, size, content) "
        "VALUES ($1, sha256('a file'), 'image/png', 6, 'a file')",
        job,
    )
    sql(dsn, "SELECT cortex.send_signal('paid', job => $1)", job)
    sql(dsn, "INSERT INTO cortex.job_published (job_id, attempt, number) VALUES ($1, 1, 1)", job)
    sql(
        dsn,
        "INSERT INTO cortex.fact (type, subtype, source, tenant, job_id, data) "
        "VALUES ('lifecycle', 'made', 'made:' || $1, $1, $2, '{}'), "
        "('cost', 'model_call', 'made:' || $1, $1, $2, '{\"outcome\": \"kept\"}')",
        tenant,
        job,
    )
    return Records(
        job=str(job),
        approval=str(request.id),
        digest=request.digest.hex(),
        effect=str(effect),
        worker=str(claim.lease.job_id),
        letter=str(letter),
        message=str(message["id"]),
        schedule=f"nightly-{tenant}",
        budget=f"tenant:{tenant}:usd:day",
        fact=f"made:{tenant}",
        cap=f"capped {tenant}",
    )


@attrs.frozen
class World:
    """A server, two tenants, and a token of one of them with every role."""

    server: HttpServer
    own: Records
    foreign: Records
    token: str
    token_of_all: str
    cookie: str

    def ask(self, method: str, path: str, **options: Any) -> Answered:
        """Ask as acme."""
        return self.server.ask(method, path, token=self.token, **options)


@pytest.fixture(scope="module")
def world(server: HttpServer) -> World:
    own, foreign = of_two_tenants(server.dsn)
    token = server.token("admin", name="ana", tenant="acme")
    return World(
        server=server,
        own=own,
        foreign=foreign,
        token=token,
        token_of_all=server.token("admin", name="op"),
        cookie=signed_in(server, token),
    )


def signed_in(server: HttpServer, token: str) -> str:
    """Sign in on the page; return the cookie."""
    answered = server.post(
        "/sign-in",
        body=f"token={token}".encode(),
        headers={"Sec-Fetch-Site": "same-origin"},
    )
    assert answered.status == 303, answered
    return answered.headers["set-cookie"].partition(";")[0]


# --- every route has a row

BODIES: Final[dict[str, Callable[[Records], Any]]] = {
    "POST /v1/approvals/{approval_id}/approve": lambda r: {"digest": r.digest},
    "POST /v1/approvals/{approval_id}/deny": lambda r: {"digest": r.digest, **WHY},
    "POST /v1/approvals/{approval_id}/link": lambda _: None,
    "POST /v1/jobs/{job_id}/resume": lambda _: WHY,
    "POST /v1/jobs/{job_id}/cancel": lambda _: WHY,
    "POST /v1/jobs/{job_id}/priority": lambda _: {"priority": 1, **WHY},
    "POST /v1/jobs/{job_id}/retry": lambda _: WHY,
    "POST /v1/jobs/{job_id}/signals": lambda _: {"name": "x"},
    "POST /v1/dead-letters/{job_id}/retry": lambda _: WHY,
    "POST /v1/dead-letters/{job_id}/discard": lambda _: WHY,
    "POST /v1/effects/{effect_id}/resolve": lambda _: {"resolution": "applied", **WHY},
    "POST /v1/schedules/{schedule}/pause": lambda _: WHY,
    "POST /v1/schedules/{schedule}/resume": lambda _: WHY,
    "POST /v1/schedules/{schedule}/trigger": lambda _: WHY,
    "POST /v1/outbox/{message_id}/retry": lambda _: WHY,
    "POST /v1/outbox/{message_id}/discard": lambda _: WHY,
}
"""Bodies of routes whose path names a record."""
LISTS: Final = {
    "GET /v1/approvals": ("", "?status=PENDING", "?status=PENDING&status=APPROVED"),
    "GET /v1/jobs": ("", "?filter=type:work", "?filter=status:appr", "?filter=tenant:*",
                     "?filter=tenant:bolt", "?filter=tag:mark-*", "?filter=id:{foreign.job}"),
    "GET /v1/logs": ("", "?level=warning"),
    "GET /v1/dead-letters": ("", "?tenant=bolt", "?filter=tenant:*", "?state=OPEN&state=RETRIED"),
    "GET /v1/dead-letters/errors": ("", "?tenant=bolt"),
    "GET /v1/effects": ("", "?tool=pay", "?job_id={foreign.worker}"),
    "GET /v1/facts": ("", "?job_id={foreign.job}", "?type=lifecycle", "?source=made:bolt"),
    "GET /v1/costs": ("?by=job", "?by=job&since=1h"),
    "GET /v1/budgets": ("",),
    "GET /v1/caps": ("",),
    "GET /v1/schedules": ("",),
    "GET /v1/pauses": ("",),
    "GET /v1/outbox": ("", "?subscription=all", "?topic=app.*"),
}  # fmt: skip
"""Lists, and ways to ask them for what is bolt's."""
INBOX: Final = "GET /approvals"
AGENTS: Final = "GET /v1/agents"
"""Shared by all tenants, but for the figures of their calls: see tests/store/test_facts.py."""
OF_BODY: Final[dict[str, Callable[[Records], Any]]] = {
    "POST /v1/jobs": lambda _: {"type": "work", "tenant": "bolt"},
    "POST /v1/signals": lambda _: {"name": "x", "key": "k", "tenant": "bolt"},
    "POST /v1/approvals/batch": lambda r: {
        "decision": "approve", "approvals": [{"id": r.approval, "digest": r.digest}]
    },
    "POST /v1/dead-letters/retry": lambda r: {"job_ids": [r.letter], **WHY},
    "POST /v1/dead-letters/discard": lambda r: {"job_ids": [r.letter], **WHY},
    "POST /v1/outbox/retry": lambda _: {"topic": "app.*", "status": "PENDING", **WHY},
    "POST /v1/outbox/discard": lambda _: {"topic": "app.*", **WHY},
    "POST /v1/pauses": lambda r: {"target": f"job:{r.job}", **WHY},
    "POST /v1/pauses/resume": lambda _: {"target": "tenant:bolt", **WHY},
}  # fmt: skip
"""Routes whose body names or selects records: what asks for those of bolt."""
PAGES: Final = ("GET /approvals/{approval_id}", "POST /approvals/{approval_id}")

NAMED: Final = [
    route
    for route in ALL
    if route.tenancy in PARAMS and f"{route.method} {route.path}" not in PAGES
]
REFUSED: Final = [route for route in ALL if route.tenancy is Tenancy.INSTALLATION]
FILTERED: Final = {
    f"{route.method} {route.path}" for route in ALL if route.tenancy is Tenancy.FILTERED
}
SHARED: Final = {
    "GET /healthz", "GET /readyz", "GET /v1/flows", "GET /v1/types",
    "GET /sign-in", "POST /sign-in", "POST /sign-out", "GET /static/{name}", "GET /v1/openapi.json",
    "POST /callbacks/{callback_id}",
}  # fmt: skip
"""Reviewed: nothing of a tenant is in them."""


def named(route: Route) -> str:
    return f"{route.method} {route.path}"


def test_every_route_has_a_row() -> None:
    with_rows = {
        *map(named, NAMED),
        *map(named, REFUSED),
        *SHARED,
        *LISTS,
        *OF_BODY,
        *PAGES,
        INBOX,
        AGENTS,
    }
    assert {named(route) for route in ALL} == with_rows
    assert {*LISTS, *OF_BODY, INBOX, AGENTS} == FILTERED
    assert {route.path for route in ALL if route.tenancy is Tenancy.SHARED} == {
        each.partition(" ")[2] for each in SHARED
    }


# --- named in the path

MISSING: Final = {Tenancy.SCHEDULE: "nightly-none"}


@pytest.mark.parametrize("route", NAMED, ids=named)
def test_a_foreign_record_is_as_missing_as_one_that_does_not_exist(
    world: World, route: Route
) -> None:
    parameter, _ = PARAMS[route.tenancy]
    make = BODIES.get(named(route))
    body: Any = None if make is None else make(world.foreign)
    foreign = world.foreign.of(route.tenancy)
    missing = MISSING.get(route.tenancy, str(new_id()))
    answers = []
    for name in (foreign, missing):
        path = route.path.replace(f"{{{parameter}}}", name)
        answered = world.ask(route.method.value, path, json_body=body)
        document = json.loads(answered.body.decode().replace(name, "NAME"))
        for of_request in ("request_id", "instance", "id"):
            document.pop(of_request, None)
        answers.append((answered.status, document))
    assert answers[0] == answers[1]
    assert answers[0][0] == 404


@pytest.mark.parametrize(
    "route", [r for r in NAMED if r.method == "GET" and not r.path.endswith("/events")], ids=named
)
def test_an_own_record_is_found(world: World, route: Route) -> None:
    own = world.own.letter if "dead-letters" in route.path else world.own.of(route.tenancy)
    path = route.path.replace(f"{{{PARAMS[route.tenancy][0]}}}", own)
    query = "?wait_ms=0" if path.endswith("/result") else ""
    assert world.ask("GET", path + query).status in {200, 202}, path


# --- of all tenants


@pytest.mark.parametrize("route", REFUSED, ids=named)
def test_routes_about_all_tenants_are_refused(world: World, route: Route) -> None:
    body: Any = None if route.method == "GET" else {}
    assert world.ask(route.method.value, route.path, json_body=body).status == 403


# --- pauses


@pytest.mark.parametrize(
    "target, status",
    [("all", 403), ("type:work", 403), ("queue:mail", 403), ("tenant:bolt", 403), ("job:{}", 404)],
)
@pytest.mark.parametrize("path", ["/v1/pauses", "/v1/pauses/resume"])
def test_a_tenant_pauses_nothing_but_its_own(
    world: World, path: str, target: str, status: int
) -> None:
    body = {"target": target.format(world.foreign.job), **WHY}
    assert world.ask("POST", path, json_body=body).status == status
    mine = {"target": f"job:{world.own.job}", **WHY}
    assert world.ask("POST", path, json_body=mine).status == 200


# --- lists


@pytest.mark.parametrize(
    "path, query", [(each[4:], query) for each, queries in LISTS.items() for query in queries]
)
def test_a_list_holds_only_what_is_own(world: World, path: str, query: str) -> None:
    query = query.format(foreign=world.foreign)
    for token, has_foreign in ((world.token, False), (world.token_of_all, True)):
        answered = world.server.get(path + query, token=token)
        assert answered.status == 200, answered
        text = answered.body.decode()
        found = [each for each in world.foreign.names if each in text]
        if not has_foreign:
            assert not found
            is_theirs = any(each in query for each in ("bolt", *world.foreign.names))
            assert is_theirs or any(each in text for each in world.own.names) or "errors" in path
        elif path != "/v1/dead-letters/errors":
            assert found, "the row asks for nothing of bolt"


CURSORS: Final = {
    "/v1/approvals?cursor={approval}": 404,
    "/v1/approvals?status=PENDING&status=APPROVED&cursor={approval}": 404,
    "/v1/effects?cursor={effect}": 404,
    "/v1/dead-letters?cursor={letter}": 404,
    "/v1/jobs?cursor={job}": 404,
}


@pytest.mark.parametrize("path", CURSORS)
def test_a_cursor_of_another_tenant_is_missing(world: World, path: str) -> None:
    def filled(records: Records) -> str:
        ids = attrs.asdict(records)
        if not path.startswith("/v1/approvals"):
            ids |= {name: cursor_of(UUID(ids[name])) for name in ("effect", "letter", "job")}
        return path.format(**ids)

    assert world.ask("GET", filled(world.own)).status == 200
    assert world.ask("GET", filled(world.foreign)).status == CURSORS[path]


def test_a_fact_of_another_tenant_is_no_place_in_a_list(world: World) -> None:
    query = "SELECT id FROM cortex.fact WHERE source = $1 AND type = 'lifecycle'"
    (row,) = sql(world.server.dsn, query, world.foreign.fact)
    for before in (row["id"], 2**40):
        assert world.ask("GET", f"/v1/facts?before={before}").json["facts"] == []


# --- named or selected in the body


def test_no_job_is_submitted_for_another_tenant(world: World) -> None:
    refused = world.ask("POST", "/v1/jobs", json_body=OF_BODY["POST /v1/jobs"](world.foreign))
    assert refused.status == 403
    taken = world.ask("POST", "/v1/jobs", json_body={"type": "work"})
    query = "SELECT tenant FROM cortex.job WHERE id = $1"
    assert sql(world.server.dsn, query, UUID(taken.json["id"]))[0]["tenant"] == "acme"


@pytest.mark.parametrize("job_type", ["execute_tool", "approval_notify", "sweep_zombies"])
def test_no_job_is_submitted_that_acts_on_all_tenants(world: World, job_type: str) -> None:
    body = {"type": job_type, "payload": {"tool": "pay", "approval": world.foreign.approval}}
    assert world.ask("POST", "/v1/jobs", json_body=body).status == 403


@pytest.mark.parametrize("route", [each for each in OF_BODY if "/batch" in each or "dead" in each])
def test_a_body_that_names_a_foreign_record_does_nothing(world: World, route: str) -> None:
    method, _, path = route.partition(" ")
    body = OF_BODY[route](world.foreign)
    assert world.ask(method, path, json_body=body).status == 404
    query = "SELECT state FROM cortex.dead_letter WHERE job_id = $1"
    assert sql(world.server.dsn, query, UUID(world.foreign.letter))[0]["state"] == "OPEN"


@pytest.mark.parametrize("verb", ["retry", "discard"])
def test_a_bulk_change_selects_only_what_is_own(world: World, verb: str) -> None:
    for which in ({"type": "work"}, {"tenant": "bolt"}, {"filter": "tenant:*"}):
        body = {"which": which, "dry_run": True, **WHY}
        answered = world.ask("POST", f"/v1/dead-letters/{verb}", json_body=body)
        assert answered.status == 200, answered
        assert world.foreign.letter not in answered.body.decode()
    begun = world.ask(
        "POST", f"/v1/dead-letters/{verb}", json_body={"which": {"type": "work"}, **WHY}
    )
    query = "SELECT tenant, payload->'request'->>'tenant' AS of FROM cortex.job WHERE id = $1"
    (row,) = sql(world.server.dsn, query, UUID(begun.json["id"]))
    assert tuple(row) == ("acme", "acme")


def test_messages_of_another_tenant_are_not_changed(world: World) -> None:
    for route in ("POST /v1/outbox/retry", "POST /v1/outbox/discard"):
        body = OF_BODY[route](world.foreign)
        assert world.ask("POST", route[5:], json_body=body).json["count"] <= 1
    query = "SELECT status, attempts FROM cortex.outbox WHERE id = $1"
    assert [tuple(row) for row in sql(world.server.dsn, query, UUID(world.foreign.message))] == [
        ("PENDING", 0)
    ]


# --- keys


@pytest.mark.parametrize("tenant, key", [("acme", "1:bolt:k"), ("1:bolt", "k"), ("default", "k")])
def test_a_job_key_of_one_tenant_replaces_no_job_of_another(
    shared_database: str, tenant: str, key: str
) -> None:
    submit = "SELECT cortex.submit_job('work', tenant => $1, job_key => $2) AS id"
    kept = sql(shared_database, submit, "bolt", "k")[0]["id"]
    sql(shared_database, submit, tenant, key)
    query = "SELECT status FROM cortex.job WHERE id = $1"
    assert sql(shared_database, query, kept)[0]["status"] == "PENDING"
    sql(shared_database, submit, "bolt", "k")
    assert sql(shared_database, query, kept)[0]["status"] == "CANCELLED"


def test_an_idempotency_key_of_one_tenant_answers_no_other(world: World) -> None:
    bolt = world.server.token("admin", name="ana", tenant="bolt")
    ids = []
    for token in (world.token, bolt, world.token_of_all, world.token):
        headers = {"Idempotency-Key": "import-1"}
        body = {"type": "work"}
        submitted = world.server.post("/v1/jobs", token=token, json_body=body, headers=headers)
        assert submitted.status == 201, submitted
        ids.append(submitted.json["id"])
    assert len(set(ids[:3])) == 3
    assert ids[3] == ids[0]


def test_an_idempotency_key_of_a_login_is_of_a_tenant(shared_database: str) -> None:
    submit = "SELECT cortex.submit_job('work', tenant => $1, idempotency_key => 'a') AS id"
    first, other, again = (
        sql(shared_database, submit, tenant)[0]["id"] for tenant in ("acme", "bolt", "acme")
    )
    assert first == again != other


# --- commands with a token of one tenant


@pytest.fixture
def admin_of_acme(world: World) -> Identity:
    """What a command shows to whom CORTEX_TOKEN is a token of acme."""
    query = "SELECT id FROM cortex.api_token WHERE digest = $1"
    digest = digest_of_token(world.token)
    assert digest is not None
    token_id = sql(world.server.dsn, query, digest)[0]["id"]
    return Identity.signed_in("ana", token_id=token_id, digest=digest)


OF_ALL: Final[dict[str, Callable[[Session, Identity], object]]] = {
    "map a login": lambda call, by: call(
        people.add, "ana", credentials=["db:eve"], by=by, reason=""
    ),
    "disable a person": lambda call, by: call(
        people.switch, "op", is_enabled=False, by=by, reason=""
    ),
    "lift the freeze": lambda call, by: call(breakers.unfreeze, by=by, reason=""),
    "raise a budget": lambda call, by: call(
        budgets.raise_limit, "tenant:bolt:usd:day", to=Decimal(9), by=by, reason=""
    ),
    "set a budget": lambda call, by: call(
        budgets.put, Budget.parse("tenant:acme:usd:day"), limit=Decimal(9), by=by, reason=""
    ),
    "remove a budget": lambda call, by: call(
        budgets.remove, "tenant:acme:usd:day", by=by, reason=""
    ),
    "make a token of all": lambda call, by: call(
        tokens.create, token_id=new_id(), name="eve", digest=bytes(32), roles=[Role.ADMIN],
        expires_s=None, by=by,
    ),
}  # fmt: skip


@pytest.mark.parametrize("act", OF_ALL)
def test_a_command_with_a_token_of_one_tenant_changes_nothing_of_all(
    store: Session, admin_of_acme: Identity, act: str
) -> None:
    with pytest.raises(ForbiddenError, match=r"(of|for) tenant acme"):
        OF_ALL[act](store, admin_of_acme)


def test_a_command_with_a_token_of_one_tenant_finds_nothing_foreign(
    world: World, store: Session, admin_of_acme: Identity
) -> None:
    by, foreign = admin_of_acme, world.foreign
    with pytest.raises(ConflictError):
        store(approvals.link, UUID(foreign.approval), by=by)
    said = Resolution.APPLIED
    with pytest.raises(NotFoundError):
        store(effects.resolve, UUID(foreign.effect), said, by=by, reason="x")
    digest = digest_of_token(world.token_of_all)
    query = "SELECT id FROM cortex.api_token WHERE digest = $1"
    (row,) = sql(world.server.dsn, query, digest)
    with pytest.raises(NotFoundError):
        store(tokens.revoke, row["id"], by=by, reason="x")
    assert world.server.get("/v1/jobs", token=world.token_of_all).status == 200


# --- the pages


def page(world: World, path: str, **headers: str) -> Answered:
    return world.server.get(path, headers={"Cookie": world.cookie, **headers})


def test_the_pages_show_no_request_of_another_tenant(world: World) -> None:
    inbox = page(world, "/approvals").body.decode()
    assert world.own.approval in inbox
    assert world.foreign.approval not in inbox
    assert page(world, f"/approvals?cursor={world.own.approval}").status == 200
    assert page(world, f"/approvals?cursor={world.foreign.approval}").status == 404
    assert page(world, f"/approvals/{world.own.approval}").status == 200
    answers = []
    for name in (world.foreign.approval, str(new_id())):
        answered = page(world, f"/approvals/{name}")
        answers.append((answered.status, answered.body.decode().replace(name, "NAME")))
        posted = world.server.post(
            f"/approvals/{name}",
            body=b"act=approve",
            headers={"Cookie": world.cookie, "Sec-Fetch-Site": "same-origin"},
        )
        assert posted.status == 404
    assert answers[0] == answers[1]
    assert answers[0][0] == 404


def test_a_link_opens_its_request_to_people_of_any_tenant(world: World) -> None:
    path = f"/v1/approvals/{world.foreign.approval}/link"
    link = world.server.post(path, token=world.token_of_all).json["path"]
    entered = page(world, link)
    assert entered.status == 303
    kept = entered.headers["set-cookie"].partition(";")[0]
    shown = page(world, link.partition("?")[0], Cookie=f"{world.cookie}; {kept}")
    assert shown.status == 200
    assert b"may view" not in shown.body


# --- streams


def test_no_stream_of_another_tenant_begins(world: World) -> None:
    connection = http.client.HTTPConnection(world.server.host, world.server.port, timeout=10)
    try:
        headers = {"Authorization": f"Bearer {world.token}"}
        connection.request("GET", f"/v1/jobs/{world.foreign.job}/events", headers=headers)
        assert connection.getresponse().status == 404
    finally:
        connection.close()
