"""Agent specs: what an agent is, as a person writes it in YAML and as the database stores it.

name: researcher
model: claude-sonnet-4-5
system: You find things out.
tools: [http_request, write_file]
limits:
  timeout_seconds: 1800
  tool_timeouts: {http_request: 30}
  tool_result_tokens: 10000
  jobs: [{concurrency: 5, key: tenant}, {rate: 100000, per: minute, unit: tokens, key: model}]
budget: {usd: 1.00, per: run}
cache: {ttl: 1h}
batch: true
max_context_tokens: 150000
compaction: {at: 0.8, keep_turns: 4}
loops: {same_call: 4, no_news: 10}
fallback: [openai:gpt-5.2]
on_stop: {max_tokens: continue, refusal: fail, empty: continue, context_window: continue}
commands: {network: false, interrupted: tell, read_only: [git status, ls]}
mcp:
  github: {url: https://api.githubcopilot.com/mcp/, headers: {Authorization: "{secret:API_KEY}"}}
temperature: 0.2
thinking: adaptive
approvals:
- {tool: http_request, when: {method: {not: GET}}, approve: true, risk: HIGH}
secrets:
  API_KEY: {env: API_KEY, hosts: [api.example.com]}
---
name: the-next-agent-in-the-same-file
"""

import re
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

import attrs

from cortex.agent.confinement.terms import CommandTerms
from cortex.agent.limits import (
    AgentBudget,
    AgentLimits,
    CacheTerms,
    CompactionTerms,
    LoopTerms,
    OnStop,
    named,
    within,
)
from cortex.agent.mcp.terms import McpServer, check_servers
from cortex.agent.secrets import SecretReference, check_names, discreet
from cortex.domain.approvals.rules import RULES_MAX, ApprovalRule
from cortex.domain.errors import MisfitKind, UnfitCodeError
from cortex.domain.model import Effort, ModelOptions, Thinking, thinking_of
from cortex.domain.model_options import fallback_refusal, refusal
from cortex.domain.output_schema import OutputSchemaError, strict
from cortex.durable.structuring import MisfitError, Problem, UnfitError, show, structure

if TYPE_CHECKING:
    from cortex.agent.yaml_source import Document

Spec = TypeVar("Spec")

# The Messages API accepts these names.
TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
AGENT_NAME = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9._-]{0,63}")
TOOLS_MAX = 128
STEPS_MAX = 10_000
TOKENS_MAX = 1_000_000
CONTEXT_TOKENS: tuple[int, int] = (1_000, 100_000_000)
_OPTIONS = attrs.fields(ModelOptions)
_ALWAYS_STORED = frozenset(
    {"name", "model", "system", "tools", "max_steps", "max_tokens", "description", "limits"}
)


def _filled(_: object, attribute: "attrs.Attribute[Any]", value: str) -> None:
    if not value.strip():
        raise UnfitError("must not be empty", path=(attribute.name,))


def _tool_names(_: object, attribute: "attrs.Attribute[Any]", value: tuple[str, ...]) -> None:
    if len(value) > TOOLS_MAX:
        raise UnfitError(f"has {len(value)} tools, at most {TOOLS_MAX}", path=(attribute.name,))
    for each in value:
        if not TOOL_NAME.fullmatch(each):
            raise UnfitError(f"has {show(each)}, which is no tool name", path=(attribute.name,))
        if value.count(each) > 1:
            raise UnfitError(f"names {show(each)} twice", path=(attribute.name,))


def _context_tokens(
    agent: "AgentSpec", attribute: "attrs.Attribute[Any]", value: int | None
) -> None:
    within(*CONTEXT_TOKENS)(agent, attribute, value)
    if value is not None and value <= agent.max_tokens:
        reason = f"must be above max_tokens, which is {agent.max_tokens}, got {show(value)}"
        raise UnfitError(reason, path=(attribute.name,))


def _check_tool_timeouts(
    agent: "AgentSpec", attribute: "attrs.Attribute[Any]", value: AgentLimits
) -> None:
    for tool in value.tool_timeouts:
        if tool not in agent.tools and not agent.may_have(tool):
            reason = "is none of the agent's tools"
            raise UnfitError(reason, path=(attribute.name, "tool_timeouts", tool))


def _secrets_exist(
    agent: "AgentSpec", attribute: "attrs.Attribute[Any]", value: Mapping[str, McpServer]
) -> None:
    for server, terms in value.items():
        for name in sorted(terms.secrets - agent.secrets.keys()):
            reason = f"refers to secret {show(name)}, which the agent does not declare"
            raise UnfitError(reason, path=(attribute.name, server))


def _approval_rules(
    agent: "AgentSpec", attribute: "attrs.Attribute[Any]", value: tuple[ApprovalRule, ...]
) -> None:
    if len(value) > RULES_MAX:
        raise UnfitError(f"has {len(value)} rules, at most {RULES_MAX}", path=(attribute.name,))
    for index, rule in enumerate(value):
        path = (attribute.name, index)
        if (wrong := rule.refusal()) is not None:
            raise UnfitError(wrong[1], path=(*path, *wrong[0]))
        if not rule.names_one_of(agent.tools) and not agent.may_have(rule.tool):
            reason = f"names none of the agent's tools, got {show(rule.tool)}"
            raise UnfitError(reason, path=(*path, "tool"))


def _fallback(
    agent: "AgentSpec", attribute: "attrs.Attribute[Any]", value: tuple[str, ...]
) -> None:
    if (wrong := fallback_refusal(value, model=agent.model)) is not None:
        raise UnfitError(wrong[1], path=(attribute.name, *wrong[0]))


@attrs.frozen(kw_only=True)
class AgentSpec:
    """One agent. `max_steps` counts model responses, `max_tokens` is the most of one response."""

    name: str = attrs.field(validator=named(AGENT_NAME))
    model: str = attrs.field(validator=_filled)
    system: str = attrs.field(validator=_filled)
    tools: tuple[str, ...] = attrs.field(default=(), validator=_tool_names)
    max_steps: int = attrs.field(default=50, validator=within(1, STEPS_MAX))
    max_tokens: int = attrs.field(default=4_096, validator=within(1, TOKENS_MAX))
    description: str = ""
    limits: AgentLimits = attrs.field(default=AgentLimits(), validator=_check_tool_timeouts)
    budget: AgentBudget | None = None
    cache: CacheTerms = attrs.field(default=CacheTerms())
    max_context_tokens: int | None = attrs.field(default=None, validator=_context_tokens)
    """Tokens of one request and its response at most; None: the model's window, if it is known."""
    compaction: CompactionTerms = attrs.field(default=CompactionTerms())
    loops: LoopTerms = attrs.field(default=LoopTerms())
    on_stop: OnStop = attrs.field(default=OnStop())
    commands: CommandTerms = attrs.field(default=CommandTerms())
    secrets: dict[str, SecretReference] = attrs.field(factory=dict, validator=check_names)
    mcp: dict[str, McpServer] = attrs.field(factory=dict, validator=[check_servers, _secrets_exist])
    """Servers of further tools, by the name that people call them."""
    approvals: tuple[ApprovalRule, ...] = attrs.field(default=(), validator=_approval_rules)
    """Which calls people must approve: the first rule that matches decides."""
    temperature: float | None = None
    stop_sequences: tuple[str, ...] = ()
    tool_choice: str | None = None
    """`any` and the name of a tool are for the first answer: else the agent would never end."""
    parallel_calls: bool = True
    thinking: Thinking | None = attrs.field(default=None, converter=thinking_of)
    effort: Effort | None = None
    server_tools: tuple[dict[str, Any], ...] = ()
    metadata: dict[str, Any] = attrs.field(factory=dict)
    extra: dict[str, Any] = attrs.field(factory=dict)
    output: dict[str, Any] | None = None
    """The JSON schema of its last answer."""
    batch: bool = False
    """Its model calls may wait for up to a day, at half the price."""
    fallback: tuple[str, ...] = attrs.field(default=(), validator=_fallback)
    """Models that are asked in this order while its own cannot answer."""

    def __attrs_post_init__(self) -> None:
        if self.output is not None:
            try:
                strict(self.output)
            except OutputSchemaError as error:
                raise UnfitError(error.reason, path=("output", *error.path)) from error
        tools = [*self.tools, *(f"{server}.TOOL" for server in self.mcp)]
        if self.tool_choice is not None and self.may_have(self.tool_choice):
            tools.append(self.tool_choice)  # which tools a server has shows in the job
        for model in (self.model, *self.fallback):
            wrong = refusal(self.options, model=model, max_tokens=self.max_tokens, tools=tools)
            if wrong is not None:
                of_fallback = "" if model == self.model else f" (fallback {model})"
                raise UnfitError(f"{wrong[1]}{of_fallback}", path=wrong[0])

    @property
    def options(self) -> ModelOptions:
        """What its model calls ask for beside the prompt."""
        return ModelOptions(**{each.name: getattr(self, each.name) for each in _OPTIONS})

    def may_have(self, name: str) -> bool:
        """Return whether a name or glob may be that of a tool of one of its servers."""
        server, dot, tool = name.partition(".")
        return bool(dot and tool) and any(fnmatchcase(each, server) for each in self.mcp)

    def to_json(self) -> dict[str, Any]:
        """Return the stored form: fields in order, of the limits only those that are set.

        The fields of the first release always, any other only if it is set: jobs that began before
        it existed compare digests.
        """
        stored = attrs.asdict(self, filter=lambda _, value: value is not None and value != {})
        for each in attrs.fields(AgentSpec):
            is_default = each.default == getattr(self, each.name)
            if each.name not in _ALWAYS_STORED and is_default:
                stored.pop(each.name, None)
        if "on_stop" in stored and self.on_stop.context_window == OnStop().context_window:
            del stored["on_stop"]["context_window"]
        if jobs := stored["limits"].pop("jobs"):
            stored["limits"]["jobs"] = list(jobs)
        if self.mcp:
            stored["mcp"] = {name: each.to_json() for name, each in self.mcp.items()}
        return {name: list(v) if isinstance(v, tuple) else v for name, v in stored.items()}

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Self:
        """Restore what `to_json` returned; raises `UnfitCodeError` for anything else."""
        try:
            return _structured(dict(stored), cls)
        except MisfitError as misfit:
            message = f"stored agent {show(stored.get('name'))}: {misfit}"
            raise UnfitCodeError(message, kind=MisfitKind.AGENT) from misfit


def parse_agents(text: str, source: str) -> list[AgentSpec]:
    """Return the agents of a YAML file, at least one; `source` is the file's name in errors.

    Raises `UsageError` with file, line, field and value for the first problem.
    """
    from cortex.agent.yaml_source import parse_definitions  # noqa: PLC0415 -- a pod needs no YAML

    fields = "name, model and system"
    return parse_definitions(text, source, parse=_parse_agent, noun="agent", fields=fields)


def _parse_agent(document: "Document") -> AgentSpec:
    try:
        return _structured(document.value, AgentSpec)
    except MisfitError as misfit:
        raise document.refused(misfit.problems, noun="agent") from misfit


def _structured(value: object, target: type[Spec]) -> Spec:
    """Call `structure`, but hide the values of secrets in its problems."""
    try:
        return structure(value, target)
    except MisfitError as misfit:
        problems = misfit.problems
    raise MisfitError(tuple(_hidden(discreet(each, "secrets")) for each in problems))


def _hidden(problem: Problem) -> Problem:
    """Hide what was written where secrets of MCP servers are often pasted."""
    if problem.path[:1] != ("mcp",) or _PASTED.isdisjoint(problem.path):
        return problem
    return Problem(problem.path, problem.reason.partition(", got ")[0])


_PASTED: Final = frozenset({"env", "headers"})
