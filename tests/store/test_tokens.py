"""API tokens and sessions: kept as digests, good until they are not, each change on record."""

import json
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from cortex.domain.errors import ConflictError, NotFoundError, UsageError
from cortex.domain.token import Role
from cortex.postgres.session import Session
from cortex.store import tokens
from tests.support.people import user
from tests.support.records.rows import as_runtime, move_clock, new_id
from tests.support.servers.postgres import sql


def digest(number: int) -> bytes:
    return number.to_bytes(32, "big")


def make(store: Session, number: int = 1, **fields: Any) -> UUID:
    token_id = new_id()
    given = {"name": "ana", "roles": [Role.VIEWER], "expires_s": None, "by": user("li")} | fields
    store(tokens.create, token_id=token_id, digest=digest(number), **given)
    return token_id


def fact(dsn: str, subtype: str) -> dict[str, Any]:
    (row,) = sql(dsn, "SELECT source, data FROM cortex.fact WHERE subtype = $1", subtype)
    return {"source": row["source"], **json.loads(row["data"])}


def test_a_token_is_found_by_its_digest(store: Session) -> None:
    token_id = make(store, roles=[Role.APPROVER, Role.VIEWER])
    holder = store(tokens.used, digest(1))
    assert holder is not None
    assert (holder.token_id, holder.name, holder.is_good) == (token_id, "ana", True)
    assert holder.roles == {Role.APPROVER, Role.VIEWER}
    assert store(tokens.used, digest(2)) is None


def test_a_use_is_noted_at_most_once_a_minute(store: Session, database: str) -> None:
    query = "SELECT last_used_at, xmin::text AS version FROM cortex.api_token"
    make(store)
    assert sql(database, query)[0]["last_used_at"] is None
    store(tokens.used, digest(1))
    first = sql(database, query)[0]
    assert first["last_used_at"] is not None
    move_clock(database, 59)
    store(tokens.used, digest(1))
    assert sql(database, query)[0] == first
    move_clock(database, 61)
    store(tokens.used, digest(1))
    assert sql(database, query)[0]["last_used_at"] > first["last_used_at"]


def test_a_token_ends_with_its_time_by_the_databases_clock(store: Session, database: str) -> None:
    make(store, expires_s=60.0)
    assert store(tokens.exist)
    holder = store(tokens.used, digest(1))
    assert holder is not None
    assert holder.is_good
    move_clock(database, 60)
    ended = store(tokens.used, digest(1))
    assert ended is not None
    assert (ended.is_expired, ended.is_good) == (True, False)
    assert not store(tokens.exist)
    assert store(tokens.page) == []
    assert [row.state for row in store(tokens.page, with_ended=True)] == ["EXPIRED"]


def test_a_token_is_revoked_once_and_by_somebody(store: Session, database: str) -> None:
    token_id = make(store)
    row = store(tokens.revoke, token_id, by=user("li"), reason="lost")
    assert (row.name, row.revoked_by) == ("ana", "li")
    with pytest.raises(ConflictError, match=r"of ana was revoked by li at 20.*Z"):
        store(tokens.revoke, token_id, by=user("bo"), reason="")
    with pytest.raises(NotFoundError):
        store(tokens.revoke, new_id(), by=user("bo"), reason="")
    holder = store(tokens.used, digest(1))
    assert holder is not None
    assert holder.is_revoked
    assert fact(database, "token_revoked") == {
        "source": "token:ana",
        "by": "li",
        "reason": "lost",
        "token_id": str(token_id),
    }


def test_token_creation_is_a_fact_with_its_maker(store: Session, database: str) -> None:
    token_id = make(store, roles=[Role.ADMIN])
    assert fact(database, "token_created") == {
        "source": "token:ana",
        "by": "li",
        "reason": "",
        "token_id": str(token_id),
        "roles": ["admin"],
        "expires_at": None,
        "tenant": None,
    }


def test_an_id_is_given_once(store: Session) -> None:
    token_id = make(store)
    with pytest.raises(ConflictError):
        store(
            tokens.create,
            token_id=token_id,
            digest=digest(2),
            name="bo",
            roles=[Role.VIEWER],
            expires_s=None,
            by=user("li"),
        )


def test_a_token_is_named_by_its_id_its_end_or_its_only_holder(store: Session) -> None:
    mine, yours = make(store, 1, name="ana"), make(store, 2, name="li")
    assert store(tokens.find, str(mine)) == mine
    assert store(tokens.find, f"…{mine.hex[-6:]}") == mine
    assert store(tokens.find, "li") == yours
    second = make(store, 3, name="li")
    with pytest.raises(UsageError, match="'li' could be 2 tokens"):
        store(tokens.find, "li")
    store(tokens.revoke, yours, by=user("li"), reason="")
    assert store(tokens.find, "li") == second
    store(tokens.revoke, mine, by=user("li"), reason="")
    assert store(tokens.find, "ana") == mine, "what was revoked can still be named"
    with pytest.raises(NotFoundError):
        store(tokens.find, "bo")


# --- sessions


def begin(store: Session, number: int = 7, *, token: int = 1, lasts_s: float = 60) -> bool:
    return store(
        tokens.sign_in, cookie_digest=digest(number), token_digest=digest(token), lasts_s=lasts_s
    )


def test_a_session_is_as_good_as_its_token(store: Session, database: str) -> None:
    token_id = make(store, roles=[Role.APPROVER])
    assert begin(store)
    holder = store(tokens.of_session, digest(7))
    assert holder is not None
    assert (holder.token_id, holder.roles) == (token_id, frozenset({Role.APPROVER}))
    assert fact(database, "signed_in")["by"] == "ana"
    store(tokens.sign_out, digest(7))
    assert store(tokens.of_session, digest(7)) is None
    store(tokens.sign_out, digest(7))


def test_a_session_ends_with_its_time_or_with_its_token(store: Session, database: str) -> None:
    first, second = make(store, 1), make(store, 2, expires_s=30.0)
    assert begin(store, 7, token=1, lasts_s=60)
    assert begin(store, 8, token=2, lasts_s=60)
    assert not begin(store, 9, token=3)
    move_clock(database, 30)
    assert store(tokens.of_session, digest(7)) is not None
    assert store(tokens.of_session, digest(8)) is None, "its token has expired"
    store(tokens.revoke, first, by=user("li"), reason="")
    assert store(tokens.of_session, digest(7)) is None
    assert not begin(store, 10, token=1)
    assert second != first


def test_sessions_that_are_over_are_swept_by_the_next(store: Session, database: str) -> None:
    make(store)
    for number in range(10, 15):
        begin(store, number, lasts_s=60)
    move_clock(database, 61)
    begin(store, 20)
    assert len(sql(database, "SELECT FROM cortex.api_session")) == 1


def test_runtime_role_cannot_change_token_rights(store: Session, database: str) -> None:
    make(store)
    for change in (
        "UPDATE cortex.api_token SET roles = '{admin}'",
        "UPDATE cortex.api_token SET digest = sha256('x')",
        "DELETE FROM cortex.api_token",
        "UPDATE cortex.api_session SET token_id = NULL",
    ):
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            sql(as_runtime(database), change)
