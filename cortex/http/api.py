"""What a handler is given: the pod that it speaks for, and what it was asked, by whom."""

from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

import attrs
import trio
from starlette.requests import Request

from cortex.domain.clock import Chance
from cortex.http.auth import Authenticator
from cortex.http.principal import Principal
from cortex.store.bridge import Port

Q = TypeVar("Q")
B = TypeVar("B")


@attrs.frozen(kw_only=True)
class PodView:
    """What the API may know of the pod that it runs in."""

    name: str
    is_sure: Callable[[], bool]
    """It holds its lock, and a heartbeat succeeded not long ago: Postgres was there."""
    is_claiming: Callable[[], bool]
    """It takes jobs."""
    draining: trio.Event
    """Set when the pod was asked to end: whoever waits for something should answer now."""


@attrs.frozen(kw_only=True)
class Api:
    """What every handler works with; one for a pod."""

    port: Port
    chance: Chance
    pod: PodView
    auth: Authenticator


@attrs.frozen(kw_only=True)
class Asked(Generic[Q, B]):
    """One request, checked against its route: a handler sees nothing that does not fit."""

    query: Q
    """Of the route's `query` class; None without one."""
    body: B
    """Of the route's `body` class; None without one."""
    path: Mapping[str, Any]
    """Parameters of the path: a `UUID` where the route says so, else text."""
    principal: Principal
    address: str
    """Where it came from: an IP address."""
    key: str | None
    """The `Idempotency-Key`; only routes that `takes_key` get one."""
    request: Request
    """For headers, cookies, raw forms, and `receive` to see the client leave."""
