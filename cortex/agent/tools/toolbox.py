"""What the pod lends to its jobs from this package: tools by name, each call behind its breaker."""

import os
import stat
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import attrs
import trio

from cortex.agent.confinement.means import Confiner
from cortex.agent.confinement.terms import CommandTerms
from cortex.agent.secrets import Secrets
from cortex.agent.spec import AgentSpec
from cortex.agent.tools.effect_rule import EffectRule
from cortex.agent.tools.reconcile import asked
from cortex.agent.tools.run_command import run_command
from cortex.agent.tools.tool import NAME, Tool, ToolContext
from cortex.agent.workspace.fitting import fitted
from cortex.domain.approval_policy import ApprovalRule, GatedCall, gate_of
from cortex.domain.approval_policy import Gate as PolicyGate
from cortex.domain.classification import failure_of
from cortex.domain.control_flow import Suspended
from cortex.domain.effect import Invocation
from cortex.domain.errors import ForbiddenError, RejectedError, TransientError
from cortex.domain.failure import UNKNOWN
from cortex.domain.why_facts import MISSING_TOOL
from cortex.durable.attempt import Attempt, EffectTerms, ToolCall, ToolPlan
from cortex.durable.calls import Admission
from cortex.durable.effects import NotDone
from cortex.durable.gates import Gate

WAITS_MAX: Final = 5
"""So often in a row a job waits for a tool's breaker; then its agent is told, or the job fails."""
RULES_KNOWN_MAX: Final = 1000
ELSEWHERE_S: Final = 20.0
"""When such a job is tried again: late enough that pods without the tool do not pass it around."""


@attrs.frozen
class Toolbox:
    """Calls the pod's tools in the workspace of the job that asks."""

    tools: Mapping[str, Tool]
    confiner: Confiner = attrs.field(factory=Confiner.chosen)
    """What keeps the programs that tools start in their place."""
    _rules_known: dict[tuple[UUID, int], tuple[ApprovalRule, ...]] = attrs.field(
        factory=dict, init=False, repr=False
    )
    """By agent and version: what people must be asked."""

    @property
    def names(self) -> Sequence[str]:
        """The tools that this pod has."""
        return sorted(self.tools)

    def offer(self, names: Sequence[str]) -> list[dict[str, Any]]:
        """Describe these tools as a model is told. Raises `Suspended` for one it does not have."""
        return [
            {
                "name": tool.name,
                "description": tool.description,
                "input_schema": tool.input_schema,
            }
            for tool in map(self._tool, names)
        ]

    def is_required(self, name: str) -> bool:
        """Whether its failure fails the step that called it."""
        return self._tool(name).is_required

    async def plan(self, attempt: Attempt, call: ToolCall) -> ToolPlan:
        """Check a call and say how it is to be made: with which effect, gate and breaker.

        Raises `Suspended` for a tool it does not have, `ToolInputError`. What the plan's `run`
        raises is what `Tool.invoke` raises; its `guard` raises `Suspended` while the breaker of a
        remote tool is open, or when this failure opened it.
        """
        tool = self._tool(call.tool)
        parsed = tool.parse(call.arguments)
        effect = tool.effect_of(parsed)
        arguments = tool.canonical(parsed) if effect or tool.declared.mark.approve else {}
        rules = await self._rules(attempt)
        if rules and not arguments:
            arguments = tool.canonical(parsed)
        asked = GatedCall(
            tool=tool.name,
            arguments=arguments,
            is_effect=effect is not None,
            mark=tool.declared.mark,
        )
        gate = gate_of(asked, rules)
        breaker = tool.breaker_name(parsed)
        terms = None if effect is None else _terms(tool, effect)
        if tool is run_command and attempt.agent is not None:
            terms = CommandTerms.of(await attempt.agent_spec()).effect_terms(parsed.argv)
            arguments = tool.canonical(parsed)
        return ToolPlan(
            arguments=arguments,
            effect=terms,
            gate=None if gate is None else _gate(gate, tool),
            run=partial(
                _run,
                attempt,
                call,
                tool,
                parsed,
                confiner=self.confiner,
                is_effect=effect is not None,
            ),
            guard=_unguarded
            if breaker is None
            else partial(_guarded, attempt, breaker, step=call.key),
            limit_s=call.timeout_s or tool.timeout_s,
        )

    async def _rules(self, attempt: Attempt) -> tuple[ApprovalRule, ...]:
        if attempt.agent is None:
            return ()
        found = self._rules_known.get(attempt.agent)
        if found is None:
            found = AgentSpec.from_json(await attempt.agent_spec() or {}).approvals
            if len(self._rules_known) >= RULES_KNOWN_MAX:
                self._rules_known.pop(next(iter(self._rules_known)))
            self._rules_known[attempt.agent] = found
        return found

    def _tool(self, name: str) -> Tool:
        try:
            return self.tools[name]
        except KeyError:
            if not NAME.fullmatch(name):  # no pod will ever have it
                raise RejectedError(
                    f"there is no tool {name!r}: no tool can have this name"
                ) from None
            # Not the job's fault: in a rolling deployment other pods have it, or will.
            told = f"this pod has no tool {name!r}; it has {', '.join(self.names)}"
            raise Suspended(f"{MISSING_TOOL}{name}", told, delay_s=ELSEWHERE_S) from None


async def _run(
    attempt: Attempt,
    call: ToolCall,
    tool: Tool,
    parsed: Any,
    invocation: Invocation | None,
    *,
    confiner: Confiner,
    is_effect: bool,
) -> Any:
    """Call the tool in the job's workspace; what it returns fits into the record."""
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
        invocation=invocation,
    )
    invoke = partial(tool.invoke, context, parsed, timeout_s=call.timeout_s)
    result = await attempt.services.meter.timed(tool.name, invoke)
    return await fitted(result, workspace=workspace, key=call.key, is_effect=is_effect)


def _terms(tool: Tool, rule: EffectRule) -> EffectTerms:
    reconcile = None if rule.reconcile is None else partial(asked, tool)
    return EffectTerms(is_idempotent=rule.is_idempotent, reconcile=reconcile)


def _gate(gate: PolicyGate, tool: Tool) -> Gate:
    terms = attrs.asdict(gate, recurse=False)
    return Gate(policy=terms.pop("reason"), schema=tool.input_schema, **terms)


async def _unguarded(call: Callable[[], Awaitable[Any]]) -> Any:
    return await call()


async def _guarded(
    attempt: Attempt, name: str, call: Callable[[], Awaitable[Any]], *, step: str
) -> Any:
    """Make a call behind its breaker, which counts what may pass and comes from the other side.

    An error that says nothing of where it comes from is likely the tool's own mistake. One that is
    returned (`NotDone`) counts as if it were raised.
    """
    async with _admitted(attempt, name) as admission:
        try:
            result = await call()
        except Exception as error:
            await _report(attempt, admission, error, name=name, step=step)  # noqa: ASYNC120 -- a cancellation wins
            raise
        if isinstance(result, NotDone):
            await _report(attempt, admission, result.error, name=name, step=step)
        else:
            await admission.succeeded()
        return result


async def _report(
    attempt: Attempt, admission: Admission, error: Exception, *, name: str, step: str
) -> None:
    """Count a failure. Raises `Suspended` when it opened the breaker, but not for ever."""
    failure = attrs.evolve(failure_of(error), source=name)
    if not failure.cls.is_transient or failure.code == UNKNOWN:
        return
    try:
        await admission.failed(failure)
    except Suspended as suspended:  # nothing else would record what opened it
        if attempt.waits_count >= WAITS_MAX:
            return
        told = f"the job waits for {suspended.waiting_on}"
        caller = await attempt.caller(step)  # noqa: ASYNC120 -- a cancellation wins
        note = partial(attempt.services.facts.failed, caller, failure, resolution=told)
        await note(goes_on=False)  # noqa: ASYNC120 -- a cancellation wins
        raise


@asynccontextmanager
async def _admitted(attempt: Attempt, name: str) -> AsyncIterator[Admission]:
    """Wait for leave to call, so many times in a row; then an open breaker is a failed call."""
    async with AsyncExitStack() as stack:
        try:
            admission = await stack.enter_async_context(attempt.services.breakers.admit(name))
        except Suspended as suspended:
            if attempt.waits_count < WAITS_MAX:
                raise
            hint = f"the job waited for it {attempt.waits_count} times"
            raise TransientError(suspended.reason, hint=hint) from None
        yield admission


def _made(folder: Path, agent_secrets: Secrets) -> Path:
    """Make the workspace; what the tool may come upon there must be known by then."""
    agent_secrets.register()
    # Root's programs run as other users, who have to pass; nobody else gets to see what is there.
    passable = 0o711 if os.geteuid() == 0 else 0o700
    for part in (*reversed(folder.parents), folder):
        with suppress(FileExistsError):
            part.mkdir(mode=0o700 if part == folder else passable)
    if folder.is_symlink():
        raise ForbiddenError(f"workspace {folder} is a symlink", hint="remove it")
    # Made by a former version, or closed to its owner's group and others by nobody.
    _close(folder.parent, passable)
    _close(folder, 0o700)
    return folder.resolve()


def close_workspaces(folder: Path) -> None:
    """Close the workspaces that a former version left open to others. Blocks.

    Folders that are not named like a job's stay as they are: other things may stand there.
    """
    if folder.is_symlink() or not folder.is_dir():
        return
    _close(folder, 0o711 if os.geteuid() == 0 else 0o700)
    for each in folder.iterdir():
        if _is_workspace(each):
            with suppress(FileNotFoundError):
                _close(each, 0o700)


def _is_workspace(folder: Path) -> bool:
    with suppress(ValueError):
        return str(UUID(folder.name)) == folder.name and not folder.is_symlink() and folder.is_dir()
    return False


def _close(folder: Path, mode: int) -> None:
    """Let nobody do more in a folder of ours than this."""
    found = folder.stat()
    if os.geteuid() in (0, found.st_uid) and stat.S_IMODE(found.st_mode) & ~mode:
        folder.chmod(stat.S_IMODE(found.st_mode) & mode)
