"""Children: jobs that the code of a job submits, and waits for without holding anything.

The children of a step are submitted once in the life of the parent's lineage, under the key of the
step; the step itself is recorded after that. How they ended is recorded by steps of its own, so
that a replay sees the same, whatever becomes of the children later.
"""

import hashlib
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping, Sequence
from functools import partial
from itertools import islice, takewhile
from typing import Any, Final, Generic, Self, TypeVar
from uuid import UUID

import attrs
import orjson
import trio

from cortex.domain.budget import BudgetShare, checked_share
from cortex.domain.child import (
    CHILDREN_MAX,
    CONCURRENCY_MAX,
    ChildOutcome,
    ChildTerms,
    SpawnReply,
)
from cortex.domain.control_flow import LeaseLost, Suspended
from cortex.domain.errors import (
    ChildFailedError,
    DivergedError,
    UnavailableError,
    UsageError,
)
from cortex.domain.job import JobStatus, StepKind
from cortex.domain.limits import PAYLOAD
from cortex.domain.option_check import check_delay, check_tags, check_text, check_whole
from cortex.domain.policy import (
    DELAY_MAX_S,
    NAME_MAX,
    PRIORITY_MAX,
    RETRIES_MAX,
    TIMEOUT_MAX_S,
    refuse_bulk,
    require_agent,
)
from cortex.domain.waiting import CHILD
from cortex.domain.waits import ChildrenWait
from cortex.durable.attempt import Attempt
from cortex.durable.codec import StepInput, decode, encode, input_of, input_of_json
from cortex.durable.contenders import Contender, WaitKind
from cortex.durable.registry import JobType
from cortex.durable.results import ResultType
from cortex.durable.step_outcome import StepOutcome

R = TypeVar("R")
RESULT_NAME_MAX: Final = 480
WAITING_ON_MAX: Final = 300
SUBMIT_MAX: Final = 1_000
"""Children in one statement."""
TAKEN_MAX: Final = 1_000
"""Outcomes in one step."""
GROWTH: Final = 4
"""A map waits for a quarter of what it has taken, at least: so it comes back ever more rarely."""
BUSY_S: Final = 0.02
BUSY_MAX: Final = 500


@attrs.frozen(kw_only=True)
class ChildOptions:
    """How children are to run; None is the default of their type."""

    name: str | None = None
    """Of the step; by default the name of the job type."""
    detached: bool = False
    agent: str | None = None
    queue: str | None = None
    priority: int | None = None
    delay: float | None = None
    max_retries: int | None = None
    timeout_s: int | None = None
    tags: Sequence[str] = ()
    budget: BudgetShare | None = None

    def terms(self, job_type: str, *, traceparent: str | None) -> ChildTerms:
        """Return what is submitted. Raises `UsageError` that names an option out of bounds."""
        check_text("job type", job_type, NAME_MAX)
        check_text("agent", self.agent, NAME_MAX)
        check_text("queue", self.queue, NAME_MAX)
        check_whole("priority", self.priority, -PRIORITY_MAX, PRIORITY_MAX)
        check_whole("max_retries", self.max_retries, 0, RETRIES_MAX)
        check_whole("timeout_s", self.timeout_s, 1, TIMEOUT_MAX_S)
        check_delay(self.delay, DELAY_MAX_S)
        tags = tuple(self.tags) if isinstance(self.tags, list) else self.tags
        check_tags(tags)
        refuse_bulk(job_type, self.queue)
        require_agent(job_type, self.agent)
        return ChildTerms(
            type=job_type,
            agent=self.agent,
            queue_name=self.queue,
            priority=self.priority,
            delay_s=self.delay,
            max_retries=self.max_retries,
            timeout_s=self.timeout_s,
            tags=tuple(tags),
            traceparent=traceparent,
            is_detached=self.detached,
            budget=None if self.budget is None else checked_share(self.budget),
        )


@attrs.frozen(eq=False, repr=False)
class Child(Generic[R]):
    """A job that this one has submitted."""

    id: UUID
    """As it was submitted; if it failed and was retried, another job continues it."""
    _ended: Callable[[], Coroutine[None, None, Any]]

    def __repr__(self) -> str:
        return f"<Child {self.id}>"

    def result(self) -> Coroutine[None, None, R]:
        """Wait for its end and return its result, in the type that its handler declares.

        The job holds no resources meanwhile. Raises `ChildFailedError` if it failed or was
        cancelled.
        """
        return self._ended()


@attrs.frozen
class Target:
    """A job type as job code names it."""

    name: str
    job: JobType[..., Any] | None
    """None: only its name is known."""

    @classmethod
    def of(cls, job: object) -> "Target":
        """Return the type. Raises `UsageError` for what is none."""
        if isinstance(job, str):
            check_text("job type", job, NAME_MAX)
            return cls(job, None)
        if not isinstance(job, JobType):
            raise UsageError(
                f"{getattr(job, '__name__', repr(job))!s:.80} is not a job type",
                hint="give a function that @job made a job type, or the type's name as text",
            )
        return cls(job.name, job)

    @property
    def result(self) -> ResultType | None:
        return None if self.job is None else self.job.result

    def payload(self, arguments: Mapping[str, Any]) -> str:
        """Return arguments as JSON text. Raises `InvalidValueError` for those that do not fit."""
        text = encode(dict(arguments), what=f"payload of {self.name!r}", limit=PAYLOAD)
        if self.job is not None:
            self.job.check_payload(text)
        return text

    def first_argument(self) -> str:
        """Return the name of the argument that an item of a map is."""
        if self.job is None or not self.job.parameters:
            raise UsageError(
                f"job type {self.name!r} takes no argument that an item could be",
                hint="map a job type by its function, whose first argument is the item",
            )
        return next(iter(self.job.parameters))


def arguments_of(
    job: object,
    named: Mapping[str, Any],
    payload: Mapping[str, Any] | None,
    options: ChildOptions,
) -> Mapping[str, Any]:
    """Return the arguments of a child. Raises `UsageError` where it is not clear which they are."""
    if payload is None:
        refuse_ambiguous(job, options, hint="give all arguments in payload={…}")
        return named
    if named:
        raise UsageError(
            f"payload and {', '.join(sorted(named))} exclude each other",
            hint="give all arguments by name, or all of them in payload",
        )
    if not isinstance(payload, Mapping):
        raise UsageError(f"payload {payload!r:.80} is not a mapping of arguments by name")
    return payload


def refuse_ambiguous(
    job: object, options: ChildOptions, *, hint: str, is_map: bool = False
) -> None:
    """Raise `UsageError` if an option that is given is also an argument of the handler.

    The first argument of a map comes from its items.
    """
    given = attrs.asdict(options, recurse=False, filter=lambda _, value: value not in (None, ()))
    if not isinstance(job, JobType):
        return
    taken = set(list(job.parameters)[is_map:]) & given.keys() - {"detached"}
    if taken:
        raise UsageError(
            f"{min(taken)!r} is an option of children and an argument of job type {job.name!r}",
            hint=hint,
        )


class Family:
    """Submits and awaits the children of one attempt."""

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt
        self._journal = attempt.journal
        self._children = attempt.services.children

    def spawn(
        self, job: object, arguments: Mapping[str, Any], options: ChildOptions
    ) -> Coroutine[None, None, Child[Any]]:
        """Submit one child, once in the life of the job."""
        target = Target.of(job)
        key = self._journal.key(target.name if options.name is None else options.name)
        return self._journal.promised(key, self._spawned(key, target, arguments, options))

    def call(
        self, job: object, arguments: Mapping[str, Any], options: ChildOptions
    ) -> Coroutine[None, None, Any]:
        """Submit one child and await its result."""
        target = Target.of(job)
        key = self._journal.key(target.name if options.name is None else options.name)
        result_key = self._journal.key(_result_name(key))

        is_spawned = False

        async def called() -> Any:
            nonlocal is_spawned
            if not is_spawned:  # `ctx.first` looks at it again and again
                await self._spawned(key, target, arguments, options)
                is_spawned = True
            return await self._result(key, result_key, target)

        self._contends(key, called, ends=result_key, step=key)
        return self._journal.promised(key, called())

    def submit(
        self, job: object, arguments: Mapping[str, Any], options: ChildOptions
    ) -> Coroutine[None, None, UUID]:
        """Submit one child that nobody waits for."""
        target = Target.of(job)
        key = self._journal.key(target.name if options.name is None else options.name)

        async def submitted() -> UUID:
            return (await self._spawned(key, target, arguments, options)).id

        return self._journal.promised(key, submitted())

    def map(
        self,
        job: object,
        items: Iterable[Any],
        shared: Mapping[str, Any],
        *,
        concurrency: int,
        options: ChildOptions,
    ) -> "ChildMap[Any]":
        """Submit one child for each item, and iterate over their results in order."""
        target = Target.of(job)
        check_whole("concurrency", concurrency, 1, CONCURRENCY_MAX, is_optional=False)
        payloads = self._payloads(target, items, shared)
        key = self._journal.key(target.name if options.name is None else options.name)
        begin = self._journal.promised(
            key, self._mapped(key, target, payloads, options, concurrency=concurrency)
        )
        take = partial(self._chunk, key, count=len(payloads), concurrency=concurrency)
        value_of = partial(_value_of, step=key, target=target)
        return ChildMap(key, begin, take, len(payloads), value_of)

    def _contends(
        self, key: str, look: Callable[[], Coroutine[Any, Any, Any]], *, ends: str, step: str
    ) -> None:
        self._attempt.contenders[key] = Contender(WaitKind.CHILD, look, ends, step)

    # --- submission

    def _payloads(
        self, target: Target, items: Iterable[Any], shared: Mapping[str, Any]
    ) -> list[str]:
        if not isinstance(items, Iterable):
            raise UsageError(
                f"items for job type {target.name!r} are {items!r:.80}, nothing to iterate over",
                hint="give a list, or gather them in a step",
            )
        given = list(islice(items, CHILDREN_MAX + 1))  # a generator may have no end
        if len(given) > CHILDREN_MAX:
            raise UsageError(
                f"a map over job type {target.name!r} has more than {CHILDREN_MAX:,} items",
                hint="map over parts of them, each in a child of its own",
            )
        if target.job is None:
            return [target.payload({**_by_name(target, each), **shared}) for each in given]
        name = target.first_argument()
        if name in shared:
            raise UsageError(f"{name!r} of job type {target.name!r} is given by each item")
        return [target.payload({name: each, **shared}) for each in given]

    async def _spawned(
        self, key: str, target: Target, arguments: Mapping[str, Any], options: ChildOptions
    ) -> Child[Any]:
        payload = target.payload(arguments)
        given = _call_input(target, payload)
        terms = options.terms(target.name, traceparent=self._attempt.traceparent(key))

        async def submit() -> StepOutcome:
            await self._journal.settled(key)
            await self._submit(key, [payload], terms, concurrency=1)
            (child,) = await self._children.ids(self._attempt.claim, step=key, first=0, limit=1)
            return StepOutcome(value={"child": str(child)})

        stored = await self._journal.once(StepKind.CHILD, key, given=given, run=submit)
        child_id = self._journal.restored(key, lambda: UUID(stored["child"]))

        def ended() -> Coroutine[None, None, Any]:
            result_key = self._journal.key(_result_name(key))
            look = partial(self._result, key, result_key, target)
            self._contends(result_key, look, ends=result_key, step=key)
            return self._journal.promised(result_key, look())

        return Child(child_id, ended)

    async def _mapped(
        self,
        key: str,
        target: Target,
        payloads: list[str],
        options: ChildOptions,
        *,
        concurrency: int,
    ) -> None:
        terms = options.terms(target.name, traceparent=self._attempt.traceparent(key))

        async def submit() -> StepOutcome:
            await self._journal.settled(key)
            if payloads:
                await self._submit(key, payloads, terms, concurrency=concurrency)
            return StepOutcome(value={"children": len(payloads)})

        given = _map_input(target, payloads)
        await self._journal.once(StepKind.CHILD, key, given=given, run=submit)

    async def _submit(
        self, key: str, payloads: list[str], terms: ChildTerms, *, concurrency: int
    ) -> None:
        for first in range(0, len(payloads), SUBMIT_MAX):
            part = payloads[first : first + SUBMIT_MAX]
            is_last = first + SUBMIT_MAX >= len(payloads)
            reply = await self._submit_part(
                key, part, terms, first=first, let_go=concurrency if is_last else None
            )
            match reply.verdict:
                case "done":
                    continue
                case "lease_lost":
                    raise _lost()
                case "too_deep":
                    raise UsageError(
                        f"step {key!r}: job {self._attempt.job_id} has {reply.ordinal} jobs above "
                        "it, as many as there may be",
                        hint=f"does {terms.type!r} submit itself without end?",
                    )
                case "ancestor":
                    raise UsageError(f"step {key!r}: a job cannot be a child of its own children")
                case "other":
                    raise self._journal.diverges(
                        DivergedError(
                            f"child {reply.ordinal} of step {key!r} was submitted before with "
                            "other arguments",
                            hint="compute them in steps of their own, which a replay repeats",
                        )
                    )
                case "busy":
                    raise UnavailableError(f"the children of step {key!r} end all the time")

    async def _submit_part(
        self, key: str, part: list[str], terms: ChildTerms, *, first: int, let_go: int | None
    ) -> SpawnReply:
        for _ in range(BUSY_MAX):
            reply = await self._children.spawn(
                self._attempt.claim,
                step=key,
                first=first,
                payloads=part,
                terms=terms,
                let_go=let_go,
            )
            if reply.verdict != "busy":
                return reply
            await trio.sleep(BUSY_S)
        return SpawnReply(verdict="busy")

    # --- waiting

    async def _result(self, step: str, key: str, target: Target) -> Any:
        async def wait() -> StepOutcome:
            return _recorded(await self._ended(step, first=0, wanted=1, count=1, concurrency=1))

        given = input_of({"children of": step}, what=f"input of {key!r}")
        stored = await self._journal.once(StepKind.CHILD, key, given=given, run=wait)
        return _value_of(self._journal.restored(key, lambda: stored["outcomes"][0]), step, target)

    async def _chunk(self, step: str, first: int, *, count: int, concurrency: int) -> list[Any]:
        """Return the next recorded outcomes of a map, as many as have ended."""
        key = self._journal.key(_result_name(step))
        wanted = min(count - first, max(concurrency, first // GROWTH), TAKEN_MAX)

        async def wait() -> StepOutcome:
            ended = await self._ended(
                step, first=first, wanted=wanted, count=count, concurrency=concurrency
            )
            return _recorded(ended)

        given = input_of({"children of": step, "first": first}, what=f"input of {key!r}")
        stored = await self._journal.once(StepKind.CHILD, key, given=given, run=wait)
        return self._journal.restored(key, lambda: list(stored["outcomes"]))

    async def _ended(
        self, step: str, *, first: int, wanted: int, count: int, concurrency: int
    ) -> list[ChildOutcome]:
        """Return the outcomes of children from `first` on; raise the wish to wait for `wanted`."""
        claim = self._attempt.claim
        for _ in range(BUSY_MAX):
            limit = min(count - first, TAKEN_MAX)
            found = await self._children.outcomes(claim, step=step, first=first, limit=limit)
            ended = list(takewhile(lambda each: not each.is_left, found))
            if len(ended) >= wanted or (ended and await self._has_more(step, first + len(ended))):
                return ended
            if claim.lineage_id is None:
                break
            # An earlier job of the lineage has ended, and its children with it.
            verdict = await self._children.adopt(
                claim, step=step, first=first + len(ended), let_go=concurrency
            )
            if verdict == "lease_lost":
                raise _lost()
            if verdict in ("done", "wait"):
                break
            await trio.sleep(BUSY_S)
        which = "child" if count == 1 else f"children {first + 1:,} to {first + wanted:,}"
        raise Suspended(
            f"{CHILD}{step}"[:WAITING_ON_MAX],
            f"waits for {which}{'' if count == 1 else f' of {count:,}'} of step {step!r}",
            delay_s=None,
            waits=(ChildrenWait(step=step, upto=first + wanted),),
        )

    async def _has_more(self, step: str, first: int) -> bool:
        """Return whether more have ended, which were too large to be read with those before."""
        claim = self._attempt.claim
        more = await self._children.outcomes(claim, step=step, first=first, limit=1)
        return bool(more)


class ChildMap(AsyncIterator[R]):
    """The results of a map's children, in the order of their items: `async for`, once."""

    def __init__(
        self,
        key: str,
        begin: Coroutine[None, None, None],
        take: Callable[[int], Coroutine[None, None, list[Any]]],
        count: int,
        value_of: Callable[[Any], R],
    ) -> None:
        self._key = key
        self._begin: Coroutine[None, None, None] | None = begin
        self._take = take
        self._count = count
        self._value_of = value_of
        self._taken = 0
        self._ready: deque[Any] = deque()
        self._has_ended = False

    def __aiter__(self) -> Self:
        if self._has_ended:
            raise UsageError(
                f"the results of map {self._key!r} have been taken",
                hint="keep them: results = [each async for each in ctx.map(…)]",
            )
        return self

    def __len__(self) -> int:
        return self._count

    async def __anext__(self) -> R:
        if self._begin is not None:
            begin, self._begin = self._begin, None
            await begin
        if not self._ready:
            if self._taken >= self._count:
                self._has_ended = True
                raise StopAsyncIteration
            ended = await self._take(self._taken)
            self._taken += len(ended)
            self._ready.extend(ended)
        return self._value_of(self._ready.popleft())


def _result_name(key: str) -> str:
    return f"{key[:RESULT_NAME_MAX]} result"


def _lost() -> LeaseLost:
    return LeaseLost("the job is owned by another attempt")


def _by_name(target: Target, item: object) -> Mapping[str, Any]:
    if not isinstance(item, Mapping):
        raise UsageError(
            f"an item for job type {target.name!r} is not a mapping of arguments by name: "
            f"{item!r:.80}",
            hint="map a job type by its function: then an item is its first argument",
        )
    return item


def _call_input(target: Target, payload: str) -> StepInput:
    text = b'{"arguments":%b,"job":%b}' % (payload.encode(), orjson.dumps(target.name))
    return input_of_json(text)


def _map_input(target: Target, payloads: Sequence[str]) -> StepInput:
    """Return the input of a map: the record keeps its first item and how many there are."""
    whole = hashlib.blake2b(digest_size=16)
    for each in payloads:
        whole.update(each.encode() + b"\0")
    shown = {
        "job": target.name,
        "items": len(payloads),
        "digest": whole.hexdigest(),
        "first": None if not payloads else decode(payloads[0]),
    }
    return input_of(shown, what=f"input of a map of {target.name!r}")


def _recorded(ended: Sequence[ChildOutcome]) -> StepOutcome:
    """Return what the record keeps of how children ended; `has_failed` as the database reads it."""
    outcomes: list[dict[str, Any]] = []
    for each in ended:
        known = {"child": str(each.job_id), "status": each.status}
        if each.is_completed:
            outcomes.append({**known, "result": decode(each.result)})
        else:
            failed = {
                "error": each.error,
                "code": each.error_code,
                "class": each.error_class,
                "by": each.by,
                "reason": each.reason,
            }
            outcomes.append({**known, **{k: v for k, v in failed.items() if v is not None}})
    has_failed = not all(each.is_completed for each in ended)
    return StepOutcome(value={"outcomes": outcomes, "has_failed": has_failed})


def _value_of(outcome: Mapping[str, Any], step: str, target: Target) -> Any:
    """Return a child's result in its declared type. Raises `ChildFailedError`."""
    if outcome["status"] == JobStatus.COMPLETED:
        if target.result is None:
            return outcome["result"]
        return target.result.restore(outcome["result"], f"result of child {outcome['child']}")
    job_id = UUID(outcome["child"])
    if outcome["status"] == JobStatus.CANCELLED:
        by = f" by {outcome['by']}" if "by" in outcome else ""
        reason = f": {outcome['reason']}" if "reason" in outcome else ""
        message = f"child {job_id} of step {step!r} was cancelled{by}{reason}"
        hint = None
    else:
        message = f"child {job_id} of step {step!r} failed: {outcome.get('error')}"
        hint = f"look at it, and retry it: cortex dead show {job_id}"
    raise ChildFailedError(
        message,
        hint=hint,
        job_id=job_id,
        status=outcome["status"],
        error=outcome.get("error"),
        error_code=outcome.get("code"),
        error_class=outcome.get("class"),
        by=outcome.get("by"),
        reason=outcome.get("reason"),
    )
