"""Postgres notifications, delivered when the seed says so.

Each connection listens to all channels, but uses only what it has sent itself: that arrives with
the reply to its own commit. So the notifications of a commit are known at once, and the kernel does
not decide when they are delivered.
"""

from collections.abc import Callable
from typing import Any, Protocol

from attrs import define, field

Callback = Callable[..., Any]


class Listener(Protocol):
    """A connection that listens."""

    def is_closed(self) -> bool: ...

    def deliver(self, callback: Callback, channel: str, payload: str) -> None: ...


@define
class Notices:
    """The listeners of each channel."""

    channels: list[str] = field(factory=list)
    """Every channel that was ever listened to, in that order."""
    _listeners: dict[str, list[tuple[Listener, Callback]]] = field(factory=dict)

    def listen(self, channel: str, connection: Listener, callback: Callback) -> None:
        """Call this callback for notifications of a channel, as long as its connection is open."""
        if channel not in self.channels:
            self.channels.append(channel)
        self._listeners.setdefault(channel, []).append((connection, callback))

    def announce(self, channel: str, payload: str) -> None:
        """A transaction that was just committed has sent this."""
        listeners = self._listeners.get(channel, [])
        listeners[:] = [each for each in listeners if not each[0].is_closed()]
        for connection, callback in listeners:
            connection.deliver(callback, channel, payload)
