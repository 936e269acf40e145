"""`cortex tokens`: shown once, listed without their secret, revoked for good."""

import hashlib
import re

import pytest

from cortex.postgres.database import Database
from cortex.store import tokens
from cortex.store.tokens import Holder
from tests.support.command_line import Cortex
from tests.support.life import Life
from tests.support.people import me
from tests.support.records.rows import move_clock

TOKEN = re.compile(r"cortex_[0-9a-f]{64}")


def create(cortex: Cortex, *more: str, name: str = "ana", role: str = "approver") -> str:
    ended = cortex("tokens", "create", "--name", name, "--role", role, "--as", "li", *more)
    assert ended.code == 0, ended.err
    return ended.out.strip()


def test_create_prints_only_the_token_to_stdout(cortex: Cortex, life: Life) -> None:
    token = create(cortex)
    assert TOKEN.fullmatch(token)
    (row,) = life.sql("SELECT * FROM cortex.api_token")
    assert row["digest"] == hashlib.sha256(token.encode()).digest()
    assert (row["name"], row["roles"], row["created_by"]) == ("ana", ["approver"], me("li"))
    made = "SELECT subtype, source, data->>'by' AS by FROM cortex.fact WHERE subtype = $1"
    (fact,) = life.sql(made, "token_created")
    assert tuple(fact) == ("token_created", "token:ana", me("li"))
    listed = cortex("facts", "--type", "lifecycle")
    assert "token_created" in listed.out


def test_the_reason_is_recorded(cortex: Cortex, life: Life) -> None:
    create(cortex, "--reason", "for the release")
    (fact,) = life.sql(
        "SELECT data->>'reason' AS reason FROM cortex.fact WHERE subtype = 'token_created'"
    )
    assert fact["reason"] == "for the release"


def test_json_output_of_create_is_one_document(cortex: Cortex) -> None:
    ended = cortex(
        *("tokens", "create", "--name", "ci", "--role", "viewer", "--role", "operator"),
        *("--expires", "30d", "--json"),
    )
    output = ended.document
    assert TOKEN.fullmatch(output["token"])
    assert output["roles"] == ["viewer", "operator"]
    assert output["created_at"] < output["expires_at"]
    assert output["token"] not in ended.err


def test_tokens_are_listed_without_their_secret(cortex: Cortex, life: Life, database: str) -> None:
    tokens = [create(cortex, name="ana"), create(cortex, "--expires", "60s", name="li")]
    life.sql("UPDATE cortex.api_token SET last_used_at = now() WHERE name = 'ana'")
    listed = cortex("tokens", "ls", "--json").document["tokens"]
    assert [(row["name"], row["state"]) for row in listed] == [("li", "ACTIVE"), ("ana", "ACTIVE")]
    assert listed[1]["last_used_at"] is not None
    move_clock(database, 61)
    assert [row["name"] for row in cortex("tokens", "ls", "--json").document["tokens"]] == ["ana"]
    everything = cortex("tokens", "ls", "--all", "--json")
    assert [row["state"] for row in everything.document["tokens"]] == ["EXPIRED", "ACTIVE"]
    for token in tokens:
        assert token not in everything.out
        assert hashlib.sha256(token.encode()).hexdigest() not in everything.out


def test_empty_list_of_tokens_suggests_create(cortex: Cortex) -> None:
    ended = cortex("tokens", "ls")
    assert (ended.code, ended.out) == (0, "")
    assert "cortex tokens create" in ended.err


def test_a_token_is_revoked_by_its_person_once(cortex: Cortex, life: Life) -> None:
    create(cortex)
    ended = cortex("tokens", "revoke", "ana", "--yes", "--reason", "lost", "--as", "bo", "--json")
    assert ended.document["tokens"][0]["revoked_by"] == me("bo")
    assert ended.document["tokens"][0]["revoked_at"].endswith("Z")
    (fact,) = life.sql("SELECT data FROM cortex.fact WHERE subtype = 'token_revoked'")
    assert '"reason": "lost"' in fact["data"]
    again = cortex("tokens", "revoke", "ana", "--yes")
    assert again.code == 5
    assert f"was revoked by {me('bo')}" in again.err
    assert cortex("tokens", "revoke", "nobody", "--yes").code == 3
    assert cortex("tokens", "revoke", "ana").code == 2, "nobody can be asked here"


def test_token_under_a_key_is_created_and_shown_once(cortex: Cortex, life: Life) -> None:
    arguments = ["tokens", "create", "--name", "ana", "--role", "viewer", "--as", "li"]
    key = ["--idempotency-key", "k-1"]
    first = cortex(*arguments, *key, "--json").document
    again = cortex(*arguments, *key, "--json")
    assert again.code == 0
    assert (again.document["token"], again.document["id"]) == (None, first["id"])
    assert again.document["replayed"] is True
    assert "was shown before and cannot be shown again" in again.err
    plain = cortex(*arguments, *key)
    assert (plain.code, plain.out) == (0, "")
    (stored,) = life.sql("SELECT response::text AS text FROM cortex.idempotency_key")
    digest = hashlib.sha256(first["token"].encode()).hexdigest()
    for secret in (first["token"], first["token"][7:], digest):
        assert secret not in stored["text"]
    assert len(life.sql("SELECT FROM cortex.api_token")) == 1
    other = cortex("tokens", "create", "--name", "li", "--role", "viewer", *key)
    assert other.code == 2


def test_revocation_under_a_key_is_replayed(cortex: Cortex) -> None:
    create(cortex)
    key = ["--yes", "--idempotency-key", "k-2", "--json"]
    first, again = (cortex("tokens", "revoke", "ana", *key).document for _ in range(2))
    assert again.pop("replayed") is True
    assert first == again


@pytest.mark.parametrize(
    "arguments",
    [
        "create",
        "create --name ana",
        "create --role viewer",
        "create --name ana --role king",
        "create --name ana --role viewer --expires soon",
        "create --name ana --role viewer --expires 0d",
        "revoke",
    ],
)
def test_wrong_usage(cortex_nowhere: Cortex, arguments: str) -> None:
    assert cortex_nowhere("tokens", *arguments.split()).code == 2


def test_a_name_that_hides_something_is_refused(cortex: Cortex) -> None:
    ended = cortex("tokens", "create", "--name", "a\u202ena", "--role", "viewer")
    assert (ended.code, ended.out) == (2, "")
    assert "⟦U+202E⟧" in ended.err


def test_a_token_kept_elsewhere_is_registered_once(cortex: Cortex, life: Life) -> None:
    kept = cortex.folder / "token"
    kept.write_text(f"cortex_{'0f' * 32}\n")
    for _ in range(2):  # as each pod's init container does
        assert create(cortex, "--value", f"file:{kept}", name="setup", role="admin") == ""
    (row,) = life.sql("SELECT name, roles, digest FROM cortex.api_token")
    assert row["digest"] == hashlib.sha256(kept.read_text().strip().encode()).digest()

    words = ("tokens", "create", "--value", f"file:{kept}")
    other = cortex(*words, "--name", "setup", "--role", "viewer")
    assert (other.code, "belongs to setup as admin" in other.err) == (5, True)
    cortex("tokens", "revoke", "setup", "--reason", "leaked", "--yes")
    ended = cortex(*words, "--name", "setup", "--role", "admin")
    assert (ended.code, "is revoked" in ended.err) == (5, True)


def test_concurrent_registrations_of_a_kept_token_return_the_same_id(
    cortex: Cortex, life: Life, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = cortex.folder / "token"
    kept.write_text(f"cortex_{'0f' * 32}\n")
    words = ("tokens", "create", "--value", f"file:{kept}", "--name", "setup", "--role", "admin")
    real, looks = tokens.used, []

    async def used(db: Database, digest: bytes) -> Holder | None:
        looks.append(digest)
        return await real(db, digest) if len(looks) > 1 else None  # before the other one's token

    assert cortex(*words).code == 0
    monkeypatch.setattr(tokens, "used", used)
    ended = cortex(*words, "--json")
    (row,) = life.sql("SELECT id FROM cortex.api_token")
    assert (ended.code, ended.document["id"]) == (0, str(row["id"])), ended.err


@pytest.mark.parametrize(
    "place, complaint",
    [
        ("cortex_00", "--value: a secret must be given as env:NAME"),
        ("env:NOWHERE", "environment variable NOWHERE"),
        ("env:LANG", "is no token: cortex_ and 64 hexadecimal digits"),
    ],
)
def test_a_place_without_a_token_is_refused(cortex: Cortex, place: str, complaint: str) -> None:
    words = ("tokens", "create", "--name", "x", "--role", "viewer", "--value", place)
    ended = cortex(*words, env={"LANG": "C.UTF-8-long-enough"})
    assert ended.code != 0
    assert complaint in ended.err
