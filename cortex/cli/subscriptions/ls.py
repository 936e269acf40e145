"""`cortex subscriptions ls`: who gets which messages, and what waits."""

from typing import Final

from cortex.cli.listing import list_all
from cortex.view.resources.subscriptions import SUBSCRIPTIONS

ls: Final = list_all(
    SUBSCRIPTIONS, help="List subscriptions: topic, channel, breaker, and how many messages wait."
)
