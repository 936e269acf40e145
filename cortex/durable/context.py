"""The context that a job's handler works with: its steps, model calls, tool calls, concurrency.

A handler is ordinary async code. Whatever it must not do twice it does through its context; after
a crash it runs again from its top, on any pod, and finds what it did before.
"""

from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar
from uuid import UUID

import attrs
import trio

from cortex.domain.errors import TimedOutError
from cortex.domain.job import Claim, StepKind
from cortex.domain.model import ModelRequest, ModelResponse
from cortex.domain.usage import Usage
from cortex.durable.codec import digest_of
from cortex.durable.journal import Journal, Outcome

T = TypeVar("T")


class Models(Protocol):
    """Answers model requests; given by the pod."""

    async def respond(self, request: ModelRequest) -> Outcome:
        """Return an outcome whose value is a `ModelResponse`, with usage and cost."""


class Tools(Protocol):
    """Describes and calls tools by name; given by the pod."""

    def offer(self, names: Sequence[str]) -> list[dict[str, Any]]:
        """Describe these tools as a model is told: name, description, input_schema."""

    async def call(
        self,
        ctx: "Context",
        name: str,
        arguments: Mapping[str, Any],
        *,
        call_id: str,
        folder: Path | None,
    ) -> Any:
        """Return the tool's result as plain JSON, or raise what the tool raised."""


class AgentSpecs(Protocol):
    """Finds the specification of an agent's version; given by the pod."""

    async def spec(self, agent_id: UUID, version: int) -> dict[str, Any]:
        """Return the specification as plain JSON."""


@attrs.frozen(kw_only=True)
class Services:
    """What the pod lends to the contexts of its jobs."""

    models: Models
    tools: Tools
    agents: AgentSpecs
    workspaces: Path
    """Folder that holds one folder for each job's files."""


class Context:
    """One attempt of one job, as its handler sees it."""

    def __init__(self, claim: Claim, journal: Journal, services: Services) -> None:
        self._claim = claim
        self._journal = journal
        self.services = services

    @property
    def job_id(self) -> UUID:
        """The job."""
        return self._claim.lease.job_id

    @property
    def attempt(self) -> int:
        """Number of this attempt, from 1; raised whenever the job is started again."""
        return self._claim.lease.attempt

    @property
    def usage(self) -> Usage:
        """Tokens that the job used so far, in all its attempts."""
        return self._journal.usage

    @property
    def cost_usd(self) -> Decimal:
        """What the job cost so far, as far as prices are known."""
        return self._journal.cost_usd

    @property
    def workspace(self) -> Path:
        """Folder of this job's own files; may not exist yet, and not on another machine."""
        return self.services.workspaces / str(self.job_id)

    async def agent_spec(self) -> dict[str, Any] | None:
        """Return the specification of the agent version that the job was submitted with."""
        claim = self._claim
        if claim.agent_id is None or claim.agent_version is None:
            return None
        return await self.services.agents.spec(claim.agent_id, claim.agent_version)

    def step(
        self,
        name: str,
        function: Callable[..., Awaitable[Any]],
        *args: Any,
        timeout: float | None = None,
        **kwargs: Any,
    ) -> Coroutine[Any, Any, Any]:
        """Run `await function(*args, **kwargs)` once in the life of the job; return its result.

        Arguments and result are JSON or attrs classes; the result comes back as plain JSON.
        `timeout` is in seconds and raises `TimedOutError`. A name used again becomes `name#2`.
        """
        key = self._journal.key(name)
        digest = digest_of(_name(function), args, kwargs, what=f"input of step {key!r}")

        async def run() -> Outcome:
            return Outcome(value=await within(timeout, f"step {key!r}", function, *args, **kwargs))

        return self._journal.once(StepKind.STEP, key, digest=digest, run=run)

    def llm(
        self,
        name: str,
        *,
        model: str,
        messages: Sequence[Mapping[str, Any]],
        system: str = "",
        tools: Sequence[Mapping[str, Any]] = (),
        max_tokens: int = 4096,
    ) -> Coroutine[Any, Any, ModelResponse]:
        """Ask a model once in the life of the job; return its finished response.

        The response is in the record before this returns: it is never paid for twice.
        """
        request = ModelRequest(
            model=model,
            messages=tuple(messages),
            system=system,
            tools=tuple(tools),
            max_tokens=max_tokens,
        )
        digest = digest_of(request, what=f"input of model call {name!r}")
        return self.ask(name, request, digest=digest)

    def ask(
        self, name: str, request: ModelRequest, *, digest: bytes
    ) -> Coroutine[Any, Any, ModelResponse]:
        """Ask a model once; `digest` stands for the request, whose transcript may be long."""
        key = self._journal.key(name)
        respond = partial(self.services.models.respond, request)

        async def answer() -> ModelResponse:
            found = await self._journal.once(StepKind.MODEL, key, digest=digest, run=respond)
            return ModelResponse.from_json(found)

        return answer()

    def tool(
        self,
        name: str,
        tool: str,
        arguments: Mapping[str, Any],
        *,
        folder: Path | None = None,
        on_error: Callable[[Exception], Any] | None = None,
    ) -> Coroutine[Any, Any, Any]:
        """Call a tool once in the life of the job; return its result as plain JSON.

        `folder` is where the tool reads, the job's workspace by default. What the tool raises is
        raised and not recorded, unless `on_error` makes a result of it, which is.
        """
        key = self._journal.key(name)
        digest = digest_of(tool, arguments, what=f"input of tool call {key!r}")

        async def run() -> Outcome:
            try:
                result = await self.services.tools.call(
                    self, tool, arguments, call_id=f"{self.job_id}/{key}", folder=folder
                )
            except Exception as error:
                if on_error is None:
                    raise
                result = on_error(error)
            return Outcome(value=result)

        return self._journal.once(StepKind.TOOL, key, digest=digest, run=run)

    async def gather(self, *awaitables: Awaitable[Any]) -> list[Any]:
        """Await all of them concurrently and return their results in order.

        The first one that fails cancels the others, and its error is raised as it is; several
        that fail at the same moment are raised as an exception group.
        """
        results: list[Any] = [None] * len(awaitables)

        async def keep(index: int, awaitable: Awaitable[Any]) -> None:
            results[index] = await awaitable

        try:
            async with trio.open_nursery() as nursery:
                for index, awaitable in enumerate(awaitables):
                    nursery.start_soon(keep, index, awaitable)
        except BaseExceptionGroup as group:
            if len(group.exceptions) == 1:
                raise group.exceptions[0] from None  # noqa: ASYNC123 -- as it was raised
            raise
        return results


async def within(
    timeout_s: float | None,
    what: str,
    function: Callable[..., Awaitable[T]],
    *args: Any,
    **kwargs: Any,
) -> T:
    """Await a call for at most so many seconds, or raise `TimedOutError` that names it."""
    if timeout_s is None:
        return await function(*args, **kwargs)
    with trio.move_on_after(timeout_s):
        return await function(*args, **kwargs)
    raise TimedOutError(f"{what} took longer than {timeout_s:g} seconds")


def _name(function: Callable[..., Any]) -> str:
    return getattr(function, "__qualname__", type(function).__qualname__)
