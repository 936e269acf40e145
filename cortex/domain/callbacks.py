"""Callback URLs: addresses to which anybody may POST one signal of one job.

The token of a URL is an HMAC of its id under a secret of the pods. So the record needs no token to
return the same URL again, the database holds only a digest, and neither of them, nor a copy of
both, lets anybody make one.
"""

import hashlib
import hmac
import re
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID, uuid5

import attrs

from cortex.domain.errors import UsageError
from cortex.domain.option_check import checked_seconds
from cortex.domain.token import CALLBACK_PREFIX

PATH: Final = "/callbacks/{callback_id}"
TOKEN_PARAM: Final = "t"  # noqa: S105 -- the name of the parameter
EXPIRES_DEFAULT_S: Final = 7 * 86_400.0
EXPIRES_S: Final = (1.0, 366 * 86_400.0)
_TOKEN: Final = re.compile(rf"{CALLBACK_PREFIX}[0-9a-f]{{64}}", re.ASCII)
_NEW_SECRET: Final = "set CORTEX_CALLBACK_SECRET on every pod: openssl rand -hex 32"  # noqa: S105


@attrs.frozen(kw_only=True)
class Callback:
    """A callback URL as its step records it: all of it but the token."""

    address: str
    """The URL without its query."""
    id: UUID
    signed_with: str
    """Names the secret, and reveals nothing of it."""
    expires_at: datetime


@attrs.frozen
class Signer:
    """Makes the tokens of callback URLs."""

    base_url: str | None
    """Where pods serve the HTTP API, for callers outside; None: nowhere."""
    secrets: Sequence[str] = attrs.field(repr=False)
    """The first one signs; URLs of the others stay as they are."""

    def check(self) -> None:
        """Raise `UsageError` that names the setting without which there are no URLs."""
        if self.base_url is None:
            raise UsageError(
                "ctx.callback_url needs setting public_url: where others reach the HTTP API",
                hint="set CORTEX_PUBLIC_URL=https://cortex.example.org on every pod",
            )
        if not self.secrets:
            raise UsageError(
                "ctx.callback_url needs setting callback_secret, which signs the URLs",
                hint=_NEW_SECRET,
            )

    def new(self, lineage_id: UUID, key: str) -> tuple[UUID, str, str]:
        """Return the id, address and signing secret's name of the callback of a step.

        The same step has the same id, whatever attempt asks. Raises `UsageError` as `check`.
        """
        self.check()
        callback_id = uuid5(lineage_id, key)
        return callback_id, f"{self.base_url}{PATH.format(callback_id=callback_id)}", self.name

    @property
    def name(self) -> str:
        """The name of the secret that signs."""
        return _name_of(self.secrets[0])

    def token(self, lineage_id: UUID, callback_id: UUID, signed_with: str) -> str:
        """Return the token of a callback. Raises `UsageError` if the pod lacks its secret."""
        for secret in self.secrets:
            if _name_of(secret) == signed_with:
                message = lineage_id.bytes + callback_id.bytes
                return CALLBACK_PREFIX + hmac.digest(secret.encode(), message, "sha256").hex()
        raise UsageError(
            f"setting callback_secret lacks secret {signed_with}, which signed callback URL "
            f"{callback_id}",
            hint="list former secrets after the new one, with a comma between, on every pod",
        )

    def url(self, lineage_id: UUID, callback: Callback) -> str:
        """Return the whole URL. Raises `UsageError` as `token`."""
        token = self.token(lineage_id, callback.id, callback.signed_with)
        return f"{callback.address}?{TOKEN_PARAM}={token}"


def digest_of(token: str) -> bytes:
    """Return what is stored of a token."""
    return hashlib.sha256(token.encode()).digest()


def digest_of_callback(text: str) -> bytes | None:
    """Return the digest of a token that came with a request; None for text that cannot be one."""
    return digest_of(text) if _TOKEN.fullmatch(text) else None


def checked_expiry(expires: float | timedelta, *, what: str) -> float:
    """Return the seconds for which a URL is good. Raises `UsageError` that names `what`."""
    low_s, high_s = EXPIRES_S
    return checked_seconds(expires, f"{what}: expires", low_s=low_s, high_s=high_s)


def _name_of(secret: str) -> str:
    return hashlib.sha256(b"callback secret:" + secret.encode()).hexdigest()[:8]
