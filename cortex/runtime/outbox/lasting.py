"""The rule of most channels for failures that last."""

from cortex.domain.failure import Failure


class LastingFailures:
    """A channel that tries again only after failures that may pass by themselves."""

    def is_final(self, failure: Failure) -> bool:
        return not failure.cls.is_transient
