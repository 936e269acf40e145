"""Local hints of a pod to its runners, beside the channels that its listener hears."""

from typing import Final

RETRY: Final = "retry"
"""A job of this pod is in RETRY."""
EXPIRY: Final = "expiry"
"""A job of this pod waits for a decision that expires."""
REMINDER: Final = "reminder"
"""People are to be reminded of a decision that a job of this pod waits for."""
BATCH: Final = "batch"
"""A job of this pod waits for a batch."""
WAKE: Final = "wake"
"""A job of this pod waits for what may have come just now."""
POD_LOST: Final = "pod_lost"
"""Another pod has died; so have the hints that it gave itself."""
