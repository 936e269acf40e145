"""Signatures of webhooks, checked against the scheme's own words with the standard library."""

import base64
import hashlib
import hmac

import pytest

from cortex.domain.errors import RejectedError
from cortex.http_client.webhooks import TOLERANCE_S, is_authentic, signed_headers, signing_key

KEY = bytes(range(32))
SECRET = "whsec_" + base64.b64encode(KEY).decode()
OTHER = base64.b64encode(bytes(range(1, 33))).decode()
BODY = '{"grüß": 1}'.encode()


def sent(*secrets: str, at: int = 1_000_000) -> dict[str, str]:
    return signed_headers("msg_1", BODY, timestamp=at, secrets=secrets)


def test_the_signature_is_that_of_the_scheme() -> None:
    expected = hmac.new(KEY, b"msg_1.1000000." + BODY, hashlib.sha256).digest()
    assert sent(SECRET) == {
        "webhook-id": "msg_1",
        "webhook-timestamp": "1000000",
        "webhook-signature": "v1," + base64.b64encode(expected).decode(),
    }


def test_both_secrets_verify_during_a_rotation() -> None:
    headers = sent(SECRET, OTHER)
    assert len(headers["webhook-signature"].split()) == 2
    for secret in (SECRET, OTHER):
        assert is_authentic(headers, BODY, now=1_000_000, secrets=[secret])


@pytest.mark.parametrize("late", [-TOLERANCE_S - 1, TOLERANCE_S + 1])
def test_an_old_or_early_message_is_refused(late: int) -> None:
    assert is_authentic(sent(SECRET), BODY, now=1_000_000 + TOLERANCE_S, secrets=[SECRET])
    assert not is_authentic(sent(SECRET), BODY, now=1_000_000 + late, secrets=[SECRET])


@pytest.mark.parametrize(
    "change",
    [
        {"webhook-id": "msg_2"},
        {"webhook-timestamp": "1000001"},
        {"webhook-timestamp": "²"},
        {"webhook-timestamp": ""},
        {"webhook-signature": ""},
        {"webhook-signature": "v1,AAAA"},
    ],
)
def test_a_changed_message_is_refused(change: dict[str, str]) -> None:
    assert not is_authentic({**sent(SECRET), **change}, BODY, now=1_000_000, secrets=[SECRET])


def test_another_body_or_secret_is_refused() -> None:
    assert not is_authentic(sent(SECRET), BODY + b" ", now=1_000_000, secrets=[SECRET])
    assert not is_authentic(sent(SECRET), BODY, now=1_000_000, secrets=[OTHER])


@pytest.mark.parametrize("secret", ["", "whsec_", "whsec_????", "whsec_AAAA", "sécret", "A" * 120])
def test_a_weak_secret_is_refused_without_being_shown(secret: str) -> None:
    with pytest.raises(RejectedError) as caught:
        signing_key(secret)
    assert len(secret) <= len("whsec_") or secret.removeprefix("whsec_") not in str(caught.value)
