"""Terms for the programs that an agent starts with `run_command`.

commands:
  network: true
  folder: read
  interrupted: ask
  read_only: [git status, ls]
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Self

import attrs

from cortex.agent.confinement.process import Completed
from cortex.domain.effect import Applied, Invocation
from cortex.domain.errors import UsageError
from cortex.durable.attempt import EffectTerms
from cortex.durable.structuring import MisfitError, UnfitError, structure

READ_ONLY_MAX = 100
INTERRUPTED = "interrupted: its pod died. The program may have run, in whole or in part."


def _words(_: object, attribute: "attrs.Attribute[Any]", value: list[str]) -> None:
    if len(value) > READ_ONLY_MAX:
        reason = f"has {len(value)} commands, at most {READ_ONLY_MAX}"
        raise UnfitError(reason, path=(attribute.name,))
    if not all(each.split() for each in value):
        raise UnfitError("has an empty command", path=(attribute.name,))


@attrs.frozen(kw_only=True)
class CommandTerms:
    """The terms in the agent's specification."""

    network: bool = False
    """Programs may use the pod's network, and reach whatever the pod reaches."""
    folder: Literal["write", "read"] = "write"
    """Their access to the folder that the job declares, except its `.git`."""
    interrupted: Literal["rerun", "tell", "ask"] = "tell"
    """What follows when the pod died while a program ran: it runs again, the model learns that it
    may have run, or a person reports its outcome."""
    read_only: list[str] = attrs.field(factory=list, validator=_words)
    """First words of commands that change nothing: these run again."""

    @classmethod
    def of(cls, spec: Mapping[str, Any] | None) -> Self:
        """Return the terms of a stored specification; without an agent the defaults.

        Raises `UsageError` if it comes from an unknown version of Cortex.
        """
        stored = None if spec is None else spec.get("commands")
        if not stored:
            return cls()
        try:
            return structure(stored, cls)
        except MisfitError as misfit:
            name = None if spec is None else spec.get("name")
            raise UsageError(f"stored agent {name!r}: commands: {misfit}") from None

    def effect_terms(self, argv: Sequence[str]) -> EffectTerms | None:
        """Return how a command is kept from running twice; None: it may."""
        first = (each.split() for each in self.read_only)
        if self.interrupted == "rerun" or any([*argv[: len(each)]] == each for each in first):
            return None
        reconcile = _report_to_model if self.interrupted == "tell" else None
        return EffectTerms(is_idempotent=False, reconcile=reconcile)


async def _report_to_model(invocation: Invocation) -> Applied:  # noqa: ARG001 -- of all the same
    ended = Completed(
        exit_code=None, stdout="", stderr=INTERRUPTED, duration_s=0.0, timed_out=False
    )
    return Applied(attrs.asdict(ended))
