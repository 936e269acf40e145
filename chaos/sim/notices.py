"""Notifications of Postgres, handed out when the seed says so.

Each connection hears all channels that anybody listens to, but heeds only what it has sent itself:
that comes with the reply to its own commit. So it is known at once what was announced, and to whom
and when it is told is not left to the kernel.
"""

from collections.abc import Callable
from typing import Any, Protocol

from attrs import define, field

Callback = Callable[..., Any]


class Listener(Protocol):
    """A connection that listens."""

    def is_closed(self) -> bool: ...

    def tell(self, callback: Callback, channel: str, payload: str) -> None: ...


@define
class Notices:
    """Who listens to what."""

    channels: list[str] = field(factory=list)
    """All that anybody ever listened to, in that order."""
    _listeners: dict[str, list[tuple[Listener, Callback]]] = field(factory=dict)

    def listen(self, channel: str, connection: Listener, callback: Callback) -> None:
        """Tell this callback of what is sent to a channel, as long as its connection is open."""
        if channel not in self.channels:
            self.channels.append(channel)
        self._listeners.setdefault(channel, []).append((connection, callback))

    def announce(self, channel: str, payload: str) -> None:
        """A transaction that was committed just now has sent this."""
        listeners = self._listeners.get(channel, [])
        listeners[:] = [each for each in listeners if not each[0].is_closed()]
        for connection, callback in listeners:
            connection.tell(callback, channel, payload)
