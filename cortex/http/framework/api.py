"""What a handler gets: the pod, and the checked request with its caller."""

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
from cortex.domain.drain import DrainRequest, DrainStatus, ReadyChecks, TroubleReport
from cortex.domain.job_feed import CodeWait, JobEvent, JobState, Position
from cortex.durable.registry import JobType
from cortex.http.framework.apart import Apart
from cortex.http.framework.auth import Authenticator
from cortex.http.framework.callback_limits import CallbackLimits
from cortex.http.framework.limits import Buckets, Rate
from cortex.http.framework.links import Links
from cortex.http.framework.live_tokens import LiveTokens
from cortex.http.framework.origin import Network
from cortex.http.framework.principal import Principal
from cortex.http.framework.stream_limits import StreamLimits
from cortex.http.framework.tenancy import TenantUse
from cortex.http.framework.turns import Turns
from cortex.postgres.bridge import Port

SIGN_IN_RATE: Final = Rate(burst=30, per_s=1.0)
"""Per address: people behind a proxy share one, and make typing errors."""

Q = TypeVar("Q")
B = TypeVar("B")


class Feed(Protocol):
    """The events of one job as they happen."""

    async def receive(self) -> Sequence[JobEvent | AnswerPiece]:
        """Wait for events, in order. Raises `trio.EndOfChannel` after the job's end."""


class Follow(Protocol):
    """Opens a feed. Raises `NotFoundError`, and `UnavailableError` if too many are open."""

    def __call__(self, job_id: UUID, *, after: Position) -> AbstractAsyncContextManager[Feed]: ...


class RequestObserver(Protocol):
    """Observes each request; `route` is the template of its path, None if there is none."""

    def __call__(self, *, route: str | None, method: str, status: int, seconds: float) -> None: ...


@attrs.frozen(kw_only=True)
class PodView:
    """What the API may read of its pod, and request from it."""

    name: str
    checks: Callable[[], ReadyChecks]
    """Whether this process takes jobs."""
    are_workers_ready: Callable[[], bool]
    """Whether the other processes of the pod take jobs."""
    trouble: Callable[[], TroubleReport | None]
    """The current trouble of its database calls."""
    draining: trio.Event
    """Set when the pod is asked to end: waiting handlers should answer now."""
    drain: Callable[[], DrainStatus | None]
    """Progress of the shutdown."""
    drain_request: Callable[[], DrainRequest | None]
    """A person's request that the pod drains and stays."""
    result: Callable[[UUID, float], Awaitable[JobState | CodeWait | None]]
    """How a job has ended; None if it has not ended after this many seconds.

    Raises `NotFoundError`, and `UnavailableError` when too many wait already.
    """
    follow: Follow
    exposition: Callable[[], Awaitable[tuple[bytes, str]]]
    """Metrics and their content type."""
    answered: RequestObserver
    find_type: Callable[[str], JobType[..., Any] | None]
    """Returns a job type of this pod, None if it is not here."""
    workspaces: Path | None = None
    """Where this machine's jobs have their folders; None: nowhere."""
    folder_roots: Sequence[Path] = ()
    """Folders that agents of jobs submitted here may read."""
    proxies: Sequence[Network] = ()
    """Proxies whose word on addresses and TLS of clients counts."""


@attrs.frozen(kw_only=True)
class Api:
    """The services of every handler; one per pod."""

    port: Port
    chance: Chance
    pod: PodView
    auth: Authenticator
    links: Links = attrs.field(
        default=attrs.Factory(lambda self: Links(self.port), takes_self=True)
    )
    streams: StreamLimits = attrs.field(factory=StreamLimits)
    live: LiveTokens = attrs.field(
        default=attrs.Factory(lambda self: LiveTokens(self.port), takes_self=True)
    )
    sign_ins: Buckets[str] = attrs.field(factory=lambda: Buckets(SIGN_IN_RATE))
    callbacks: CallbackLimits = attrs.field(factory=CallbackLimits)
    apart: Apart = attrs.field(factory=Apart)
    turns: Turns = attrs.field(factory=Turns)


@attrs.frozen(kw_only=True)
class CheckedRequest(Generic[Q, B]):
    """One request, checked against its route."""

    query: Q
    """An instance of the route's `query` class; None without one."""
    body: B
    """An instance of the route's `body` class; None without one."""
    path: Mapping[str, Any]
    """Parameters of the path: a `UUID` where the route declares one, else text."""
    principal: Principal
    address: str
    """The client's IP address."""
    key: str | None
    """The `Idempotency-Key`; only for routes with `takes_key`."""
    request: Request
    """For headers, cookies, raw forms, and `receive` to notice that the client left."""
    size: int
    """Size of the body in bytes."""
    tenant_use: TenantUse = attrs.field(factory=TenantUse)

    @property
    def tenant(self) -> str | None:
        """The only tenant whose records the handler may use; None: all."""
        self.tenant_use.is_read = True
        return self.principal.tenant
