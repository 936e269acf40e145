"""The rule of most channels for failures that are final: no further attempt follows."""

from cortex.domain.failure import Failure


class FinalUnlessTransient:
    """A channel that tries again only after failures that may pass by themselves."""

    def is_final(self, failure: Failure) -> bool:
        return not failure.cls.is_transient
