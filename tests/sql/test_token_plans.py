"""However many tokens and sessions there are, each request finds its own by index."""

from collections.abc import Callable

from cortex.postgres.queries import sql as query_text
from tests.sql.test_approval_plans import touched
from tests.support.servers.postgres import sql

FILL = """
    INSERT INTO cortex.person (id, name, skeleton, created_by)
    SELECT lpad(to_hex(n), 32, '0')::uuid, 'p' || n, 'p' || n, 'li' FROM generate_series(0, 499) n;
    INSERT INTO cortex.api_token (id, name, person_id, digest, roles, created_by)
    SELECT lpad(to_hex(n), 32, '0')::uuid, 'p' || n % 500, lpad(to_hex(n % 500), 32, '0')::uuid,
           sha256(n::text::bytea), '{viewer}', 'li'
    FROM generate_series(1, 4000) n;
    INSERT INTO cortex.api_session (digest, token_id, created_at, expires_at)
    SELECT sha256(n::text::bytea), lpad(to_hex(n), 32, '0')::uuid, now(),
           now() + (n - 200) * interval '1 minute'
    FROM generate_series(1, 4000) n;
"""
DIGEST = bytes(32)
LOOKED_AT_MAX = 250


STATEMENTS: dict[str, tuple[object, ...]] = {
    "tokens.used": (DIGEST,),
    "tokens.of_session": (DIGEST,),
    "tokens.sign_in": (DIGEST, DIGEST, 60.0),
    "tokens.sign_out": (DIGEST,),
}


def test_token_lookup_reads_few_rows(filled: Callable[..., str]) -> None:
    dsn = filled(FILL)
    for name, arguments in STATEMENTS.items():
        found = touched(dsn, query_text(name), *arguments)
        assert found.scans == 0, name
        assert found.rows <= LOOKED_AT_MAX, name


def test_a_scan_would_be_found(filled: Callable[..., str]) -> None:
    dsn = filled(FILL)
    sql(dsn, "DROP INDEX cortex.api_session_expiry")
    assert touched(dsn, query_text("tokens.sign_in"), DIGEST, DIGEST, 60.0).rows > LOOKED_AT_MAX
