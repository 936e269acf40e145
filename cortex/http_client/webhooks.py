"""Signed webhooks as the Standard Webhooks specification describes them.

The receiver gets three headers: the id of the message, which stays the same when it is sent again;
the time of this attempt; and one signature for each secret that is valid now, so that a secret can
be replaced without a gap. It must refuse a time more than five minutes away from its own.
"""

import base64
import binascii
import hashlib
import hmac
from collections.abc import Mapping, Sequence
from typing import Final

from cortex.domain.errors import RejectedError

ID_HEADER: Final = "webhook-id"
TIMESTAMP_HEADER: Final = "webhook-timestamp"
SIGNATURE_HEADER: Final = "webhook-signature"
SECRET_PREFIX: Final = "whsec_"  # noqa: S105 -- how secrets begin, and none itself
SECRET_BYTES_MIN: Final = 24
SECRET_BYTES_MAX: Final = 64
TOLERANCE_S: Final = 300
"""How far the time of a message may be from the receiver's: older ones may be repetitions."""


def signing_key(secret: str) -> bytes:
    """Return the key of a secret as it is written: base64, with `whsec_` before it or not.

    Raises `RejectedError` without the secret in its message.
    """
    try:
        key = base64.b64decode(secret.removeprefix(SECRET_PREFIX), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if not SECRET_BYTES_MIN <= len(key) <= SECRET_BYTES_MAX:
        raise RejectedError(
            f"a webhook's secret must be {SECRET_BYTES_MIN} to {SECRET_BYTES_MAX} bytes in base64",
            hint='make one: python -c "import base64, secrets; '
            "print('whsec_' + base64.b64encode(secrets.token_bytes(32)).decode())\"",
        )
    return key


def signed_headers(
    message_id: str, body: bytes, *, timestamp: int, secrets: Sequence[str]
) -> dict[str, str]:
    """Return the three headers of a message, with one signature for each secret.

    `timestamp`: seconds since 1970, of this attempt.
    """
    content = b"%s.%d.%s" % (message_id.encode(), timestamp, body)
    return {
        ID_HEADER: message_id,
        TIMESTAMP_HEADER: str(timestamp),
        SIGNATURE_HEADER: " ".join(_signature(signing_key(each), content) for each in secrets),
    }


def is_authentic(
    headers: Mapping[str, str], body: bytes, *, now: int, secrets: Sequence[str]
) -> bool:
    """Return whether a message is signed with one of the secrets, within the tolerance of `now`.

    `headers`: by lower-case names.
    """
    message_id, sent = headers.get(ID_HEADER, ""), headers.get(TIMESTAMP_HEADER, "")
    if not (sent.isascii() and sent.isdecimal()) or abs(now - int(sent)) > TOLERANCE_S:
        return False
    content = b"%s.%d.%s" % (message_id.encode(), int(sent), body)
    given = headers.get(SIGNATURE_HEADER, "").split()
    expected = [_signature(signing_key(each), content) for each in secrets]
    return any(hmac.compare_digest(one, other) for one in expected for other in given)


def _signature(key: bytes, content: bytes) -> str:
    return "v1," + base64.b64encode(hmac.digest(key, content, hashlib.sha256)).decode()
