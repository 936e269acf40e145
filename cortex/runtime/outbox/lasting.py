"""Which failures of a channel last, unless the channel knows better."""

from cortex.domain.failure import Failure


class LastingFailures:
    """A channel of which only failures that may pass by themselves are worth another attempt."""

    def is_final(self, failure: Failure) -> bool:
        return not failure.cls.is_transient
