"""Lists without a file of their own: tokens and job types."""

from cortex.postgres.database import Profile
from cortex.postgres.session import open_session
from tests.support.life import Life
from tests.support.servers.http_server import HttpServer


def test_admins_list_tokens_without_the_tokens_themselves(server: HttpServer) -> None:
    admin = server.token("admin")
    secret = server.token("viewer")
    response = server.get("/v1/tokens?limit=1000", token=admin)
    tokens = response.json["tokens"]
    assert {("viewer",), ("admin",)} <= {tuple(row["roles"]) for row in tokens}
    assert {row["state"] for row in tokens} == {"ACTIVE"}
    assert secret.encode() not in response.body
    assert b"digest" not in response.body
    assert server.get("/v1/tokens", token=secret).status == 403
    (first,) = server.get("/v1/tokens?limit=1", token=admin).json["tokens"]
    assert first["id"] == tokens[0]["id"]
    assert server.get("/v1/tokens?name=nobody", token=admin).json == {"tokens": []}


def test_job_types_are_listed_with_their_arguments(server: HttpServer) -> None:
    with open_session(Profile(dsn=server.dsn)) as call:
        life = Life(call, server.dsn)
        life.type()
        life.pod()
    types = server.get("/v1/types", token=server.token("viewer")).json["types"]
    assert "digest" in {row["type"] for row in types}
    assert all(set(row) == {"type", "is_live", "arguments", "codes"} for row in types)
