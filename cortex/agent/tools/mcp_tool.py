"""Tools of MCP servers, planned, approved and recorded as the pod's own are."""

import contextvars
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Final

import attrs
import trio

from cortex.agent.mcp import content, schemas
from cortex.agent.mcp.catalogue import ToolDefinition
from cortex.agent.mcp.http import NOT_SENT
from cortex.agent.mcp.questions import InputRequiredError, Question
from cortex.agent.mcp.session import Session
from cortex.agent.mcp.sessions import Sessions, Wanted
from cortex.agent.mcp.stdio import TOO_LONG
from cortex.agent.mcp.terms import McpServer
from cortex.agent.plain import plain, raw_text
from cortex.agent.secrets import Secrets
from cortex.agent.tools.effect_rule import Declared, EffectRule
from cortex.agent.tools.tool import AnyTool, ToolContext, ToolInputError
from cortex.domain.approvals.rules import ToolMark
from cortex.domain.classification import describe
from cortex.domain.effect import NotSentError, UnsettledError
from cortex.domain.errors import (
    CortexError,
    InvalidOutputError,
    RejectedError,
    TimedOutError,
    UnavailableError,
)
from cortex.domain.log_line import Level
from cortex.domain.model import INVALID_INPUT
from cortex.domain.redaction import clean_text
from cortex.durable.job_log import write_line
from cortex.durable.json_schema import Schema
from cortex.durable.resources import Resources
from cortex.durable.structuring import Problem, show

REFUSED: Final = frozenset({-32_600, -32_601, -32_602})
"""Codes of JSON-RPC for a request that was not carried out: invalid, unknown, unfit."""
UNFIT_RESULT: Final = ("no structured content was provided", "Invalid structured content for tool")
"""How many servers refuse a call that was carried out: the SDK of TypeScript checks the result of
a tool, and answers with the code for unfit arguments."""
CLOSED: Final = -32_000
"""The library's code for a call whose session has ended."""
CLOSED_S: Final = 5.0
FORGOTTEN: Final = "Session terminated"
"""The library's message for a server over HTTP that does not know its session: status 404."""
PROGRESS_CHARS_MAX: Final = 500


def breaker_of(agent: str, server: str) -> str:
    """Return the breaker of a server: another agent may give its name to another server."""
    return f"mcp:{agent}/{server}"


class McpToolError(InvalidOutputError):
    """The tool ran and says that it has failed; what it has changed before, nobody knows better."""

    code = "mcp_tool_failed"


@attrs.frozen(kw_only=True)
class McpTool:
    """A tool of a server, with the interface of `Tool` as far as the toolbox uses it."""

    definition: ToolDefinition
    agent: str
    """Whose server it is."""
    terms: McpServer
    sessions: Sessions
    tenant: str
    secrets: Secrets
    notice: Callable[[Session, ToolDefinition], Awaitable[None]]
    """Records what the server says now, before a call that only reads."""
    answers: Mapping[str, Any] = attrs.field(factory=dict)
    """Of people, to what the server asks, by the question's digest."""
    stand_in: AnyTool | None = None
    """In tests, what is called in place of the server."""
    is_required: bool = False

    @property
    def name(self) -> str:
        return self.definition.dotted

    @property
    def input_schema(self) -> Schema:
        """The schema by which people may edit arguments."""
        return {"properties": {}, **schemas.editable(self.definition.input_schema)}

    @property
    def timeout_s(self) -> float:
        return self.terms.timeout

    @property
    def only_reads(self) -> bool:
        """It changes nothing outside, by the agent's word, or by that of a server it trusts."""
        return self.terms.only_reads(self.definition.name) or (
            self.terms.trusted and self.definition.read_only
        )

    @property
    def declared(self) -> Declared:
        return Declared(
            effect=not self.only_reads,
            idempotent=self.terms.trusted and self.definition.idempotent,
            mark=ToolMark(
                effect=f"calls {self.definition.name} of MCP server {self.definition.server}"
            ),
        )

    def parse(self, given: Mapping[str, object]) -> dict[str, Any]:
        """Return the arguments. Raises `ToolInputError` if they do not fit the server's schema."""
        if INVALID_INPUT in given:
            text = str(given[INVALID_INPUT])
            problem = Problem((), f"is not a JSON object: {show(text)}")
            raise ToolInputError(self.name, (problem,), raw=raw_text(text))
        arguments = dict(given)
        if self.stand_in is not None:
            self.stand_in.parse(arguments)
            return arguments
        what = f"the input schema of {self.name}"
        if problems := schemas.problems(self.definition.input_schema, arguments, what=what):
            raise ToolInputError(self.name, problems, raw=raw_text(arguments))
        return arguments

    def effect_of(self, arguments: Any) -> EffectRule | None:
        return self.declared.rule(self.name, arguments)

    def canonical(self, arguments: Any) -> dict[str, Any]:
        return {name: plain(value) for name, value in arguments.items()}

    def breaker_name(self, arguments: Any) -> str:  # noqa: ARG002 -- as of other tools
        """The breaker of the server: its tools fail together."""
        return breaker_of(self.agent, self.definition.server)

    async def invoke(
        self,
        context: ToolContext,
        arguments: Any,
        *,
        timeout_s: float | None = None,
        resources: Resources | None = None,
    ) -> object:
        """Call the tool; `timeout_s` replaces the limit of its server.

        Raises:
            TimedOutError: the call took longer; it is cancelled at the server.
            InputRequiredError: the server asks something that a person has to answer.
            McpToolError: the tool says that it has failed.
            InvalidOutputError: its result does not fit its schema, or is too large.
            RejectedError: the server refused the call.
            NotSentError: the server cannot be used now.
            UnavailableError: it ended meanwhile.
        """
        limit_s = self.timeout_s if timeout_s is None else timeout_s
        if self.stand_in is not None:
            given = self.stand_in.parse(arguments)
            return await self.stand_in.invoke(
                context, given, timeout_s=limit_s, resources=resources
            )
        wanted = Wanted(
            name=self.definition.server,
            terms=self.terms,
            tenant=self.tenant,
            secrets=self.secrets,
            workspace=context.workspace,
            folder=context.folder,
        )
        session = None
        with trio.move_on_after(limit_s):
            try:
                async with self.sessions.lend(wanted) as session:
                    if self.only_reads:  # for any other call, that was done when it was planned
                        await self.notice(session, self.definition)
                    result, asked = await self._called(session, arguments)
                    if asked:
                        raise InputRequiredError(self.name, asked[0])
                    return self._result(result)
            except (UnavailableError, TimedOutError) as error:
                if session is not None:
                    raise
                why = f"tool {self.name!r} was not called: {error.message}"
                raise NotSentError(why, hint=error.hint) from error
        if session is None:
            text = (
                f"tool {self.name!r} was not called: its server was not ready within {limit_s:g} s"
            )
            raise NotSentError(text, hint="give it more time: `timeout` of the server")
        raise TimedOutError(
            f"tool {self.name!r} timed out after {limit_s:g} seconds", scope="call", limit_s=limit_s
        )

    async def _called(self, session: Session, arguments: Any) -> tuple[Any, list[Question]]:
        try:
            # Its progress arrives in a task of the session: the job's own context names its log.
            on_progress = partial(_progress, contextvars.copy_context())
            return await session.call(
                self.definition.name, arguments, on_progress=on_progress, answers=self.answers
            )
        except CortexError:
            raise
        except Exception as error:
            refusal = getattr(error, "error", None)  # the library's `ErrorData`
            if refusal is None:
                raise self._odd(error) from error
            if refusal.code == NOT_SENT:
                text = f"tool {self.name!r}: MCP server {self.definition.server!r}"
                raise NotSentError(f"{text} {refusal.message}", hint="try again later") from error
            if refusal.code == CLOSED:  # the session knows why
                with trio.move_on_after(CLOSED_S):
                    await session.end.wait()  # noqa: ASYNC120 -- bounded
            if session.error is not None:
                why = f"tool {self.name!r}: {session.error.message}"
                raise UnavailableError(why, hint=session.error.hint) from error
            if refusal.message == FORGOTTEN and self.terms.url is not None:
                session.close()  # the next call begins another
                text = f"tool {self.name!r}: MCP server {self.definition.server!r} has restarted"
                raise NotSentError(text, hint="call it again") from error
            raise self._refused(refusal.code, clean_text(refusal.message)) from error

    def _odd(self, error: Exception) -> InvalidOutputError:
        return InvalidOutputError(
            f"tool {self.name!r}: its server's answer is not one of the protocol",
            hint="update the server",
            raw=raw_text(describe(error)),
        )

    def _refused(self, code: int, text: str) -> CortexError:
        """Return the error that a server answers with as one line that names the tool."""
        if code == TOO_LONG:
            message = f"tool {self.name!r} {text}; its result is lost"
            return InvalidOutputError(message, hint="ask for less at once", raw="")
        if code in REFUSED and any(each in text for each in UNFIT_RESULT):
            message = f"tool {self.name!r} ran, and its server took its result for unfit: {text}"
            return InvalidOutputError(message, hint="update the server", raw=raw_text(text))
        if code in REFUSED:
            return RejectedError(f"tool {self.name!r} was refused by its server: {text}")
        return UnsettledError(f"tool {self.name!r}: its server failed: {text}")

    def _result(self, result: Any) -> object:
        if result.is_error:
            text = content.text_of(result)
            raise McpToolError(
                f"tool {self.name!r} failed: {clean_text(text) or 'without a reason'}",
                raw=raw_text(text),
            )
        schema, structure = self.definition.output_schema, result.structured_content
        if schema is not None:
            if structure is None:
                raise InvalidOutputError(
                    f"tool {self.name!r} returned no structure, although it declares one",
                    hint="update the server, or leave the tool out",
                    raw=raw_text(content.text_of(result)),
                )
            what = f"the output schema of {self.name}"
            if problems := schemas.problems(schema, structure, what=what):
                first = problems[0]
                raise InvalidOutputError(
                    f"tool {self.name!r}: {first.field or 'the result'} {first.reason}",
                    hint="its result must fit the schema that its server declares",
                    raw=raw_text(structure),
                )
        return plain(content.output_of(result))


async def _progress(
    job: contextvars.Context, progress: float, total: float | None, message: str | None
) -> None:
    """Write a call's progress to the log of its job."""
    share = f"{progress / total:.0%}" if total else f"{progress:g}"
    text = clean_text(f"{share} {message or ''}".strip(), limit=PROGRESS_CHARS_MAX)
    job.run(write_line, f"progress: {text}", Level.INFO, {})


def described(server: str, tool: AnyTool) -> ToolDefinition:
    """Return what a server would say that had a pod's tool."""
    return ToolDefinition(
        server=server,
        name=tool.name,
        description=tool.description,
        input_schema=tool.input_schema,
        read_only=tool.declared.effect is False,
        idempotent=tool.declared.idempotent is True,
    )
