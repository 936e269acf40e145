"""The servers that a job type declares in code: `@job(mcp={"github": {…}})`.

As in an agent's specification, with the references to secrets beside them:

    @job(mcp={"github": {"url": …, "headers": {"Authorization": "Bearer {secret:TOKEN}"},
                         "secrets": {"TOKEN": {"env": "GITHUB_TOKEN", "hosts": […]}}}})
"""

from collections.abc import Iterable, Mapping
from typing import Any, Self

import attrs

from cortex.agent.mcp.terms import SERVER, McpServer
from cortex.agent.secrets import NAME, SecretReference, Secrets, discreet
from cortex.domain.errors import UsageError
from cortex.durable.registry import JobType
from cortex.durable.structuring import MisfitError, structure

OWNER = "job:"
"""Prefix of a job type where the name of an agent stands otherwise."""


@attrs.frozen
class _References:
    secrets: dict[str, SecretReference]


@attrs.frozen(kw_only=True)
class JobServers:
    """The servers of one job type, and the secrets that they may use."""

    servers: Mapping[str, McpServer]
    secrets: Secrets

    @classmethod
    def of(cls, job_type: str, declared: Mapping[str, Any]) -> Self:
        """Check what a job type declares. Raises `UsageError` with the type, server and field."""
        servers, references = dict[str, McpServer](), dict[str, SecretReference]()
        for name, given in declared.items():
            what = f"job type {job_type!r}: mcp {name!r}"
            if not SERVER.fullmatch(name):
                raise UsageError(f"{what} is no name of a server", hint="use letters, digits and -")
            if not isinstance(given, Mapping):
                raise UsageError(f"{what} is no mapping", hint='such as {"command": ["server"]}')
            fields = dict(given)
            own = _structured({"secrets": fields.pop("secrets", {})}, _References, what).secrets
            servers[name] = _structured(fields, McpServer, what)
            if unknown := sorted(servers[name].secrets - own.keys()):
                raise UsageError(
                    f"{what} refers to secret {unknown[0]!r}, which it does not declare"
                )
            if wrong := next((each for each in own if not NAME.fullmatch(each)), None):
                raise UsageError(f"{what}: {wrong!r:.40} is no name of a secret")
            if twice := sorted(own.keys() & references.keys()):
                raise UsageError(f"{what}: secret {twice[0]!r} is declared twice")
            references |= own
        return cls(servers=servers, secrets=Secrets(references=references, agent=OWNER + job_type))


def servers_of(job_types: Iterable[JobType[..., Any]]) -> dict[str, JobServers]:
    """Return the servers of those job types that declare any. Raises `UsageError`."""
    return {each.name: JobServers.of(each.name, each.mcp) for each in job_types if each.mcp}


def _structured(value: object, target: Any, what: str) -> Any:
    try:
        return structure(value, target)
    except MisfitError as misfit:
        problem = discreet(misfit.problems[0], "secrets")
    raise UsageError(f"{what}: {problem.field} {problem.reason}")
