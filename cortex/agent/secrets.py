"""An agent's secrets: references in its specification, looked up on the pod when a tool asks.

    secrets:
      DB_PASSWORD: {file: /run/secrets/db}
      API_KEY: {env: API_KEY, hosts: [api.example.com]}

A value is never part of the specification, the record or a log. It is not cached either, so that
the next call uses a changed value. `hosts` are where `http_request` may send it.
"""

import re
from collections.abc import Mapping
from typing import Any, Final, Self

import attrs

from cortex.domain.errors import ForbiddenError, RejectedError, UsageError
from cortex.durable.structuring import MisfitError, Problem, UnfitError, structure
from cortex.http_client.proxies import Origin
from cortex.http_client.secret_values import (
    FILE,
    FILE_CHARS_MAX,
    HOST,
    VARIABLE,
    SecretPlace,
    header_value,
    origin_named,
)

SECRETS_MAX: Final = 32
HOSTS_MAX: Final = 16

# In capitals only: a value that was pasted by mistake rarely looks like that.
NAME: Final = re.compile(r"[A-Z][A-Z0-9_]{0,63}")
_PLACE: Final = re.compile(r"\{secret:([^{}]*)\}")
"""Where a value goes in a header."""


@attrs.frozen(kw_only=True)
class SecretReference:
    """Where a secret's value is stored: a variable of the pod, or a file on its machine."""

    env: str | None = None
    file: str | None = None
    hosts: list[str] | None = None
    """`HOST` or `HOST:PORT`, reached by https only; `http://HOST:PORT` where there is no https."""

    def __attrs_post_init__(self) -> None:
        """Refuse a bad reference without showing it: it may be the value itself."""
        if (self.env is None) == (self.file is None):
            raise UnfitError("must have either env or file")
        if self.env is not None and not VARIABLE.fullmatch(self.env):
            raise UnfitError("must be the name of a variable in capitals", path=("env",))
        if self.file is not None and not (
            FILE.fullmatch(self.file) and len(self.file) <= FILE_CHARS_MAX
        ):
            raise UnfitError(
                "must be the full path of a file, such as /run/secrets/db", path=("file",)
            )
        if len(self.hosts or ()) > HOSTS_MAX:
            raise UnfitError(f"has more than {HOSTS_MAX} hosts", path=("hosts",))
        if not all(map(HOST.fullmatch, self.hosts or ())):
            raise UnfitError(
                "must be hosts such as api.example.com or api.example.com:8443", path=("hosts",)
            )

    @property
    def origins(self) -> frozenset[Origin]:
        """Where the value may be sent."""
        return frozenset(map(origin_named, self.hosts or ()))


@attrs.frozen(kw_only=True, repr=False)
class Secrets:
    """The secrets that one agent may use. It holds no values, so printing it shows none."""

    references: Mapping[str, SecretReference] = attrs.field(factory=dict)
    agent: str | None = None

    @classmethod
    def of(cls, spec: Mapping[str, Any] | None) -> Self:
        """Return the secrets of a stored specification; none without an agent.

        Raises `UsageError` if it comes from an unknown version of Cortex.
        """
        if spec is None:
            return cls()
        name, stored = spec.get("name"), spec.get("secrets")
        if not stored:
            return cls(agent=name)
        try:
            return cls(references=structure(stored, dict[str, SecretReference]), agent=name)
        except MisfitError:
            raise UsageError(
                f"stored agent {name!r} has secrets that this pod cannot read"
            ) from None

    def __repr__(self) -> str:
        return f"Secrets({', '.join(self.references)})"

    def value(self, name: str) -> str:
        """Look up a secret. From here on its value is redacted in records and logs.

        Blocks for one read of a small file. Raises `RejectedError` that names reference and pod.
        """
        reference = self._reference(name)
        return SecretPlace(env=reference.env, file=reference.file).read(name)

    def register(self) -> None:
        """Register all available values for redaction: a tool may come upon one without asking."""
        for name in self.references:
            try:
                self.value(name)
            except RejectedError:
                continue  # a lookup of it raises the error

    def in_header(self, value: str, origin: Origin) -> str:
        """Return a header's value with each `{secret:NAME}` replaced, to be sent to `origin`.

        Raises `ForbiddenError` for a forbidden origin, without looking the secret up.
        """
        for name in _PLACE.findall(value):
            self._refuse_elsewhere(name, origin)
        return _PLACE.sub(lambda match: header_value(match[1], self.value(match[1])), value)

    def is_in(self, value: str) -> bool:
        """Return whether a header's value refers to a secret."""
        return bool(_PLACE.search(value))

    def _reference(self, name: str) -> SecretReference:
        reference = self.references.get(name)
        if reference is not None:
            return reference
        if self.agent is None:
            raise RejectedError(
                f"secret {name!r} is unavailable: the job has no agent",
                hint="secrets are declared in an agent's specification",
            )
        raise RejectedError(
            f"agent {self.agent!r} declares no secret {name!r}",
            hint=f"it has {', '.join(self.references) or 'none'}; "
            "add it under secrets in the agent's specification",
        )

    def _refuse_elsewhere(self, name: str, origin: Origin) -> None:
        reference = self._reference(name)
        if origin not in reference.origins:
            scheme, host, port = origin
            hosts = ", ".join(reference.hosts or ()) or "none"
            raise ForbiddenError(
                f"secret {name} may not be sent to {scheme}://{host}:{port}",
                hint=f"its hosts in the agent's specification: {hosts}",
            )


def check_names(_: object, attribute: "attrs.Attribute[Any]", value: Mapping[str, object]) -> None:
    """Refuse invalid names, and too many of them; a validator of attrs."""
    if len(value) > SECRETS_MAX:
        raise UnfitError(f"has {len(value)} secrets, at most {SECRETS_MAX}", path=(attribute.name,))
    if not all(map(NAME.fullmatch, value)):
        raise UnfitError(_NO_NAME, path=(attribute.name,))


_NO_NAME: Final = f"must be names that match {NAME.pattern}, each with a reference"
_NO_REFERENCE: Final = (
    "must be a reference, {env: VARIABLE} or {file: /path}; the value itself belongs on the pod"
)
_KEYS: Final = frozenset(attrs.fields_dict(SecretReference))


def discreet(problem: Problem, field: str) -> Problem:
    """Remove the offending value from a problem of the secrets, which stand in `field`.

    A person who confused reference and value would otherwise find the value in a log.
    """
    if problem.path[:1] != (field,):
        return problem
    if len(problem.path) > 1 and not NAME.fullmatch(str(problem.path[1])):
        return Problem((field,), _NO_NAME)
    where, rest = problem.path[:2], problem.path[2:]
    reason, shows_value, _ = problem.reason.partition(", got ")
    if where == (field,):
        return Problem(where, _NO_NAME if shows_value else reason)
    if (shows_value and not rest) or (rest and rest[0] not in _KEYS):
        return Problem(where, _NO_REFERENCE)
    return Problem(problem.path, reason)
