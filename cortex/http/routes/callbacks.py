"""`POST /callbacks/{callback_id}`: what anybody with its URL may send to one job.

Invariants: a wrong token, a deleted callback and one that never was get the same answer, before the
body is parsed. What the sender reads names neither the job nor its tenant. The same delivery sent
again is the same signal, so that a provider may repeat it until it gets an answer.
"""

import hashlib
from functools import partial
from typing import Any, Final
from uuid import UUID

import attrs
from starlette.responses import Response

from cortex.crash_points import crash_point
from cortex.domain.argument_check import misfits
from cortex.domain.callbacks import PATH, TOKEN_PARAM, digest_of_callback
from cortex.domain.errors import (
    ConflictError,
    InvalidValueError,
    KeyReusedError,
    NotFoundError,
    UsageError,
)
from cortex.domain.idempotency import checked_key
from cortex.domain.limits import PAYLOAD
from cortex.domain.signals import payload_of
from cortex.http.framework import shape
from cortex.http.framework.api import Api, CheckedRequest
from cortex.http.framework.problem import GoneError, NotJsonError
from cortex.http.framework.route import PUBLIC, UUID_PARAM, Method, Route, answer
from cortex.http.framework.tenancy import Tenancy
from cortex.http_client.webhooks import ID_HEADER
from cortex.store import callbacks, signals
from cortex.store.callbacks import OpenCallback

MISFITS_MAX: Final = 5
SENDER: Final = "callback"
_DELIVERY_HEADERS: Final = ("idempotency-key", ID_HEADER)
"""Name an event, whatever its body says about the attempt to deliver it."""
_JSON: Final = ("", "application/json", "text/plain")
"""Media types of bodies that may be JSON, beside those that end with `+json`."""


@attrs.frozen(kw_only=True)
class Delivered:
    """The signal waits for its job, or was sent before."""

    id: UUID


async def deliver(request: CheckedRequest[None, bytes], api: Api) -> Response:
    """Send the body as a signal to the job that opened the callback."""
    callback = await _find(request, api)
    if callback.is_expired:
        at = callback.expires_at.isoformat(timespec="seconds")
        raise GoneError(f"this callback for {callback.name!r} has expired at {at}")
    payload = await api.apart(partial(_payload, request, callback), size=request.size)
    crash_point("before_act")
    signal_id: UUID | None
    try:
        signal_id = await api.port(
            signals.send,
            callback.name,
            payload,
            job=callback.lineage_id,
            idempotency_key=_delivery(request, callback.id),
            by=SENDER,
            credential=f"{SENDER}:{callback.id}",
        )
    except KeyReusedError:
        raise KeyReusedError(
            "this Idempotency-Key came with another body before",
            hint="give each event a key of its own",
        ) from None
    except (ConflictError, NotFoundError):
        signal_id = None
    if signal_id is None:
        raise await _refusal(callback, api)
    crash_point("after_act")
    return answer(Delivered(id=signal_id), status=202)


async def _find(request: CheckedRequest[None, bytes], api: Api) -> OpenCallback:
    tokens = request.request.query_params.getlist(TOKEN_PARAM)
    digest = digest_of_callback(tokens[0]) if len(tokens) == 1 else None
    found = None
    if digest is not None:
        found = await api.port(callbacks.find, request.path["callback_id"], digest)
    if found is None:
        api.callbacks.missed(request.address)
        raise NotFoundError(
            "there is no such callback", hint="POST to the whole URL, with the token in its query"
        )
    return found


def _payload(request: CheckedRequest[None, bytes], callback: OpenCallback) -> str:
    """Return the body as JSON text; an empty one is null. Raises what is wrong with it."""
    try:
        value: Any = shape.from_json(request.body, object) if request.body.strip() else None
    except UsageError as error:
        media = request.request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if media in _JSON or media.endswith("+json"):
            raise
        raise NotJsonError(f"the body is {media[:100]}, not application/json") from error
    if callback.schema is not None and (wrong := misfits(callback.schema, value)):
        listed = "; ".join(f"{each.field} {each.reason}" for each in wrong[:MISFITS_MAX])
        raise InvalidValueError(f"the body does not fit: {listed}")
    return payload_of(value, what="the body")


def _delivery(request: CheckedRequest[None, bytes], callback_id: UUID) -> str:
    """Return the key of a delivery: the sender's own, else a digest of the body."""
    headers = request.request.headers
    given = next((headers[name] for name in _DELIVERY_HEADERS if name in headers), None)
    what = b"body:" + request.body if given is None else b"key:" + checked_key(given).encode()
    return f"{SENDER}:{callback_id}:{hashlib.sha256(what).hexdigest()}"


async def _refusal(callback: OpenCallback, api: Api) -> ConflictError | GoneError:
    """Return why the job takes no signal, without naming it."""
    fate = await api.port(callbacks.fate, callback.lineage_id)
    if fate is callbacks.Fate.OVER:
        return GoneError("the job of this callback has ended")
    if fate is callbacks.Fate.FAILED:
        return ConflictError(
            "the job of this callback has failed", hint="send it again later: it may be retried"
        )
    return ConflictError(
        "the job of this callback has too many signals that it has not received",
        hint="send it again later",
    )


def _admit(address: str, api: Api) -> None:
    api.callbacks.admit(address)


ROUTES: Final = (
    Route(
        method=Method.POST,
        path=PATH,
        handle=deliver,
        role=PUBLIC,  # whoever has the URL
        tenancy=Tenancy.SHARED,
        summary="Send a signal to the job that opened this callback.",
        params={"callback_id": UUID_PARAM},
        raw_body=True,
        body_max=PAYLOAD.bytes_max,
        admit=_admit,
        answers={202: Delivered},
        refuses=(400, 404, 409, 410, 413, 415, 422),
        is_documented=False,
    ),
)
