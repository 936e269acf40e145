"""What a program submits: a job type or its name, arguments by name, and options."""

from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, Protocol, Self, TypedDict, TypeVar
from uuid import UUID

import attrs

from cortex.domain.argument_check import PayloadChecker
from cortex.domain.errors import UsageError
from cortex.domain.job import Submission
from cortex.domain.limits import PAYLOAD
from cortex.domain.option_check import (
    check_delay,
    check_instant,
    check_tags,
    check_text,
    check_whole,
)
from cortex.domain.policy import (
    DELAY_MAX_S,
    KEY_MAX,
    NAME_MAX,
    PRIORITY_MAX,
    RETRIES_MAX,
    TIMEOUT_MAX_S,
    refuse_bulk,
    require_agent,
)
from cortex.domain.tracing.traceparent import TraceParent
from cortex.durable.codec import encode
from cortex.durable.registry import JobType

R_co = TypeVar("R_co", covariant=True)


class SubmittableJob(PayloadChecker, Protocol[R_co]):
    """What `@job` makes of a handler; its result is an `R_co`."""

    @property
    def name(self) -> str: ...

    def __call__(self, *args: Any, **kwargs: Any) -> Coroutine[Any, Any, R_co]: ...


class SharedOptions(TypedDict, total=False):
    """Options of many jobs that are submitted at once; see `Options`."""

    job_key: str | None
    queue: str | None
    priority: int | None
    delay: float | None
    run_at: datetime | None
    due_by: datetime | None
    timeout_s: int | None
    max_retries: int | None
    agent: str | None
    tenant: str | None
    tags: Sequence[str]
    traceparent: str | None
    by: str | None


@attrs.frozen(kw_only=True)
class Options:
    """How a job is to run; None is the default of its type."""

    key: str | None = None
    """Idempotency: a second submit with it returns the first job, for 24 hours."""
    job_key: str | None = None
    """Replaces the job that still waits under it."""
    queue: str | None = None
    priority: int | None = None
    """Lower numbers run first."""
    delay: float | None = None
    """Earliest start, in seconds from now."""
    run_at: datetime | None = None
    """Earliest start, an instant with its zone."""
    due_by: datetime | None = None
    """Deadline, an instant with its zone: earliest first within a priority; late jobs run, too."""
    timeout_s: int | None = None
    max_retries: int | None = None
    agent: str | None = None
    tenant: str | None = None
    tags: tuple[str, ...] = ()
    traceparent: str | None = None
    by: str | None = None
    """The person on whose behalf it is submitted: a label, shown with the job."""

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Self:
        """Return the options that are not None. Raises `UsageError` for an unknown one."""
        known = {name: value for name, value in given.items() if value is not None}
        if unknown := known.keys() - {each.name for each in attrs.fields(cls)}:
            raise UsageError(f"submit has no option {min(unknown)!r}")
        if isinstance(known.get("tags"), list):
            known["tags"] = tuple(known["tags"])
        return cls(**known)

    @property
    def given(self) -> list[str]:
        """The names of those that are given."""
        return [
            each.name
            for each in attrs.fields(Options)
            if getattr(self, each.name) not in (None, ())
        ]

    def check(self) -> None:
        """Raise `UsageError` that names the first option that is out of bounds."""
        for name, most in _TEXTS.items():
            check_text(name, getattr(self, name), most)
        for name, (low, high) in _WHOLE.items():
            check_whole(name, getattr(self, name), low, high)
        delay = self.delay
        check_delay(delay, DELAY_MAX_S)
        check_instant("run_at", self.run_at)
        check_instant("due_by", self.due_by)
        if self.run_at is not None and delay is not None:
            raise UsageError("delay and run_at exclude each other")
        check_tags(self.tags)
        if self.traceparent is not None:
            TraceParent.given(self.traceparent, source="traceparent")


_TEXTS: Final = {
    "key": 200,
    "job_key": KEY_MAX,
    "queue": NAME_MAX,
    "agent": NAME_MAX,
    "tenant": NAME_MAX,
    "by": 200,
}
_WHOLE: Final = {
    "priority": (-PRIORITY_MAX, PRIORITY_MAX),
    "timeout_s": (1, TIMEOUT_MAX_S),
    "max_retries": (0, RETRIES_MAX),
}


def type_name(job: SubmittableJob[Any] | str) -> str:
    """Return the name of a job type. Raises `UsageError` for anything else."""
    if isinstance(job, str):
        check_text("job type", job, NAME_MAX)
        return job
    if not isinstance(job, JobType):
        raise UsageError(
            f"{getattr(job, '__name__', repr(job))!s:.80} is not a job type",
            hint="submit a function that @job made a job type, or the type's name as text",
        )
    return job.name


def split(
    job: SubmittableJob[Any] | str, given: Mapping[str, Any]
) -> tuple[Mapping[str, Any], Options]:
    """Return the arguments and the options of a submit, from the local names of its function.

    Raises `UsageError` for arguments by name beside `payload`, and where a name means an option and
    an argument of the handler.
    """
    others = ("self", "job", "payload", "arguments")
    options = {name: value for name, value in given.items() if name not in others}
    options = {name: value for name, value in options.items() if value not in (None, ())}
    arguments = _arguments(job, given["arguments"], given["payload"], options)
    return arguments, Options.of(options)


def _arguments(
    job: SubmittableJob[Any] | str,
    named: Mapping[str, Any],
    payload: Mapping[str, Any] | None,
    options: Mapping[str, Any],
) -> Mapping[str, Any]:
    if payload is not None:
        if named:
            raise UsageError(
                f"payload and {', '.join(sorted(named))} exclude each other",
                hint="give all arguments by name, or all of them in payload",
            )
        return payload
    taken = job.parameters.keys() & options.keys() if isinstance(job, JobType) else ()
    if taken:
        name = min(taken)
        raise UsageError(
            f"{name!r} is an argument of job type {type_name(job)!r} and an option of submit",
            hint=f"give the arguments in payload: payload={{{name!r}: …}}",
        )
    return named


def submission(
    job: SubmittableJob[Any] | str,
    arguments: Mapping[str, Any],
    options: Options,
    *,
    new_id: Callable[[], UUID],
) -> Submission:
    """Return the checked submission of one job, but for its arguments' fit.

    Raises `UsageError`, and `InvalidValueError` for what is no JSON.
    """
    return submissions(job, [arguments], options, new_id=new_id)[0]


def submissions(
    job: SubmittableJob[Any] | str,
    payloads: Iterable[Mapping[str, Any]],
    options: Options,
    *,
    new_id: Callable[[], UUID],
) -> list[Submission]:
    """Return the same for many jobs of one type."""
    name = type_name(job)
    options.check()
    refuse_bulk(name, options.queue)
    require_agent(name, options.agent)
    what = f"payload of {name!r}"
    return [
        Submission(
            id=new_id(),
            type=name,
            payload=_encoded(each, what),
            agent=options.agent,
            tenant=options.tenant,
            queue_name=options.queue,
            priority=options.priority,
            delay_s=options.delay,
            run_at=options.run_at,
            due_by=options.due_by,
            max_retries=options.max_retries,
            timeout_s=options.timeout_s,
            job_key=options.job_key,
            tags=options.tags,
            traceparent=options.traceparent,
        )
        for each in payloads
    ]


def _encoded(arguments: object, what: str) -> str:
    if not isinstance(arguments, Mapping) or not all(isinstance(name, str) for name in arguments):
        raise UsageError(f"{what} is not a mapping of arguments by name: {arguments!r:.80}")
    return encode(dict(arguments), what=what, limit=PAYLOAD)
