"""What a person lets assistants do. Imports nothing, for the command line."""

from enum import StrEnum


class Allow(StrEnum):
    """What assistants may do, beyond reading."""

    SUBMIT = "submit"
    APPROVE = "approve"
    RETRY = "retry"
    CANCEL = "cancel"
