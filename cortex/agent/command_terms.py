"""What holds for the programs that an agent starts with `run_command`.

commands:
  network: true
"""

from collections.abc import Mapping
from typing import Any, Self

import attrs

from cortex.agent.structuring import MisfitError, structure
from cortex.domain.errors import UsageError


@attrs.frozen(kw_only=True)
class CommandTerms:
    """As the agent's specification says."""

    network: bool = False
    """They may use the pod's network, and reach whatever the pod reaches."""

    @classmethod
    def of(cls, spec: Mapping[str, Any] | None) -> Self:
        """Return those of a stored specification; without an agent the defaults.

        Raises `UsageError` if it comes from a version of Cortex that this one does not know.
        """
        stored = None if spec is None else spec.get("commands")
        if not stored:
            return cls()
        try:
            return structure(stored, cls)
        except MisfitError as misfit:
            name = None if spec is None else spec.get("name")
            raise UsageError(f"stored agent {name!r}: commands: {misfit}") from None
