"""One conversation with a server, in a task of its own, for the calls of many jobs.

Owns the program or the connections. Invariant: once `end` is set, nothing of the server is left
here, and every call of the session has returned or raised. On failure: whatever the server does,
the task ends quietly with a reason, and the pod goes on. On stop: `close` ends it; each wait on the
way has a bound.
"""

import contextvars
import errno
import importlib
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import attrs
import trio

from cortex.agent.confinement.means import Confiner
from cortex.agent.confinement.quota import Quota
from cortex.agent.confinement.served import NOT_STARTED, Served, served, unseen
from cortex.agent.mcp import http, stdio
from cortex.agent.mcp.catalogue import LISTED_BYTES_MAX, LISTED_MAX
from cortex.agent.mcp.folders import held_folder
from cortex.agent.mcp.library_logs import bound_library_logs
from cortex.agent.mcp.questions import OpenCall, Question
from cortex.agent.mcp.terms import SECRET, WORKSPACE, McpServer
from cortex.agent.secrets import Secrets
from cortex.domain.classification import describe, leaves
from cortex.domain.confinement import Confinement
from cortex.domain.effect import NotSentError
from cortex.domain.errors import (
    CortexError,
    RejectedError,
    TimedOutError,
    UnavailableError,
    UsageError,
)
from cortex.domain.redaction import clean_text
from cortex.logger import Logger

if TYPE_CHECKING:
    from mcp.client._transport import TransportStreams
    from mcp.client.session import ClientSession

START_S: Final = 60.0
"""From its start to the list of its tools: some servers install themselves first."""
LIST_S: Final = 30.0
"""For its tools, after it has said that they changed."""
EXIT_S: Final = 1.0
"""For a program that has closed its output to say how it ended."""
LEAVE_S: Final = 3.0
POLL_S: Final = 1.0
REASON_CHARS_MAX: Final = 300
MISSING: Final = "MCP servers need a package that is not installed"
EXTRA: Final = "pip install 'cortex-durable[mcp]'"

_log = Logger(__name__)


@attrs.frozen(kw_only=True)
class Place:
    """Where a server works: the job's folders, or a folder of its own that goes with it."""

    workspace: Path | None = None
    folder: Path | None = None


@attrs.define(eq=False, kw_only=True)
class Session:
    """The conversation; `name` is what people call its server."""

    name: str
    terms: McpServer
    secrets: Secrets
    confiner: Confiner
    quota: Quota
    place: Place
    idle_s: float
    """Without a call for that long, it ends."""
    listed: tuple[Any, ...] = ()
    """The tools that the server offers, as the library has them."""
    is_listed_anew: bool = False
    """The server has said that its tools changed."""
    noted: set[str] = attrs.field(factory=set)
    """The agents for which the list was recorded."""
    ready: trio.Event = attrs.field(factory=trio.Event)
    """It may be used, or has ended."""
    end: trio.Event = attrs.field(factory=trio.Event)
    error: CortexError | None = None
    """Why it ended, or could not begin."""
    users: int = 0
    used_at: float = attrs.field(factory=trio.current_time)
    _listing: trio.Lock = attrs.field(factory=trio.Lock)
    _calls: set[OpenCall] = attrs.field(factory=set)
    _library: "ClientSession | None" = None
    _reason: str = ""
    """Why its program's output ended."""
    _closing: trio.Event = attrs.field(factory=trio.Event)
    _is_over: trio.Event = attrs.field(factory=trio.Event)
    _scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    _trouble: http.Trouble = attrs.field(factory=http.Trouble)

    def start(self) -> None:
        """Begin, in a task that belongs to no job."""
        name = f"MCP server {self.name!r}"
        trio.lowlevel.spawn_system_task(self._run, name=name, context=contextvars.Context())

    def close(self) -> None:
        """Let it take leave of its server, for `LEAVE_S` at most; calls under way fail."""
        self._closing.set()
        if self._library is None:
            self._scope.cancel()
        else:
            self._scope.deadline = min(self._scope.deadline, trio.current_time() + LEAVE_S)

    @property
    def has_ended(self) -> bool:
        return self._closing.is_set() or self.end.is_set()

    @property
    def was_closed(self) -> bool:
        """It did not end by a failure."""
        return self._closing.is_set()

    async def _run(self) -> None:
        started = trio.current_time()
        try:
            with self._scope:
                await self._converse()
        except BaseException as error:  # noqa: ASYNC103 -- a system task must not raise
            errors = [each for each in leaves(error) if not isinstance(each, trio.Cancelled)]
            if not errors:  # the process ends
                self.close()
                raise
            self.error = self._error_of(errors)
        finally:
            if self.error is None:
                reason = self._reason or "was closed"
                self.error = UnavailableError(f"MCP server {self.name!r} {reason}")
            if not self.was_closed:
                took_s = round(trio.current_time() - started, 1)
                _log.warning(
                    "MCP server ended", server=self.name, error=self.error.message, after_s=took_s
                )
            self.ready.set()
            self.end.set()

    async def _converse(self) -> None:
        await trio.to_thread.run_sync(_load)
        with trio.move_on_after(START_S) as start:
            async with self._streams() as (from_server, to_server):
                async with self._session(from_server, to_server) as library:
                    await library.initialize()
                    self.listed = await self._list(library)
                    start.deadline = float("inf")
                    self._library = library
                    self.ready.set()
                    await self._until_idle()
        if start.cancelled_caught:
            raise TimedOutError(
                f"MCP server {self.name!r} was not ready within {START_S:g} seconds",
                hint="look at what it waits for: cortex doctor",
                scope="connect",
                limit_s=START_S,
            )

    async def _until_idle(self) -> None:
        while not self._closing.is_set():
            left_s = self.used_at + self.idle_s - trio.current_time()
            if left_s <= 0 and not self.users:
                self._closing.set()
            with trio.move_on_after(max(left_s, POLL_S)):
                await self._closing.wait()

    @asynccontextmanager
    async def _session(self, from_server: Any, to_server: Any) -> "AsyncIterator[ClientSession]":
        import mcp_types as types  # noqa: PLC0415 -- with the library only
        from mcp.client.session import ClientSession  # noqa: PLC0415

        session = ClientSession(
            from_server,
            to_server,
            message_handler=self._heard,
            elicitation_callback=self._elicited,
            client_info=types.Implementation(name="cortex", version="1"),
        )
        async with session:
            yield session

    async def _elicited(self, context: Any, params: Any) -> Any:  # noqa: ARG002 -- by name
        """Answer a question of the server if the call has the answer; else nobody answers now.

        Questions do not say which call they are for: with several under way, nobody is asked.
        """
        import mcp_types as types  # noqa: PLC0415 -- with the library only

        await trio.lowlevel.checkpoint()
        question = Question.of(self.name, params)
        if question is None or len(self._calls) != 1:
            return types.ElicitResult(action="decline")
        (call,) = self._calls
        if question.digest in call.answers:
            return types.ElicitResult(action="accept", content=call.answers[question.digest])
        call.asked.append(question)
        return types.ElicitResult(action="cancel")

    async def _heard(self, message: Any) -> None:
        if getattr(message, "method", None) == "notifications/tools/list_changed":
            self.is_listed_anew = True
        await trio.lowlevel.checkpoint()

    async def _list(self, library: "ClientSession") -> tuple[Any, ...]:
        import mcp_types as types  # noqa: PLC0415 -- with the library only

        found: list[Any] = []
        size = 0
        cursor: str | None = None
        while len(found) <= LISTED_MAX:
            params = None if cursor is None else types.PaginatedRequestParams(cursor=cursor)
            page = await library.list_tools(params=params)
            found += page.tools
            size += sum(len(each.model_dump_json()) for each in page.tools)
            if size > LISTED_BYTES_MAX:
                most = LISTED_BYTES_MAX >> 20
                message = f"MCP server {self.name!r} describes its tools with over {most} MiB"
                raise RejectedError(message, hint="use a server with fewer tools")
            if not page.next_cursor or page.next_cursor == cursor:
                return tuple(found)
            cursor = page.next_cursor
        message = f"MCP server {self.name!r} lists more than {LISTED_MAX:,} tools"
        raise RejectedError(message, hint="use a server with fewer tools")

    # --- what it runs on

    @asynccontextmanager
    async def _streams(self) -> "AsyncIterator[TransportStreams]":
        if self.terms.url is not None:
            streams = http.message_streams(
                self.terms,
                self.secrets,
                self._trouble,
                quiet_s=self.terms.timeout,
                on_end=self._note,
            )
            async with streams as lent, trio.open_nursery() as nursery:
                nursery.start_soon(self._until_over)
                yield lent
                nursery.cancel_scope.cancel()
            return
        async with self._program() as program:
            try:
                async with (
                    stdio.message_streams(program.stdin, program.stdout, on_end=self._note) as lent,
                    trio.open_nursery() as nursery,
                ):
                    nursery.start_soon(self._until_over)
                    yield lent
                    nursery.cancel_scope.cancel()
            except BaseException:  # whatever followed from the end of its output
                if self._is_over.is_set():
                    raise await self._ended(program) from None  # noqa: ASYNC102, ASYNC104 -- shielded, with a bound
                raise

    def _note(self, reason: str) -> None:
        self._reason = self._reason or reason
        self._is_over.set()

    async def _until_over(self) -> None:
        await self._is_over.wait()
        raise UnavailableError(self._reason)

    async def _ended(self, program: Served) -> CortexError:
        """Return why a conversation ended by itself, with what its program said last."""
        with trio.CancelScope(shield=True):
            how = await program.ending(EXIT_S)
        if how.startswith(NOT_STARTED):
            return self._not_started(how.removeprefix(NOT_STARTED))
        said = clean_text(program.complaint(), limit=REASON_CHARS_MAX)
        reason = how if how and self._reason == stdio.ENDED else self._reason
        return UnavailableError(
            f"MCP server {self.name!r} {reason}" + (f": {said}" if said else ""),
            hint="run its command by hand, and see cortex doctor",
        )

    @asynccontextmanager
    async def _program(self) -> AsyncIterator[Served]:
        with held_folder() as made:
            own = await trio.to_thread.run_sync(_made, made)
            workspace = self.place.workspace or own
            folder = self.place.folder or workspace
            values = {WORKSPACE: str(workspace)}
            argv = [_filled(each, values) for each in self.terms.command or []]
            secret = await trio.to_thread.run_sync(self._environment, values)
            environment = {**self.confiner.environment(), **secret}
            launch = None
            if self.confiner.means is not Confinement.UNSAFE:
                launch = await trio.to_thread.run_sync(
                    partial(
                        self.confiner.launch,
                        workspace=workspace,
                        folder=folder,
                        has_network=self.terms.network,
                        writes=self.terms.folder != "read",
                        environment=environment,
                        quota=self.quota,
                        shown=tuple(map(Path, self.terms.reads)),
                    )
                )
            async with served(
                argv, launch=launch, folder=folder, environment=environment
            ) as program:
                yield program

    def _environment(self, values: Mapping[str, str]) -> dict[str, str]:
        """Return the server's own variables, with their secrets. Reads small files."""

        def value(text: str) -> str:
            return SECRET.sub(lambda match: self.secrets.value(match[1]), _filled(text, values))

        return {name: value(text) for name, text in self.terms.env.items()}

    # --- calls

    async def call(
        self,
        tool: str,
        arguments: Mapping[str, Any],
        *,
        on_progress: Any = None,
        answers: Mapping[str, Any] | None = None,
    ) -> tuple[Any, list[Question]]:
        """Call a tool; return the library's `CallToolResult`, and what nobody could answer.

        Cancelled, it notifies the server. Raises what `_error_of` makes of the library's errors.
        """
        import mcp_types as types  # noqa: PLC0415 -- with the library only
        from pydantic import TypeAdapter  # noqa: PLC0415

        if self._library is None or self.has_ended:
            error = self.error or UnavailableError(f"MCP server {self.name!r} has ended")
            raise NotSentError(error.message, hint=error.hint)
        params = types.CallToolRequestParams(name=tool, arguments=dict(arguments))
        shape: TypeAdapter[Any] = TypeAdapter(types.CallToolResult)
        call = OpenCall(answers or {})
        self._calls.add(call)
        try:
            result = await self._library.send_request(
                types.CallToolRequest(params=params), shape, progress_callback=on_progress
            )
        finally:
            self._calls.discard(call)
        return result, call.asked

    @property
    def is_stale(self) -> bool:
        """The list of tools may be another by now: see `list_anew`."""
        return self.is_listed_anew or self._listing.locked()

    async def list_anew(self) -> None:
        """Ask again for the tools after the server has said that they changed.

        Raises the error of a server that does not list them within `LIST_S`; its session ends.
        """
        async with self._listing:
            if self._library is None or self.has_ended or not self.is_listed_anew:
                return
            self.is_listed_anew = False
            try:
                with trio.fail_after(LIST_S):
                    self.listed = await self._list(self._library)
            except trio.TooSlowError:
                self.close()
                text = f"MCP server {self.name!r} did not list its tools within {LIST_S:g} seconds"
                raise TimedOutError(text, scope="call", limit_s=LIST_S) from None
            except Exception as error:
                self.close()  # the next call begins another
                if isinstance(error, CortexError):
                    raise
                raise self.error or self._error_of([error]) from error
            self.noted.clear()

    def _error_of(self, errors: list[BaseException]) -> CortexError:
        """Return the error of a conversation as one line that names the server."""
        ours = [each for each in errors if isinstance(each, CortexError)]
        lead = self._trouble.error or next(iter(ours), errors[0])
        if isinstance(lead, UsageError):
            return lead
        if isinstance(lead, CortexError):
            if not lead.message.startswith("MCP server"):
                lead.message = f"MCP server {self.name!r} {lead.message}"
            return lead
        if isinstance(lead, OSError) and lead.strerror:
            return self._not_started(lead.strerror)
        text = clean_text(describe(lead).partition("\n")[0], limit=REASON_CHARS_MAX)
        if type(lead).__name__ in ("MCPError", "ValidationError", "RuntimeError"):
            return UnavailableError(f"MCP server {self.name!r} does not speak the protocol: {text}")
        return UnavailableError(f"MCP server {self.name!r} failed: {text}")

    def _not_started(self, reason: str) -> RejectedError:
        command = self.terms.command[0] if self.terms.command else self.terms.url
        message = f"MCP server {self.name!r}: {command!r} cannot be started: {reason}"
        if command and reason == os.strerror(errno.ENOENT):
            hidden = unseen(command, self.terms.reads)
            message += f"; it does not see {hidden[0]}: name a folder under reads" if hidden else ""
        return RejectedError(
            message, hint="it sees the machine's programs, and the folders under `reads`"
        )


def _load() -> None:
    """Import the library. Takes a second; raises `UsageError` without the extra."""
    try:
        for name in ("mcp.client.session", "mcp.client.streamable_http", "jsonschema"):
            importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise UsageError(f"{MISSING}: {error.name}", hint=EXTRA) from error
    bound_library_logs()


def _made(folder: Path) -> Path:
    workspace = folder.resolve() / "workspace"
    workspace.mkdir(0o700)
    folder.chmod(0o711)  # another user of a root pod has to pass
    return workspace


def _filled(text: str, values: Mapping[str, str]) -> str:
    for name, value in values.items():
        text = text.replace(name, value)
    return text
