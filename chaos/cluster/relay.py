"""One line of the proxy: the current state of its network, and its connections."""

import asyncio
import socket
import struct
from collections import deque
from typing import cast

from chaos.cluster.wire import GSS_REQUEST, SSL_REQUEST, Frames, Statements, code_of

_RESET_ON_CLOSE = struct.pack("ii", 1, 0)  # linger on, for 0 s: close() sends RST


class Line:
    """The state of a network; several faults may hold at once, until `pass_all`."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.delay_s = 0.0
        """Of everything that passes, each way."""
        self.replies_to_lose = 0
        self.lost_reply_count = 0
        self.torn_count = 0
        """How many writes lost their connection before the reply arrived."""
        self.connection_count = 0
        """How many connections were accepted in all."""
        self.relays: set[Relay] = set()
        self.is_taken = False
        """By a nemesis, which will heal it."""
        self._holes = {True: False, False: False}

    @property
    def is_writing(self) -> bool:
        """Whether a write is in flight: sent by the client, and not answered yet."""
        return any(relay.statements.is_writing for relay in self.relays)

    @property
    def is_claiming(self) -> bool:
        """Whether a claim of jobs is in flight."""
        return any(relay.statements.is_claiming for relay in self.relays)

    def blackhole(self, *, up: bool = True, down: bool = True) -> None:
        """Let nothing pass to the server (up), to the client (down), or either way.

        Connections stay open, new ones are accepted, and neither end notices when the other ends.
        """
        self._holes[True] |= up
        self._holes[False] |= down

    def slow(self, delay_s: float) -> None:
        """Delay everything by this much, each way."""
        self.delay_s = delay_s

    def reset(self) -> None:
        """Cut every connection at once; new ones pass."""
        for relay in tuple(self.relays):
            relay.abort()

    def lose_replies(self, count: int = 1) -> None:
        """Swallow the replies to the next `count` commits, then cut those connections.

        A commit is a COMMIT, or a single statement that writes.
        """
        self.replies_to_lose += count

    def pass_all(self) -> None:
        """Let everything pass, including what was held back."""
        self._holes = {True: False, False: False}
        self.delay_s = 0.0
        self.replies_to_lose = 0
        for relay in tuple(self.relays):
            relay.is_held = False
            relay.flush()

    def holds(self, *, is_up: bool) -> bool:
        """Whether nothing passes this way."""
        return self._holes[is_up]


class Relay:
    """One connection through a line, from the client to the server."""

    def __init__(self, line: Line, socket_path: str) -> None:
        self.line = line
        self.statements = Statements()
        self.is_held = False
        """Nothing of this connection passes, either way."""
        self.client = _Side(self, is_client=True)
        self.server = _Side(self, is_client=False)
        self._socket_path = socket_path
        self._connecting: asyncio.Task[None] | None = None
        self._taking: asyncio.Task[None] | None = None
        self.is_over = False
        """Both ends are closed, or will be as soon as they exist."""

    def take(self, client: socket.socket) -> None:
        """Relay a new client; from now on it can be cut."""
        self.line.connection_count += 1
        self.line.relays.add(self)
        client.settimeout(0)
        self._taking = asyncio.get_running_loop().create_task(self._take(client))

    async def _take(self, client: socket.socket) -> None:
        try:
            await asyncio.get_running_loop().connect_accepted_socket(lambda: self.client, client)
        except OSError:
            client.close()
            self.abort()
            return
        self._connect()

    def flush(self) -> None:
        """Pass on what may pass by now."""
        self._connect()
        self.client.flush()
        self.server.flush()

    def abort(self) -> None:
        """Cut both ends: they see a reset."""
        for side in (self.client, self.server):
            side.reset()
        self.end()

    def end(self) -> None:
        """Close both ends, each after it has sent what was passed on to it."""
        self.is_over = True
        if self in self.line.relays:
            self.line.relays.discard(self)
            self.line.torn_count += self.statements.is_writing
        if self._connecting is not None:
            self._connecting.cancel()
        for side in (self.client, self.server):
            side.close()

    def _connect(self) -> None:
        """Connect to the server; if nothing gets there, do it when the black hole is over."""
        if self._connecting is None and not self.is_over and not self.line.holds(is_up=True):
            self._connecting = asyncio.get_running_loop().create_task(self._reach_server())

    async def _reach_server(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            await loop.create_unix_connection(lambda: self.server, self._socket_path)
        except OSError:
            self.abort()
            return
        self.client.flush()


class _Side(asyncio.Protocol):
    """One end of a relay: passes what it receives on to the other end."""

    def __init__(self, relay: Relay, *, is_client: bool) -> None:
        self.transport: asyncio.Transport | None = None
        self._relay = relay
        self._is_client = is_client
        self._frames = Frames(is_from_client=is_client)
        self._waiting: deque[tuple[float, bytes | None]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._reply = bytearray()
        self._is_paused = False
        self._loop = asyncio.get_running_loop()

    @property
    def _other(self) -> "_Side":
        return self._relay.server if self._is_client else self._relay.client

    # --- called by the loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        if self._relay.is_over:  # it was cut before it was established
            self.reset()

    def data_received(self, data: bytes) -> None:
        self._waiting.append((self._loop.time() + self._relay.line.delay_s, data))
        self.flush()

    def eof_received(self) -> bool:
        self._waiting.append((self._loop.time() + self._relay.line.delay_s, None))
        self.flush()
        return True  # the other end is closed when its turn comes

    def connection_lost(self, _: Exception | None) -> None:
        self._waiting.append((self._loop.time(), None))
        self.flush()

    def pause_writing(self) -> None:
        if (source := self._other.transport) is not None:
            source.pause_reading()

    def resume_writing(self) -> None:
        if (source := self._other.transport) is not None:
            source.resume_reading()

    # --- passing on

    def flush(self) -> None:
        """Pass on what is due; stop reading while nothing passes."""
        is_held = self._relay.is_held or self._relay.line.holds(is_up=self._is_client)
        self._pause(is_held=is_held)
        if is_held or (self._other.transport is None and not self._is_gone):
            return
        while self._waiting:
            due_at, data = self._waiting[0]
            if due_at > self._loop.time():
                self._wake_at(due_at)
                return
            self._waiting.popleft()
            if data is None:
                self._relay.end()
                return
            self._pass(data)

    def reset(self) -> None:
        """Make its closing a reset; what was still to be sent is lost."""
        if self.transport is not None:
            linger = (socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
            if self._is_client and not self.transport.is_closing():
                self.transport.get_extra_info("socket").setsockopt(*linger)
            self.transport.abort()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self.transport is not None:
            self.transport.close()

    def _pause(self, *, is_held: bool) -> None:
        """Stop reading while nothing passes; the data stays in the kernel's buffers."""
        if self._is_paused == is_held or self.transport is None or self.transport.is_closing():
            return
        self._is_paused = is_held
        self.transport.pause_reading() if is_held else self.transport.resume_reading()

    @property
    def _is_gone(self) -> bool:
        return bool(self._waiting) and self._waiting[0][1] is None

    def _wake_at(self, due_at: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(due_at, self.flush)

    def _pass(self, data: bytes) -> None:
        if self._is_client:
            self._note_request(data)
        elif not self._note_reply(data):
            return
        target = self._other.transport
        if target is not None and not target.is_closing():
            target.write(data)

    def _note_request(self, data: bytes) -> None:
        for message in self._frames.feed(data):
            if message.kind:
                self._relay.statements.sent(message)
            elif code_of(message.body) in (SSL_REQUEST, GSS_REQUEST):
                self._other.expect_plain()

    def expect_plain(self) -> None:
        """Expect one byte that is not a message."""
        self._frames.plain_bytes = 1

    def _note_reply(self, data: bytes) -> bool:
        """False when the caller must not pass it on: it is swallowed, or passed on as a whole."""
        line = self._relay.line
        is_committed = False
        for message in self._frames.feed(data):
            is_committed |= self._relay.statements.answered(message)
        if line.replies_to_lose <= 0 and not self._reply:
            return True
        self._reply += data
        if is_committed and line.replies_to_lose > 0:
            line.replies_to_lose -= 1
            line.lost_reply_count += 1
            self._relay.abort()
            return False
        if self._relay.statements.is_writing and line.replies_to_lose > 0:
            return False  # its end is not known yet
        whole, self._reply = bytes(self._reply), bytearray()
        target = self._other.transport
        if target is not None and not target.is_closing():
            target.write(whole)
        return False
