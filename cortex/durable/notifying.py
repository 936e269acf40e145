"""Notifications of jobs: one message by each subscription that it matches.

A message keeps its id on every attempt, so receivers can drop a repetition. A channel that fails is
tried again by the job's retries; when they are spent, the failure is recorded as the step's result
and the job goes on.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

import attrs

from cortex.domain.approvals.approval import Risk
from cortex.domain.canonical import canonical
from cortex.domain.control_flow import Suspended
from cortex.domain.effect import Invocation
from cortex.domain.errors import InvalidValueError, TransientError
from cortex.domain.failure import CREDENTIALS_REFUSED, Failure
from cortex.domain.messages.message import Message
from cortex.domain.messages.quoting import FROM, author, harmless, reserved_in
from cortex.domain.messages.topic import check_topic
from cortex.durable.attempt import Attempt, ToolCall, ToolPlan
from cortex.durable.guarding import guard_of

TOPIC: Final = "notification.info"
TEXT_MAX: Final = 4_000
TITLE_MAX: Final = 200
DATA_MAX: Final = 16_384
"""Characters of further details, as JSON."""
WAITS_MAX: Final = 2
"""How many times in a row a job waits for a channel that is down, a minute each."""
WRITTEN: Final = frozenset({"title", "text", "data"})
SENT: Final = "sent"
REFUSED: Final = "it was not sent by this channel"


@attrs.frozen(kw_only=True)
class Notification:
    """What people are to know. Raises `InvalidValueError` or `UsageError` for one that is invalid.

    Its topic, its tenant and its risk decide which subscriptions get it.
    """

    text: str
    title: str | None = None
    topic: str = TOPIC
    risk: Risk | None = attrs.field(default=None, converter=attrs.converters.optional(Risk))
    data: Mapping[str, Any] | None = None

    def __attrs_post_init__(self) -> None:
        check_topic(self.topic)
        for name, value, most in (("text", self.text, TEXT_MAX), ("title", self.title, TITLE_MAX)):
            if value is not None and not 0 < len(value.strip()) <= len(value) <= most:
                raise InvalidValueError(
                    f"send_notification: {name} has {len(value)} characters, outside 1 to {most}"
                )
        if self.data is not None and len(canonical(dict(self.data))) > DATA_MAX:
            raise InvalidValueError(
                f"send_notification: data has more than {DATA_MAX} characters",
                hint="keep it elsewhere and send its address",
            )
        for name, written in (("title", self.title), ("text", self.text), ("data", self.data)):
            if (words := reserved_in(written)) is not None:
                raise InvalidValueError(
                    f"send_notification: {name} has {words!r}, words of Cortex's own messages",
                    hint="say it in other words",
                )

    def to_json(self) -> dict[str, Any]:
        """Return what was given, as the arguments of a job."""
        given = attrs.asdict(self, filter=lambda _, value: value is not None)
        return given | ({"risk": self.risk.value} if self.risk is not None else {})

    def payload(self, *, job: str, tenant: str, agent: str | None) -> dict[str, Any]:
        """Return what is sent: `from` says whose text it is; `job` is the one that wrote it."""
        given = self.to_json()
        del given["topic"]
        written = {name: harmless(value) for name, value in given.items() if name in WRITTEN}
        sender = {"job": job, "tenant": tenant, FROM: author(agent=agent, job=job)}
        return {**given, **written, **sender} | ({} if agent is None else {"agent": agent})


@attrs.frozen(kw_only=True)
class Delivery:
    """One message by one subscription."""

    name: str
    message: Message

    async def plan(self, attempt: Attempt, call: ToolCall) -> ToolPlan:
        """Plan it: a `Planner`."""
        limit_s = (await attempt.limits()).call_s

        async def run(_: Invocation | None) -> str:
            return await self._tried(attempt, call.key, limit_s)

        return ToolPlan(
            arguments=call.arguments,
            effect=None,  # at least once, under one id, like all messages
            gate=None,
            run=run,
            guard=guard_of(attempt, None, step=call.key),
            limit_s=limit_s,
        )

    async def _tried(self, attempt: Attempt, step: str, limit_s: float) -> str:
        """Return `SENT`, or why it was not, if that is final for this job."""
        refusal: list[Failure] = []

        async def send() -> None:
            message = attrs.evolve(self.message, trace=attempt.traceparent(step))
            failure = await attempt.services.channels.send(self.name, message, limit_s=limit_s)
            if failure is None:
                return
            if failure.cls.is_transient:
                raise TransientError(failure.message, retry_after_s=failure.retry_after_s)
            refusal.append(failure)

        claim = attempt.claim
        try:
            await guard_of(attempt, f"notify:{self.name}", step=step)(
                partial(attempt.services.meter.timed, "send_notification", send)
            )
        except TransientError as error:
            if claim.retry_count < claim.max_retries:
                raise
            return error.message
        except Suspended as down:
            if attempt.waits_count < WAITS_MAX:
                raise
            return down.reason
        if not refusal:
            return SENT
        failure = attrs.evolve(refusal[0], source=f"notify:{self.name}")
        if failure.code in CREDENTIALS_REFUSED:  # people are notified of that fact: see auth.failed
            caller = await attempt.caller(step)
            await attempt.services.facts.failed(caller, failure, resolution=REFUSED)
        return failure.message
