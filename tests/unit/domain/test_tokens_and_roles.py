import hashlib

import pytest

from cortex.domain.token import (
    SECRET_BYTES,
    Role,
    digest_of_cookie,
    digest_of_token,
    may,
    token_text,
)


def test_a_token_is_its_prefix_and_256_bits() -> None:
    token = token_text(bytes(range(SECRET_BYTES)))
    assert token == "cortex_" + bytes(range(32)).hex()
    assert digest_of_token(token) == hashlib.sha256(token.encode()).digest()
    with pytest.raises(ValueError, match="32 random bytes"):
        token_text(b"short")


@pytest.mark.parametrize(
    "text", ["", "cortex_", "0" * 64, "cortex_" + "0" * 63, "cortex_" + "g" * 64, "x" * 10**6]
)
def test_other_text_is_no_token_and_is_not_hashed(text: str) -> None:
    assert digest_of_token(text) is None
    assert digest_of_token(f"cortex_{'0' * 64}\n") is None
    assert digest_of_token("cortex_" + "\N{ARABIC-INDIC DIGIT ZERO}" * 64) is None


def test_a_token_is_no_cookie() -> None:
    assert digest_of_cookie("0" * 64) is not None
    assert digest_of_cookie(token_text(bytes(32))) is None


def test_each_role_grants_its_rights() -> None:
    table = {held: {needed for needed in Role if may(frozenset({held}), needed)} for held in Role}
    assert table == {
        Role.METRICS: {Role.METRICS},
        Role.SUBMITTER: {Role.SUBMITTER},
        Role.VIEWER: {Role.VIEWER, Role.METRICS},
        Role.APPROVER: {Role.VIEWER, Role.METRICS, Role.APPROVER},
        Role.OPERATOR: {Role.VIEWER, Role.METRICS, Role.SUBMITTER, Role.OPERATOR},
        Role.ADMIN: set(Role),
    }
    assert not may(frozenset(), Role.VIEWER)
    assert may(frozenset({Role.APPROVER, Role.OPERATOR}), Role.OPERATOR)
