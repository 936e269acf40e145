"""The tools that a pod provides to its jobs: by name, each call behind its breaker."""

import os
import stat
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import attrs
import trio

from cortex.agent.confinement.interrupted import settle, settle_all
from cortex.agent.confinement.means import Confiner
from cortex.agent.confinement.quota import Quota
from cortex.agent.confinement.terms import CommandTerms
from cortex.agent.mcp.catalogue import ToolDefinition
from cortex.agent.mcp.names import divided
from cortex.agent.mcp.of_jobs import OWNER, JobServers
from cortex.agent.mcp.sessions import Sessions
from cortex.agent.secrets import Secrets
from cortex.agent.spec import TOOL_NAME, AgentSpec
from cortex.agent.tools.effect_rule import EffectRule
from cortex.agent.tools.mcp_tool import McpTool
from cortex.agent.tools.reconcile import asked
from cortex.agent.tools.run_command import run_command
from cortex.agent.tools.server_tools import ServerTools, as_json
from cortex.agent.tools.tool import AnyTool, ToolContext, ToolInputError
from cortex.agent.workspace.fitting import WRITE_S, fitted, keep_text
from cortex.domain.approvals.rules import ApprovalRule, GatedCall, gate_of
from cortex.domain.approvals.rules import Gate as PolicyGate
from cortex.domain.argument_check import misfits
from cortex.domain.control_flow import Unfit
from cortex.domain.effect import Invocation
from cortex.domain.errors import (
    CortexError,
    ForbiddenError,
    MisfitKind,
    RejectedError,
    TimedOutError,
    TransientError,
    UnavailableError,
    UsageError,
)
from cortex.domain.file import File
from cortex.domain.key_shapes import is_long, masked_value
from cortex.durable.attempt import Attempt, EffectTerms, ToolCall, ToolPlan
from cortex.durable.files import files_in, keep_all, referred, without_forged
from cortex.durable.gates import Gate
from cortex.durable.guarding import Guard, guard_of
from cortex.durable.resources import Resources
from cortex.logger import Logger

_log = Logger(__name__)

SPECS_KEPT_MAX: Final = 1000
MASKED_CHARS_MAX: Final = 262_144
"""A longer result is masked in a thread: this takes 5 ms."""
FOLDER: Final = "folder"
ENVIRONMENT: Final = "environment"
_NO_SERVERS: Final = JobServers(servers={}, secrets=Secrets())


@attrs.frozen
class Toolbox:
    """Calls the pod's tools in the workspace of the requesting job."""

    tools: Mapping[str, AnyTool]
    confiner: Confiner = attrs.field(factory=Confiner.chosen)
    """Confines the programs that tools start."""
    quota: Quota = attrs.field(factory=Quota)
    """Of each job's workspace."""
    sessions: Sessions = attrs.field(
        default=attrs.Factory(lambda self: Sessions(self.confiner, self.quota), takes_self=True)
    )
    """Conversations with MCP servers."""
    of_jobs: Mapping[str, JobServers] = attrs.field(factory=dict)
    """The MCP servers that job types declare in code."""
    stand_ins: Mapping[str, Mapping[str, AnyTool]] | None = None
    """In tests, tools by name that take the place of MCP servers, by theirs: no server is used."""
    _kept_specs: dict[tuple[UUID, int], AgentSpec] = attrs.field(
        factory=dict, init=False, repr=False
    )
    """Specifications by agent and version."""

    @property
    def names(self) -> Sequence[str]:
        return sorted(self.tools)

    def offer(self, names: Sequence[str]) -> list[dict[str, Any]]:
        """Describe these tools for a model.

        Raises `Unfit` for one that the pod does not have.
        """
        return [
            {
                "name": tool.name,
                "description": tool.description,
                "input_schema": tool.input_schema,
            }
            for tool in map(self._tool, names)
        ]

    def misfit(self, name: str, arguments: Mapping[str, Any] | None) -> str | None:
        try:
            if divided(name) is not None:
                return None  # a server has it, whichever code runs
            tool = self._tool(name)
            if arguments is not None:
                _parsed(tool, arguments, frozenset())
        except Unfit as error:
            return error.reason
        except RejectedError:
            pass  # whichever code runs
        return None

    def asks(self, name: str) -> bool:
        """Return whether people are asked before its calls, unless an agent's rule permits them."""
        return self._tool(name).declared.mark.approve

    def lasts_over(self, name: str, seconds: float) -> bool:
        """Return whether its time-out is longer; that of a program is the call's to choose."""
        tool = self._tool(name)
        return tool is not run_command and tool.timeout_s > seconds

    def is_required(self, name: str) -> bool:
        """Return whether its failure fails the step that called it."""
        return divided(name) is None and self._tool(name).is_required

    async def plan(self, attempt: Attempt, call: ToolCall) -> ToolPlan:
        """Check a call and plan it, with its effect, gate and breaker.

        Raises `Unfit` for a tool that the pod does not have, or that takes other arguments than
        those that are older than its code; and `ToolInputError`. The plan's
        `run` raises the errors of `Tool.invoke`; its `guard` raises `Suspended` while the breaker
        of a remote tool is open, or when this failure opened it.
        """
        servers = None
        if divided(call.tool) is None:
            tool: AnyTool | McpTool = self._tool(call.tool)
        else:
            servers = await self._servers(attempt, call.folder)
            tool = await servers.tool(call)
        place = self._place(attempt, call) if tool is run_command else {}
        given = {k: v for k, v in call.arguments.items() if k not in place or place[k] != v}
        if changed := place.keys() & given.keys():
            raise RejectedError(
                f"{tool.name}: {min(changed)} is unknown, or not the one that people saw",
                hint="a command runs in the folder and the environment of its job",
            )
        parsed = _parsed(tool, given, call.computed)
        effect = tool.effect_of(parsed)
        arguments = tool.canonical(parsed) if effect or tool.declared.mark.approve else {}
        rules = await self._rules(attempt)
        if rules and not arguments:
            arguments = tool.canonical(parsed)
        gated = GatedCall(
            tool=tool.name,
            arguments=arguments,
            is_effect=effect is not None,
            mark=tool.declared.mark,
        )
        gate = gate_of(gated, rules)
        breaker = tool.breaker_name(parsed)
        guard = guard_of(attempt, breaker, step=call.key)
        may_change = effect is not None or gate is not None
        is_open = attempt.journal.has_begun(call.key)
        if servers is not None and isinstance(tool, McpTool) and may_change and not is_open:
            await _required(servers, tool, call, guard)
        terms = None if effect is None else _terms(tool, effect, attempt.services.resources)
        if tool is run_command and attempt.agent is not None:
            terms = CommandTerms.of(await attempt.agent_spec()).effect_terms(parsed.argv)
            arguments = tool.canonical(parsed)
        if gate is None:
            place = {}
        return ToolPlan(
            arguments={**arguments, **place},
            effect=terms,
            gate=None if gate is None else _gate(gate, tool, place),
            run=partial(
                _run,
                attempt,
                call,
                tool,
                parsed,
                confiner=self.confiner,
                is_effect=effect is not None,
                environment=place.get(ENVIRONMENT),
                quota=self.quota,
            ),
            guard=guard,
            limit_s=call.timeout_s or tool.timeout_s,
        )

    def _place(self, attempt: Attempt, call: ToolCall) -> dict[str, Any]:
        """Return where a command would run, for people who approve it.

        Neither they nor the model change it: another value is an argument that the tool lacks.
        """
        folder = call.folder or attempt.workspace
        return {FOLDER: str(folder), ENVIRONMENT: self.confiner.environment()}

    async def keep(self, workspace: Path, name: str, text: str) -> str | None:
        """Keep a text in a file of a workspace; return its path there, None if it cannot be kept.

        The same text has the same file, which may exist already.
        """
        with trio.move_on_after(WRITE_S):
            try:
                return await trio.to_thread.run_sync(
                    partial(_kept, quota=self.quota),
                    workspace,
                    name,
                    text,
                    abandon_on_cancel=True,
                )
            except (CortexError, OSError):
                return None  # no room, or not ours: the model gets the text's beginning
        return None

    async def listed(
        self, attempt: Attempt, *, step: str, folder: Path | None
    ) -> list[dict[str, Any]]:
        """Return the definitions of all tools that the agent gets of its MCP servers, as JSON."""
        servers = await self._servers(attempt, folder)
        return as_json(await servers.listed(step))

    async def _servers(self, attempt: Attempt, folder: Path | None) -> ServerTools:
        spec = await self._spec(attempt)
        if spec is None:
            owner = f"{OWNER}{attempt.claim.type}"
            declared = self.of_jobs.get(attempt.claim.type, _NO_SERVERS)
            servers, own_secrets = declared.servers, declared.secrets
        else:
            owner, servers = spec.name, spec.mcp
            own_secrets = Secrets.of(await attempt.agent_spec())
        workspace = await trio.to_thread.run_sync(_made, attempt.workspace, own_secrets)
        return ServerTools(
            attempt=attempt,
            agent=owner,
            servers=servers,
            sessions=self.sessions,
            stand_ins=self.stand_ins,
            secrets=own_secrets,
            workspace=workspace,
            folder=folder or workspace,
        )

    async def close(self) -> None:
        """End the conversations with servers: bounded, also when it is cancelled."""
        await self.sessions.close()

    async def _spec(self, attempt: Attempt) -> AgentSpec | None:
        """Return the specification of the job's agent; None without one."""
        if attempt.agent is None:
            return None
        spec = self._kept_specs.get(attempt.agent)
        if spec is None:
            spec = AgentSpec.from_json(await attempt.agent_spec() or {})
            if len(self._kept_specs) >= SPECS_KEPT_MAX:
                self._kept_specs.pop(next(iter(self._kept_specs)))
            self._kept_specs[attempt.agent] = spec
        return spec

    async def _rules(self, attempt: Attempt) -> tuple[ApprovalRule, ...]:
        spec = await self._spec(attempt)
        return () if spec is None else spec.approvals

    def _tool(self, name: str) -> AnyTool:
        try:
            return self.tools[name]
        except KeyError:
            if not TOOL_NAME.fullmatch(name):  # no pod will ever have it
                raise RejectedError(
                    f"there is no tool {name!r}: no tool can have this name"
                ) from None
            # Not the job's fault: in a rolling deployment other pods have it, or will.
            message = f"this pod has no tool {name!r}; it has {', '.join(self.names)}"
            raise Unfit(MisfitKind.TOOL, message) from None


async def _required(servers: ServerTools, tool: McpTool, call: ToolCall, guard: Guard) -> None:
    """Wait until the server describes the tool as people have accepted it.

    If the server cannot be asked, a model gets that as the result; job code fails, and tries again.
    """
    defined = tool.definition if call.defined is None else ToolDefinition.from_json(call.defined)
    try:
        await guard(partial(servers.require_trust, defined))
    except (UnavailableError, TimedOutError, TransientError) as error:
        if call.said is None:
            raise
        raise RejectedError(f"tool {tool.name!r}: {error.message}", hint=error.hint) from error


def _parsed(
    tool: AnyTool | McpTool, arguments: Mapping[str, Any], computed: frozenset[str] | None
) -> Any:
    try:
        return tool.parse(arguments)
    except ToolInputError as error:
        if computed is None or isinstance(tool, McpTool):
            raise
        # A validator of a class refuses what the schema takes: that is about the values.
        known = tool.input_schema["properties"]
        known = {name: {} if name in computed else each for name, each in known.items()}
        if not misfits({**tool.input_schema, "properties": known}, arguments):
            raise
        message = f"this pod's {error.message}; the call is older than its code"
        raise Unfit(MisfitKind.TOOL, message) from error


async def _run(
    attempt: Attempt,
    call: ToolCall,
    tool: AnyTool | McpTool,
    parsed: Any,
    invocation: Invocation | None,
    *,
    confiner: Confiner,
    is_effect: bool,
    environment: Mapping[str, str] | None,
    quota: Quota,
) -> Any:
    """Call the tool in the job's workspace; its result fits into the record."""
    stored = await attempt.agent_spec()
    agent_secrets = Secrets.of(stored)
    workspace = await trio.to_thread.run_sync(_made, attempt.workspace, agent_secrets)
    terms = CommandTerms.of(stored)
    context = ToolContext(
        job_id=attempt.job_id,
        attempt=attempt.number,
        call_id=f"{attempt.job_id}/{call.key}",
        workspace=workspace,
        folder=call.folder or workspace,
        secrets=agent_secrets,
        confiner=confiner,
        has_network=terms.network,
        writes_folder=terms.folder == "write",
        environment=environment,
        quota=quota,
        invocation=invocation,
        traceparent=attempt.traceparent(call.key),
        notify=partial(_notify, attempt, call.key),
    )
    invoke = partial(
        tool.invoke,
        context,
        parsed,
        timeout_s=call.timeout_s,
        resources=attempt.services.resources,
    )
    result = without_forged(await attempt.services.meter.timed(tool.name, invoke))
    if files := files_in(result):
        result = await _kept_files(attempt, files, result, is_effect=is_effect)
    if call.said is not None:  # a model asked: it is text, and no code computes with it
        result = await _masked(result, is_effect=is_effect)
    return await fitted(result, workspace=workspace, key=call.key, is_effect=is_effect, quota=quota)


async def _kept_files(
    attempt: Attempt, files: Sequence[File], result: Any, *, is_effect: bool
) -> Any:
    """Keep the files of a result beside the record; return it with references to them.

    An effect does not fail because of its result: then its files are only named.
    """
    with trio.CancelScope(shield=is_effect) as keeping:
        if is_effect:
            keeping.deadline = trio.current_time() + WRITE_S
        try:
            await keep_all(attempt, files)
        except CortexError:
            if not is_effect:
                raise
        else:
            return referred(result)
    named = [str(each) if isinstance(each, File) else each for each in _listed(result)]
    return named if isinstance(result, list) else named[0]


def _listed(result: Any) -> list[Any]:
    return result if isinstance(result, list) else [result]


async def _masked(result: Any, *, is_effect: bool) -> Any:
    """Mask keys of others in a result; a long one in a thread, so that the pod goes on."""
    if not is_long(result, MASKED_CHARS_MAX):
        return masked_value(result)
    with trio.CancelScope(shield=is_effect):  # its result must reach the record
        return await trio.to_thread.run_sync(masked_value, result)


async def _notify(attempt: Attempt, step: str, payload: str, job_id: UUID) -> None:
    await attempt.services.channels.notify(
        attempt.claim, payload, job_id=job_id, traceparent=attempt.traceparent(step)
    )


def _terms(tool: AnyTool | McpTool, rule: EffectRule, resources: Resources) -> EffectTerms:
    reconcile = None
    if rule.reconcile is not None and not isinstance(tool, McpTool):
        reconcile = partial(asked, tool, resources=resources)
    return EffectTerms(is_idempotent=rule.is_idempotent, reconcile=reconcile)


def _gate(gate: PolicyGate, tool: AnyTool | McpTool, place: Mapping[str, Any]) -> Gate:
    terms = attrs.asdict(gate, recurse=False)
    schema = tool.input_schema
    if place:
        fixed = {name: {"enum": [value]} for name, value in place.items()}
        schema = {**schema, "properties": {**schema["properties"], **fixed}}
        schema["required"] = [*schema.get("required", ()), *place]
    return Gate(policy=terms.pop("reason"), schema=schema, **terms)


def _kept(workspace: Path, name: str, text: str, *, quota: Quota) -> str:
    return keep_text(_made(workspace, Secrets()), name, text, quota=quota)


def _made(folder: Path, agent_secrets: Secrets) -> Path:
    """Make the workspace, and register secrets that the tool may come upon."""
    agent_secrets.register()
    # Root's programs run as other users, who have to pass; other users see nothing.
    passable = 0o711 if os.geteuid() == 0 else 0o700
    for part in (*reversed(folder.parents), folder):
        with suppress(FileExistsError):
            part.mkdir(mode=0o700 if part == folder else passable)
    if folder.is_symlink():
        raise ForbiddenError(f"workspace {folder} is a symlink", hint="remove it")
    if note := settle(folder):
        _log.warning("names in a folder moved after a pod's death", job=folder.name, note=note)
    # Made by a former version, or not closed to group and others yet.
    _close(folder.parent, passable)
    _close(folder, 0o700)
    return folder.resolve()


def close_workspaces(folder: Path) -> None:
    """Close the workspaces that a former version left open to others. Blocks.

    Folders without a job's name stay as they are: they may not be workspaces. So does the folder of
    another user: the database in it says whose it is.

    Raises `UsageError` for a folder that cannot be used.
    """
    try:
        status = folder.lstat()
    except FileNotFoundError:
        return
    except OSError as error:
        hint = f"look at {folder.parent}, or choose another --data"
        raise UsageError(f"cannot use {folder}: {error.strerror}", hint=hint) from error
    if not stat.S_ISDIR(status.st_mode) or not _is_ours(status):
        return
    _close(folder, 0o711 if os.geteuid() == 0 else 0o700)
    settle_all(folder)
    for each in folder.iterdir():
        if _is_workspace(each):
            with suppress(FileNotFoundError):
                _close(each, 0o700)


def _is_workspace(folder: Path) -> bool:
    with suppress(ValueError):
        return str(UUID(folder.name)) == folder.name and not folder.is_symlink() and folder.is_dir()
    return False


def _close(folder: Path, mode: int) -> None:
    """Limit the permissions of a folder that is ours."""
    status = folder.stat()
    if _is_ours(status) and stat.S_IMODE(status.st_mode) & ~mode:
        folder.chmod(stat.S_IMODE(status.st_mode) & mode)


def _is_ours(status: os.stat_result) -> bool:
    return os.geteuid() in (0, status.st_uid)
