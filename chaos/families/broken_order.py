"""An application whose pods are broken, which the judge must notice.

They record how children ended in another order than that of the items.
"""

from collections.abc import Sequence

from chaos.families.app import branch, family, leaf
from cortex.domain.child import ChildOutcome
from cortex.durable import children
from cortex.durable.step_outcome import StepOutcome

__all__ = ["branch", "family", "leaf"]

_recorded = children._recorded  # noqa: SLF001 -- it stands for a slip in that module


def _broken(ended: Sequence[ChildOutcome]) -> StepOutcome:
    return _recorded(ended[::-1])


children._recorded = _broken  # noqa: SLF001
