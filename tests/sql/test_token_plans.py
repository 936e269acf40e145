"""However many tokens and sessions there are, each request finds its own by index."""

from collections.abc import Callable

from tests.sql.test_plans import explain

FILL = """
    INSERT INTO cortex.api_token (id, name, digest, roles, created_by)
    SELECT lpad(to_hex(n), 32, '0')::uuid, 'p' || n % 500, sha256(n::text::bytea), '{viewer}', 'li'
    FROM generate_series(1, 4000) n;
    INSERT INTO cortex.api_session (digest, token_id, created_at, expires_at)
    SELECT sha256(n::text::bytea), lpad(to_hex(n), 32, '0')::uuid, now(),
           now() + (n - 200) * interval '1 minute'
    FROM generate_series(1, 4000) n;
"""
DIGEST = "\\x" + "00" * 32
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
        looks = [
            look
            for look in explain(dsn, name, arguments)
            if look.table in {"api_token", "api_session"}
        ]
        assert looks, name
        assert not [look for look in looks if look.node == "Seq Scan"], name
        assert sum(look.rows for look in looks) <= LOOKED_AT_MAX, name
