"""What a handler is given: the pod that it speaks for, and what it was asked, by whom."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, Final, Generic, Protocol, TypeVar
from uuid import UUID

import attrs
import trio
from starlette.requests import Request

from cortex.domain.answer_text import AnswerPiece
from cortex.domain.clock import Chance
from cortex.domain.drain import DrainRequest, DrainStatus, TroubleReport
from cortex.domain.job_feed import JobEvent, JobState, Position
from cortex.http.auth import Authenticator
from cortex.http.framework.apart import Apart
from cortex.http.framework.limits import Buckets, Rate
from cortex.http.framework.principal import Principal
from cortex.http.framework.stream_limits import StreamLimits
from cortex.http.framework.turns import Turns
from cortex.http.links import Links
from cortex.postgres.bridge import Port

SIGN_IN_RATE: Final = Rate(burst=30, per_s=1.0)
"""Of one address: people behind a proxy share it, and type."""

Q = TypeVar("Q")
B = TypeVar("B")


class Feed(Protocol):
    """What happens to one job, as it happens."""

    async def receive(self) -> Sequence[JobEvent | AnswerPiece]:
        """Wait for events, in order. Raises `trio.EndOfChannel` when the job's end was taken."""


class Follow(Protocol):
    """Opens a feed. Raises `NotFoundError`, and `UnavailableError` if too many are open."""

    def __call__(self, job_id: UUID, *, after: Position) -> AbstractAsyncContextManager[Feed]: ...


class RequestObserver(Protocol):
    """Is told of each request; `route` is the template of its path, None if there is none."""

    def __call__(self, *, route: str | None, method: str, status: int, seconds: float) -> None: ...


@attrs.frozen(kw_only=True)
class PodView:
    """What the API may know of the pod that it runs in, and may ask of it."""

    name: str
    is_sure: Callable[[], bool]
    """It holds its lock, and a heartbeat succeeded not long ago: Postgres was there."""
    is_claiming: Callable[[], bool]
    """It takes jobs."""
    trouble: Callable[[], TroubleReport | None]
    """What its calls to the database suffer from just now."""
    draining: trio.Event
    """Set when the pod was asked to end: whoever waits for something should answer now."""
    drain: Callable[[], DrainStatus | None]
    """How far its leaving has come."""
    drain_request: Callable[[], DrainRequest | None]
    """A person's wish that it drains and stays."""
    result: Callable[[UUID, float], Awaitable[JobState | None]]
    """How a job has ended; None if it goes on after so many seconds. Raises `NotFoundError`, and
    `UnavailableError` when too many wait already."""
    follow: Follow
    exposition: Callable[[], Awaitable[tuple[bytes, str]]]
    """Its metrics and their content type."""
    answered: RequestObserver
    check_payload: Callable[[str, str], object]
    """Takes a job type and a payload. Raises `InvalidValueError` if the pod knows the type, and its
    handler cannot take that."""
    folder_roots: Sequence[Path] = ()
    """In these a job that is submitted here may have its agent read."""


@attrs.frozen(kw_only=True)
class Api:
    """What every handler works with; one for a pod."""

    port: Port
    chance: Chance
    pod: PodView
    auth: Authenticator
    links: Links = attrs.field(
        default=attrs.Factory(lambda self: Links(self.port), takes_self=True)
    )
    streams: StreamLimits = attrs.field(factory=StreamLimits)
    sign_ins: Buckets[str] = attrs.field(factory=lambda: Buckets(SIGN_IN_RATE))
    apart: Apart = attrs.field(factory=Apart)
    turns: Turns = attrs.field(factory=Turns)


@attrs.frozen(kw_only=True)
class CheckedRequest(Generic[Q, B]):
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
    size: int
    """Bytes of the body."""
