"""Who decides is a person: not a pod, not a tool with its address, and nobody twice."""

import json
from collections.abc import Iterator
from typing import Any, Final
from uuid import UUID

import asyncpg
import pytest
from attrs import frozen

from cortex.domain.budget import Budget
from cortex.domain.errors import ConflictError, ForbiddenError, RejectedError, UsageError
from cortex.domain.names import check_name, skeleton
from cortex.domain.people import Identity
from cortex.domain.token import Role, TokenState
from cortex.postgres.database import Profile
from cortex.postgres.session import Session
from cortex.store import approvals, breakers, budgets, people, retries, tokens
from tests.support.logins import login_with, name_of
from tests.support.people import enrolled, uid_of, user
from tests.support.records.approvals import Askers, a_request, a_verdict
from tests.support.records.dead_letters import fail
from tests.support.records.rows import new_id
from tests.support.servers.http_server import HttpServer
from tests.support.servers.kept_sessions import kept_session
from tests.support.servers.postgres import sql

ID: Final = "'00000000-0000-0000-0000-000000000001'"
ME: Final = json.dumps({"uid": 0, "user": "root", "skeleton": "root"})
"""What a command passes along without a token: it proves nothing to a pod's login."""


GIVEN_UP: Final = """
    INSERT INTO cortex.effect (
        id, job_id, lineage_id, attempt, key, tool, tenant, arguments, digest, can_reconcile,
        status, calls_count, finished_at, resolution, resolved_by, resolved_at, resolved_reason)
    SELECT gen_random_uuid(), gen_random_uuid(), gen_random_uuid(), 1, 'pay', 'pay', 'default', '1',
           sha256('1'), false, 'ABANDONED', 2, now(), 'give-up', 'ana', now(), 'nobody knows'
"""
"""A call that was made twice, and of which a person has said what to do."""


@frozen
class Scene:
    """A database with a request that waits, effects that are frozen, and a budget."""

    owner: str
    pod: str
    """The same database by a login with the rights of pods, and no others."""
    askers: Askers
    request: UUID


@pytest.fixture(scope="module")
def scene(shared_database: str) -> Iterator[Scene]:
    with (
        login_with(shared_database, "cortex_runtime") as pod,
        kept_session(Profile(dsn=shared_database, hot_path=True)) as call,
    ):
        askers = Askers(call, shared_database)
        request = askers.asked(risk="HIGH")
        enrolled(shared_database, "ana", Role.ADMIN)
        call(breakers.freeze, by="ana", reason="an audit")
        budget = Budget.parse("tenant:default:usd:day")
        call(budgets.put, budget, limit=1, by=user("root"), reason="")  # type: ignore[arg-type]
        sql(shared_database, GIVEN_UP)
        yield Scene(shared_database, pod, askers, request.id)


# --- What the role of pods may not write, read or call. <request> is a request that waits.

WRITES: Final = [
    "UPDATE cortex.approval SET status = 'APPROVED', decided_by = 'ana', decided_at = now()",
    "UPDATE cortex.approval SET arguments = '[]', digest = sha256('[]')",
    "UPDATE cortex.approval SET people = 1",
    "UPDATE cortex.approval SET requested_with = 'token:x'",
    "UPDATE cortex.job_record SET submitted_with = 'token:x'",
    "UPDATE cortex.job_record SET submitted_by = 'eve'",
    "UPDATE cortex.job_record SET origin_id = id, lineage_id = <id>",
    "UPDATE cortex.job_record SET tenant = 'eve'",
    "UPDATE cortex.job_record SET id = <id> WHERE id <> <id>",
    "UPDATE cortex.approval SET expires_at = 'infinity'",
    "DELETE FROM cortex.approval",
    "INSERT INTO cortex.approval (id) VALUES (<id>)",
    (
        "INSERT INTO cortex.approval_vote (approval_id, person, digest, channel) "
        "VALUES ('<request>', 'ana', sha256('x'), 'cli')"
    ),
    "UPDATE cortex.approval_vote SET person = 'bo'",
    "DELETE FROM cortex.approval_vote",
    "INSERT INTO cortex.person (name, skeleton, created_by) VALUES ('eve', 'eve', 'eve')",
    "UPDATE cortex.person SET name = 'eve'",
    "INSERT INTO cortex.person_credential VALUES ('os:0', <id>, 'eve')",
    "UPDATE cortex.person_credential SET credential = 'db:eve'",
    (
        "INSERT INTO cortex.api_token (id, name, person_id, digest, roles, created_by) "
        "SELECT <id>, 'eve', id, sha256('x'), '{admin}', 'eve' FROM cortex.person LIMIT 1"
    ),
    "UPDATE cortex.api_token SET roles = '{admin}'",
    "UPDATE cortex.api_token SET digest = sha256('x')",
    "UPDATE cortex.api_token SET expires_at = NULL",
    "UPDATE cortex.api_token SET revoked_at = NULL, revoked_by = NULL",
    "INSERT INTO cortex.api_session (digest, token_id, expires_at) SELECT sha256('x'), <id>, now()",
    "DELETE FROM cortex.api_session",
    "UPDATE cortex.budget SET limit_amount = 1000000",
    "DELETE FROM cortex.budget",
    "INSERT INTO cortex.budget (scope) VALUES ('tenant')",
    "UPDATE cortex.effect SET resolution = 'applied', resolved_by = 'ana'",
    "UPDATE cortex.effect SET approval_id = '<request>'",
    "UPDATE cortex.effect SET status = 'PENDING', finished_at = NULL, is_sure = true",
    "UPDATE cortex.effect SET status = 'COMPLETED', result = '1'",
    "UPDATE cortex.effect SET calls_count = 1",
    "UPDATE cortex.breaker SET state = 'CLOSED', forced_by = NULL WHERE name = 'effects:all'",
    "UPDATE cortex.breaker SET open_until = now() WHERE name = 'effects:all'",
    "UPDATE cortex.breaker SET name = 'effects:none' WHERE name = 'effects:all'",
    "DELETE FROM cortex.breaker WHERE name = 'effects:all'",
    "UPDATE cortex.mcp_tool SET accepted = offered",
    "INSERT INTO cortex.mcp_tool (agent) VALUES ('eve')",
    "DELETE FROM cortex.mcp_tool",
]
FACT: Final = (
    "INSERT INTO cortex.fact (type, subtype, source) VALUES ('lifecycle', '<subtype>', '')"
)
WRITES.extend(
    FACT.replace("<subtype>", each)
    for each in (
        *("approval_approved", "approval_agreed", "approval_denied", "approval_linked"),
        *("approval_expired", "effect_agreed", "effect_resolved", "budget_set", "budget_raised"),
        *("budget_removed", "retention_set", "retention_unset", "token_created", "token_revoked"),
        *("signed_in", "person_created", "person_mapped", "person_disabled", "person_enabled"),
        "mcp_trusted",
    )
)
DECIDED: Final = """
    INSERT INTO cortex.job_step (
        job_id, attempt, seq, kind, key, digest, started_at, finished_at, output)
    SELECT job_id, 1, 1, 'approval', key, '', now(), now(),
           json_build_object('approval_id', id, 'is_approved', true)
    FROM cortex.approval WHERE id = '<request>'
"""
"""A step that says that it was approved: a replay would believe it."""
WRITES.append(DECIDED)
READS: Final = [
    "SELECT digest FROM cortex.api_token",
    "SELECT t FROM cortex.api_token t",
    "SELECT digest FROM cortex.api_session",
    "SELECT token_digest FROM cortex.approval",
    "SELECT spent_digest FROM cortex.approval",
    "SELECT * FROM cortex.approval",
]
CALLS: Final = [
    "SELECT cortex.decide('<request>', true, '<me>', sha256('x'), '', 'cli', NULL, NULL, NULL)",
    "SELECT cortex.link_approval('<request>', sha256('x'), '<me>', '')",
    "SELECT cortex.resolve_effect('<request>', 'applied', '<me>', '', NULL)",
    "SELECT cortex.create_token(<id>, 'eve', 'e', sha256('x'), '{admin}', NULL, '<me>', '', NULL)",
    "SELECT cortex.revoke_token((SELECT id FROM cortex.api_token LIMIT 1), '<me>', '')",
    "SELECT cortex.add_person('eve', 'eve', ARRAY['os:0'], '<me>', '')",
    "SELECT cortex.switch_person('ana', false, '<me>', '')",
    "SELECT cortex.lift_freeze('<me>', '')",
    "SELECT cortex.trust_mcp_tools('a', 'notes', 'x', '{}', '<me>', '')",
    "SELECT cortex.raise_budget('tenant:default:usd:day', 9, '<me>', '')",
    "SELECT cortex.put_budget('tenant', 'default', 'usd', 'day', 9, '<me>', '', false)",
    "SELECT cortex.remove_budget('tenant:default:usd:day', '<me>', '')",
    "SELECT cortex.set_retention(86400, 86400, 86400, NULL, '<me>', '')",
]
FORGED: Final = (
    "SELECT cortex.announce_all('{approval.decided}', '{k}', ARRAY['{}'::jsonb], '{default}', '{}')"
)
"""A message that people take for one about a request."""
INNER: Final = [
    "SELECT cortex.person_of('<me>', 'admin', false)",
    "SELECT cortex.person_of_user('<me>')",
    "SELECT cortex.found_person('eve', 'eve', 'eve')",
    "SELECT cortex.holder_of_digest(sha256('x'))",
]
BECOMING: Final = [
    "SET ROLE cortex_operator",
    "SET ROLE cortex_owner",
    "SET ROLE postgres",
    "SET SESSION AUTHORIZATION postgres",
    "GRANT cortex_operator TO current_user",
    "CREATE FUNCTION cortex.mine() RETURNS int LANGUAGE sql RETURN 1",
    "CREATE OR REPLACE FUNCTION cortex.caller_is_owner() RETURNS bool LANGUAGE sql RETURN true",
    "ALTER TABLE cortex.approval DISABLE TRIGGER ALL",
]


def filled(attempt: str, scene: Scene) -> str:
    for place, text in (("<request>", str(scene.request)), ("<id>", ID), ("<me>", ME)):
        attempt = attempt.replace(place, text)
    return attempt


@pytest.mark.parametrize("attempt", [*WRITES, *READS, *CALLS, *INNER, *BECOMING, FORGED])
@pytest.mark.parametrize("as_role", ["", "&role=cortex_runtime"])
def test_the_login_of_a_pod_is_refused(scene: Scene, attempt: str, as_role: str) -> None:
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        sql(f"{scene.pod}{as_role}", filled(attempt, scene))


@pytest.mark.parametrize("attempt", [*WRITES, *READS, *INNER])
def test_a_session_with_the_role_of_pods_is_refused_direct_writes(
    scene: Scene, attempt: str
) -> None:
    """The owner's commands take the role of pods, too: what people do goes by functions."""
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        sql(f"{scene.owner}&role=cortex_runtime", filled(attempt, scene))


def test_a_pods_login_passes_on_what_a_caller_proves(scene: Scene) -> None:
    by = enrolled(scene.owner, "li")
    request = scene.askers.asked(risk="LOW")
    with kept_session(Profile(dsn=scene.pod)) as call:
        with pytest.raises(ForbiddenError, match="may not act for a person") as caught:
            call(approvals.decide, [a_verdict(request)])
        assert f"GRANT cortex_operator TO {name_of(scene.pod)}" in str(caught.value.hint)
        (result,) = call(approvals.decide, [a_verdict(request, by=by)])
    assert result.outcome == "approved"
    assert scene.askers.row(request).decided_by == "li"


@pytest.mark.parametrize(
    "said, is_refused",
    [({}, False), ({"arguments": {"amount": 99}}, True), ({"is_approved": False}, True)],
)
def test_a_recorded_decision_is_the_one_that_people_made(
    scene: Scene, said: dict[str, Any], is_refused: bool
) -> None:
    request = scene.askers.asked(risk="LOW")
    scene.askers.decide(request, by=enrolled(scene.owner, "li"))
    step = DECIDED.replace("<request>", str(request.id)).replace(
        "json_build_object('approval_id', id, 'is_approved', true)", "$1::json"
    )
    output = json.dumps({"approval_id": str(request.id), "is_approved": True} | said)
    if is_refused:
        with pytest.raises(asyncpg.InsufficientPrivilegeError, match="nobody has made"):
            sql(scene.pod, step, output)
    else:
        sql(scene.pod, step, output)


def test_operators_of_the_caller_do_not_make_a_decision(scene: Scene) -> None:
    for statement in (
        "CREATE SCHEMA eve",
        "CREATE FUNCTION eve.yes(text, text) RETURNS bool LANGUAGE sql IMMUTABLE RETURN true",
        "CREATE OPERATOR eve.= (LEFTARG = text, RIGHTARG = text, FUNCTION = eve.yes)",
        f"GRANT USAGE ON SCHEMA eve TO {name_of(scene.pod)}",
    ):
        sql(scene.owner, statement)
    try:
        with pytest.raises(asyncpg.InsufficientPrivilegeError, match="nobody has made"):
            sql(f"{scene.pod}&search_path=eve,pg_catalog", filled(DECIDED, scene))
    finally:
        sql(scene.owner, "DROP SCHEMA eve CASCADE")


def test_retention_keeps_who_retried_a_job_that_goes_on(scene: Scene) -> None:
    """They are not asked about its critical calls: that is read from the fact of the retry."""
    first, second = new_id(), new_id()
    made = (
        "INSERT INTO cortex.job_record (id, type, payload, origin_id, lineage_id) "
        "VALUES ($1, 'x', '{}', $2, $2)"
    )
    sql(scene.owner, made, first, None)
    sql(scene.owner, made, second, first)
    end = "UPDATE cortex.job_record SET status = 'CANCELLED' WHERE id = $1"
    sql(scene.owner, end, first)
    old = (
        "INSERT INTO cortex.fact (type, subtype, source, job_id, at) "
        "VALUES ('lifecycle', $1, 's', $2, now() - interval '9 days') RETURNING id"
    )
    kept, other = (
        sql(scene.owner, old, each, first)[0]["id"] for each in ("dead_letter_retried", "noted")
    )
    sql(scene.owner, "SELECT cortex.set_retention(NULL, NULL, 86400, NULL, '{}', '')")
    gone = "SELECT cortex.retired_facts($1) AS id"
    assert [row["id"] for row in sql(scene.owner, gone, [kept, other])] == [other]
    sql(scene.owner, end, second)
    assert {row["id"] for row in sql(scene.owner, gone, [kept, other])} == {kept, other}


# --- An admin of one tenant, by the login of a pod.

OF_ONE: Final = ("decide", "link_", "resolve_", "revoke_")
OF_ALL: Final = [
    *(each for each in CALLS if not any(f in each for f in OF_ONE)),
    (
        "SELECT cortex.create_token("
        "<id>, 'eve', 'e', sha256('x'), '{admin}', NULL, '<me>', '', 'south')"
    ),
]


def of_north(scene: Scene) -> str:
    """What the holder of a token of the tenant north proves."""
    by = enrolled(scene.owner, "nora", Role.ADMIN)
    sql(scene.owner, "UPDATE cortex.api_token SET tenant = 'north' WHERE digest = $1", by.digest)
    assert by.digest is not None
    return json.dumps({"digest": by.digest.hex()})


@pytest.mark.parametrize("attempt", OF_ALL)
def test_an_admin_of_one_tenant_changes_nothing_of_all(scene: Scene, attempt: str) -> None:
    by = of_north(scene)
    with pytest.raises(asyncpg.InsufficientPrivilegeError, match=r"nora is (for|of) tenant north"):
        sql(scene.pod, filled(attempt.replace("<me>", by), scene))


@pytest.mark.parametrize("attempt", [each for each in CALLS if each not in OF_ALL])
def test_an_admin_of_one_tenant_finds_nothing_of_another(scene: Scene, attempt: str) -> None:
    by = of_north(scene)
    (effect,) = sql(scene.owner, "SELECT id FROM cortex.effect WHERE status = 'ABANDONED'")
    if "resolve_" in attempt:
        attempt = attempt.replace("<request>", str(effect["id"]))
    rows = sql(scene.pod, filled(attempt.replace("<me>", by), scene))
    assert [row[0] and row[0][0] for row in rows] in ([], [None], ["missing"])
    assert scene.askers.row(scene.request).status == "PENDING"


# --- Credentials that are not valid, or lack the right.


def proofs(scene: Scene) -> dict[str, Identity]:
    call = scene.askers.call
    admin = user("root")
    revoked, off = enrolled(scene.owner, "revoked"), enrolled(scene.owner, "off")
    for each in call(tokens.page, name="revoked"):
        call(tokens.revoke, each.id, by=admin, reason="")
    if call(people.show, "off").disabled_at is None:
        call(people.switch, "off", is_enabled=False, by=admin, reason="")
    unknown = Identity.signed_in("ana", token_id=new_id(), digest=bytes(32))
    return {
        "unknown": unknown,
        "revoked": revoked,
        "disabled": off,
        "viewer": enrolled(scene.owner, "vi", Role.VIEWER),
        "operator": enrolled(scene.owner, "op", Role.OPERATOR),
        "submitter": enrolled(scene.owner, "su", Role.SUBMITTER),
        "metrics": enrolled(scene.owner, "me", Role.METRICS),
    }


@pytest.mark.parametrize(
    "kind", ["unknown", "revoked", "disabled", "viewer", "operator", "submitter", "metrics"]
)
def test_a_credential_without_the_right_decides_nothing(scene: Scene, kind: str) -> None:
    by = proofs(scene)[kind]
    with pytest.raises(ForbiddenError):
        scene.askers.call(approvals.decide, [a_verdict(scene.askers.asked(), by=by)])
    assert scene.askers.row(scene.request).status == "PENDING"


@pytest.mark.parametrize("role", [Role.VIEWER, Role.APPROVER, Role.OPERATOR])
def test_only_an_admin_makes_tokens_and_people(scene: Scene, role: Role) -> None:
    by = enrolled(scene.owner, f"a {role.value}", role)
    call = scene.askers.call
    with pytest.raises(ForbiddenError, match="needs the role admin"):
        call(people.add, "eve", credentials=["os:0"], by=by, reason="")
    with pytest.raises(ForbiddenError, match="needs the role admin"):
        call(
            tokens.create,
            token_id=new_id(),
            name="eve",
            digest=bytes(31) + b"1",
            roles=[Role.ADMIN],
            expires_s=None,
            by=by,
        )


def test_disabling_a_person_ends_all_of_their_access(server: HttpServer, scene: Scene) -> None:
    call, admin = scene.askers.call, user("root")
    one, two = (server.token("viewer", name="gone") for _ in range(2))
    ids = [each.id for each in call(tokens.page, name="gone")]
    assert call(tokens.valid, ids) == set(ids)
    call(people.switch, "gone", is_enabled=False, by=admin, reason="left")
    assert call(tokens.valid, ids) == set()
    states = {each.state for each in call(tokens.page, name="gone")}
    assert states == {TokenState.DISABLED}
    assert {server.get("/v1/jobs", token=each).status for each in (one, two)} == {401}
    call(people.switch, "gone", is_enabled=True, by=admin, reason="back")
    assert server.get("/v1/jobs", token=one).status == 200


def test_an_agreement_of_a_disabled_person_does_not_count(scene: Scene) -> None:
    call, admin = scene.askers.call, user("root")
    request = scene.askers.asked(people=2)
    leaver = enrolled(scene.owner, "leaver")
    assert scene.askers.decide(request, by=leaver).outcome == "agreed"
    call(people.switch, "leaver", is_enabled=False, by=admin, reason="left")
    assert scene.askers.row(request).agreed == 0
    assert scene.askers.decide(request, by=enrolled(scene.owner, "li")).outcome == "agreed"
    assert scene.askers.decide(request, by=enrolled(scene.owner, "mo")).outcome == "approved"
    assert scene.askers.row(request).agreed >= 2


# --- One person counts once.


def second(scene: Scene, how: str) -> Identity:
    """Another credential of li, who has agreed by a token."""
    call: Session = scene.askers.call
    if how == "another token":
        return enrolled(scene.owner, "li", number=2)
    if how == "a label":
        first = enrolled(scene.owner, "li")
        assert first.digest is not None
        return Identity.signed_in("li", token_id=new_id(), digest=first.digest, label="kim")
    call(people.add, "li", credentials=[f"os:{uid_of('li')}"], by=user("root"), reason="")
    return user("li")


@pytest.mark.parametrize("how", ["another token", "a label", "the operating system's user"])
def test_one_person_agrees_once(scene: Scene, how: str) -> None:
    request = scene.askers.asked(people=2)
    assert scene.askers.decide(request, by=enrolled(scene.owner, "li")).outcome == "agreed"
    refused = scene.askers.refused(request, by=second(scene, how))
    assert "you have agreed" in refused.message


def test_an_operating_system_user_is_one_person_on_every_host(scene: Scene) -> None:
    request = scene.askers.asked(people=2)
    here = user("hosted")
    assert here.user is not None
    there = Identity.from_system(type(here.user)(uid=here.user.uid, name="other", host="there"))
    assert scene.askers.decide(request, by=here).outcome == "agreed"
    assert "you have agreed" in scene.askers.refused(request, by=there).message


def test_a_mapped_login_is_that_person_whatever_it_says(scene: Scene) -> None:
    with login_with(scene.owner, "cortex_operator") as dsn, kept_session(Profile(dsn=dsn)) as call:
        first = scene.askers.asked(risk="CRITICAL")
        with pytest.raises(ForbiddenError, match="belongs to no person"):
            call(approvals.decide, [a_verdict(first)])
        scene.askers.call(
            people.add, "dora", credentials=[f"db:{name_of(dsn)}"], by=user("root"), reason=""
        )
        (result,) = call(approvals.decide, [a_verdict(first, by=user("root"))])
        assert result.outcome == "agreed"
        with pytest.raises(ConflictError, match="you have agreed"):
            call(approvals.decide, [a_verdict(first, by=user("li"))])
        assert [vote.person for vote in scene.askers.row(first).votes] == ["dora"]


def test_a_mapped_login_is_responsible_for_what_it_retries(scene: Scene) -> None:
    """Its command names the operating-system user, who is nobody in particular."""
    (failed,) = fail(scene.owner)
    with login_with(scene.owner, "cortex_operator") as dsn, kept_session(Profile(dsn=dsn)) as call:
        scene.askers.call(
            people.add, "rita", credentials=[f"db:{name_of(dsn)}"], by=user("root"), reason=""
        )
        named = user("root").credential
        done = call(
            retries.retry_now, failed, by="root", credential=named, reason="x", new_id=new_id
        )
        assert done.retried_as is not None
        request = a_request(risk="CRITICAL", people=2)
        scene.askers.suspend(scene.askers.claim(done.retried_as), request)
        with pytest.raises(ConflictError, match="asked for by you"):
            call(approvals.decide, [a_verdict(request, by=user("root"))])


# --- Names that an eye can confuse.

CONFUSED: Final = [
    "\u0430na",  # Cyrillic a
    "an\u0430",
    "\u0251na",  # Latin alpha
    "\uff41\uff4e\uff41",  # full width
    "\U0001d41a\U0001d427\U0001d41a",  # mathematical bold
    "ANA",
    "a\u200bna",  # zero width
    "ana\u202e",
    " ana",
    "ana (bo)",
    "\u03b1na",  # Greek
]


@pytest.mark.parametrize("name", CONFUSED)
def test_a_name_that_can_be_confused_is_refused(scene: Scene, name: str) -> None:
    with pytest.raises((UsageError, RejectedError)):
        scene.askers.call(people.add, name, credentials=[], by=user("root"), reason="")
    with pytest.raises((UsageError, RejectedError)):
        scene.askers.call(
            tokens.create,
            token_id=new_id(),
            name=name,
            digest=bytes(30) + b"22",
            roles=[Role.VIEWER],
            expires_s=None,
            by=user("root"),
        )


@pytest.mark.parametrize(
    "one, other",
    [("root", "r00t"), ("mia", "rnia"), ("Ian", "lan"), ("cop", "\u0441\u043e\u0440")],
)
def test_lookalikes_have_one_skeleton(one: str, other: str) -> None:
    assert skeleton(one) == skeleton(other)


@pytest.mark.parametrize(
    "name", ["ana", "Jos\u00e9", "\u0410\u043d\u043d\u0430", "\u7530\u4e2d ana", "O'Neil"]
)
def test_honest_names_are_accepted(name: str) -> None:
    check_name(name)


def test_an_operating_system_user_does_not_become_somebody_by_name(scene: Scene) -> None:
    enrolled(scene.owner, "zoe")
    request = scene.askers.asked()
    refused: Any = scene.askers.refused(request, by=user("zoe"))
    assert "belongs to no person" in refused.message
    assert refused.hint == f"say whose it is: cortex people add NAME --os {uid_of('zoe')}"


# --- The roles of tokens that see least.

OWN: Final = ["", "/result?wait_ms=0", "/history", "/steps", "/events", "/logs"]
"""What a submitter reads of a job."""


@pytest.mark.parametrize("path", OWN)
def test_a_submitter_reads_only_the_jobs_of_their_person(server: HttpServer, path: str) -> None:
    mine = server.token("submitter", name="sub one")
    made = server.post("/v1/jobs", token=mine, json_body={"type": "look_up"})
    assert made.status == 201, made.json
    job = f"/v1/jobs/{made.json['id']}{path}"
    again = server.token("submitter", name="sub one")
    if path != "/events":  # which goes on until the job ends
        assert {server.get(job, token=each).status for each in (mine, again)} <= {200, 202}
    other = server.token("submitter", name="sub two")
    assert server.get(job, token=other).status == 404
    assert server.get(job, token=server.token("metrics", name="scraper")).status == 403


@pytest.mark.parametrize(
    "body",
    [
        {"type": "execute_tool", "payload": {"tool": "x"}},
        {"type": "approval_notify", "payload": {"approval": "x"}},
        {"type": "look_up", "key": "of somebody"},
        {"type": "run_agent", "agent": "a", "payload": {"folder": "/"}},
    ],
)
def test_a_submitter_does_not_submit_what_acts_on_others(
    server: HttpServer, body: dict[str, Any]
) -> None:
    token = server.token("submitter", name="sub one")
    assert server.post("/v1/jobs", token=token, json_body=body).status == 403


def test_only_admins_see_the_credentials_of_decisions(server: HttpServer, scene: Scene) -> None:
    request = scene.askers.asked()
    scene.askers.decide(request, by=enrolled(scene.owner, "li"))
    path = f"/v1/facts?source=approval:{request.id}"
    for role, is_shown in (("viewer", False), ("operator", False), ("admin", True)):
        (fact,) = server.get(path, token=server.token(role, name=f"f {role}")).json["facts"]
        assert (fact["data"]["by"], "credential" in fact["data"]) == ("li", is_shown)
