"""The services of a pod for jobs in processes of their own: what may be called, and how it crosses.

`ALLOWED` lists the methods. How the arguments and the result of one cross the wire follows from the
type hints of its protocol. What the pod knows itself is never taken from a job: the claim, the
lease, and whose caller it is. So a job that has taken its process over can do no more than its own
attempt could.
"""

import inspect
from collections.abc import Awaitable, Callable, Mapping
from types import NoneType
from typing import Any, Final, get_type_hints

import attrs

from cortex.domain.errors import ForbiddenError
from cortex.domain.job import APPROVAL_NOTIFY, BULK, SEND_NOTIFICATION, UPKEEP, Claim
from cortex.durable.attempt import Services
from cortex.durable.calls import Caller
from cortex.runtime.isolation.wire import Channel, plain, shaped


@attrs.frozen(kw_only=True)
class Allowed:
    """The terms on which jobs may call a method."""

    only_by: tuple[str, ...] = ()
    """Types of jobs; none: jobs of every type may call it."""
    known: Mapping[str, Callable[[Claim], Any]] = attrs.field(factory=dict)
    """Parameters that the pod takes from the claim."""


_BY_BULK: Final = (BULK,)
_BY_NOTIFICATION: Final = (SEND_NOTIFICATION,)

ALLOWED: Final[Mapping[str, Allowed]] = {
    "models.capabilities": Allowed(),
    "models.respond": Allowed(),
    "files.keep": Allowed(
        known={"lineage_id": lambda claim: claim.lineage_id or claim.lease.job_id}
    ),
    "specs.newest_agent": Allowed(),
    "specs.agent": Allowed(),
    "specs.flow": Allowed(),
    "specs.known_tools": Allowed(),
    "specs.note_tools": Allowed(),
    "policies.limits": Allowed(),
    "facts.failed": Allowed(),
    "facts.resolved": Allowed(),
    "gateway.until_it_may_begin": Allowed(),
    "gateway.intend": Allowed(),
    "gateway.record": Allowed(),
    "gateway.decision": Allowed(
        known={"lineage_id": lambda claim: claim.lineage_id or claim.lease.job_id}
    ),
    "clock.now": Allowed(),
    "bulk.choose": Allowed(only_by=_BY_BULK, known={"job_id": lambda claim: claim.lease.job_id}),
    "bulk.settle": Allowed(only_by=_BY_BULK),
    "upkeep.run_once": Allowed(only_by=UPKEEP, known={"name": lambda claim: claim.type}),
    "channels.routes": Allowed(only_by=_BY_NOTIFICATION),
    "channels.send": Allowed(only_by=_BY_NOTIFICATION),
    "channels.origin": Allowed(
        only_by=_BY_NOTIFICATION, known={"job_id": lambda claim: claim.lease.job_id}
    ),
    "channels.remind": Allowed(only_by=(APPROVAL_NOTIFY,)),
    "publisher.publish": Allowed(),
    "children.spawn": Allowed(),  # of its own: the pod takes the parent from the claim
    "children.outcomes": Allowed(),
    "children.adopt": Allowed(),
    "children.ids": Allowed(),
    "channels.notify": Allowed(),  # it submits a job, as any job may
    "signals.take": Allowed(),
    "arrivals.come": Allowed(),
    "callbacks.open": Allowed(),
    "callbacks.url": Allowed(),
}
"""Calls that cross, by service and method."""


@attrs.frozen(kw_only=True)
class _Method:
    """A method of a service, as its protocol declares it."""

    path: str
    service: str
    name: str
    signature: inspect.Signature
    hints: Mapping[str, Any]
    result: Any
    allowed: Allowed

    @classmethod
    def of(cls, path: str, allowed: Allowed) -> "_Method":
        service, name = path.split(".")
        function = getattr(_PROTOCOLS[service], name)
        hints = get_type_hints(function)
        result = hints.pop("return")
        declared = inspect.signature(function)
        _, *parameters = declared.parameters.values()  # without self
        signature = declared.replace(parameters=parameters)
        return cls(
            path=path,
            service=service,
            name=name,
            signature=signature,
            hints=hints,
            result=result,
            allowed=allowed,
        )

    def is_sent(self, parameter: str) -> bool:
        return self.hints[parameter] is not Claim and parameter not in self.allowed.known

    def sent(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Return the arguments of a call for the wire, without those that the pod knows."""
        call = self.signature.bind(*args, **kwargs)
        call.apply_defaults()
        return {
            name: terms_of(call.arguments[name]) if hint is Caller else plain(value, hint)
            for name, hint in self.hints.items()
            if self.is_sent(name)
            for value in (call.arguments[name],)
        }

    async def received(
        self, claim: Claim, given: Mapping[str, Any], caller: "CallerOf"
    ) -> inspect.BoundArguments:
        """Return the arguments of a call that has come from a job."""
        arguments = dict[str, Any]()
        for name, hint in self.hints.items():
            if name in self.allowed.known:
                arguments[name] = self.allowed.known[name](claim)
            elif hint is Claim:
                arguments[name] = claim
            elif hint is Caller:
                arguments[name] = await caller(given[name])
            else:
                arguments[name] = _own(shaped(given[name], hint), claim)
        bound = self.signature.bind_partial()
        bound.arguments.update(arguments)
        return bound


CallerOf = Callable[[Mapping[str, Any]], Awaitable[Caller]]
"""Returns a caller of the job with the terms that it has sent."""

_PROTOCOLS: Final = get_type_hints(Services)
_METHODS: Final = {path: _Method.of(path, allowed) for path, allowed in ALLOWED.items()}


def _own(value: Any, claim: Claim) -> Any:
    """Return what a job has sent as its own attempt's, whatever lease it names."""
    if attrs.has(type(value)) and "lease" in attrs.fields_dict(type(value)):
        return attrs.evolve(value, lease=claim.lease)
    return value


async def answer(
    services: Services, claim: Claim, path: str, given: Mapping[str, Any], *, caller: CallerOf
) -> Any:
    """Call an allowed method for a job, on the side of its pod; return the result for the wire.

    Raises `ForbiddenError` for a method that the job's type has no use for.
    """
    method = _METHODS[path]
    if method.allowed.only_by and claim.type not in method.allowed.only_by:
        raise ForbiddenError(
            f"a job of type {claim.type!r} may not call {method.name} of {method.service}"
        )
    call = await method.received(claim, given, caller)
    service = getattr(services, method.service)
    return plain(await getattr(service, method.name)(*call.args, **call.kwargs), method.result)


class _Remote:
    """A service of the pod on the side of a job; its subclasses have the methods."""

    def __init__(self, line: Channel, **local: Any) -> None:
        self._line = line
        vars(self).update(local)


def _forwarding(method: _Method) -> Callable[..., Awaitable[Any]]:
    async def forward(self: _Remote, *args: Any, **kwargs: Any) -> Any:
        result = await self._line.call(method.path, **method.sent(*args, **kwargs))
        return None if method.result is NoneType else shaped(result, method.result)

    return forward


def _remote(service: str) -> type[_Remote]:
    methods = (each for each in _METHODS.values() if each.service == service)
    forwarded = {each.name: _forwarding(each) for each in methods}
    return type(f"Remote{service.title()}", (_Remote,), forwarded)


_REMOTE: Final = {
    service: _remote(service)
    for service in dict.fromkeys(each.service for each in _METHODS.values())
}


def remote(service: str, line: Channel, **local: Any) -> Any:
    """Return a service of the pod, by its name in `Services`, for a job on the other side.

    `local`: members that need no pod.
    """
    return _REMOTE[service](line, **local)


def terms_of(caller: Caller) -> dict[str, Any]:
    """Return the fields of a caller that the pod does not know itself."""
    retry = plain(caller.retry)
    limits = {name: getattr(caller, name) for name in ("call_s", "idle_s", "connect_s")}
    return {"key": caller.key, "retry": retry, **limits}
