"""As much of the Postgres protocol as distinguishes writes from reads, and committed writes."""

import re
import struct
from collections.abc import Iterator

from attrs import frozen

SSL_REQUEST = 80877103
GSS_REQUEST = 80877104
PROTOCOL_3 = 3
FATAL = b"\0VFATAL\0"
"""Part of an error that ends the session."""

_WRITES = re.compile(
    rb"""\b(?: COMMIT | INSERT\s+INTO | DELETE\s+FROM | MERGE\s+INTO
             | (?<!FOR\s)(?<!KEY\s) UPDATE\s )
       | \bcortex\.(?!now\b)\w+\(   # a transition that is a function of the database""",
    re.VERBOSE | re.IGNORECASE,
)

_CLAIMS = re.compile(rb"\bcortex\.claimable\(")


@frozen
class Message:
    """One message; `kind` is its type byte, empty for those that open a connection."""

    kind: bytes
    body: bytes


class Frames:
    """Cuts one direction of a connection into messages."""

    def __init__(self, *, is_from_client: bool) -> None:
        self._rest = bytearray()
        self._is_untyped = is_from_client
        self.plain_bytes = 0
        """Number of next bytes that belong to no message: the answer to an SSLRequest."""

    def feed(self, data: bytes) -> Iterator[Message]:
        """Yield the messages that this data completes."""
        self._rest += data
        if self.plain_bytes:
            taken = min(self.plain_bytes, len(self._rest))
            self.plain_bytes -= taken
            del self._rest[:taken]
        at = 0
        while (message := self._message(at)) is not None:
            at += len(message.kind) + 4 + len(message.body)
            yield message
        del self._rest[:at]

    def _message(self, at: int) -> Message | None:
        head = 0 if self._is_untyped else 1
        if len(self._rest) < at + head + 4:
            return None
        (length,) = struct.unpack_from("!I", self._rest, at + head)
        end = at + head + length
        if len(self._rest) < end:
            return None
        kind, body = bytes(self._rest[at : at + head]), bytes(self._rest[at + head + 4 : end])
        if self._is_untyped and code_of(body) >> 16 == PROTOCOL_3:
            self._is_untyped = False
        return Message(kind, body)

    @property
    def is_between_messages(self) -> bool:
        """No message is incomplete."""
        return not self._rest


def code_of(body: bytes) -> int:
    """The number at the start of a message that opens a connection."""
    return int.from_bytes(body[:4], "big")


class Statements:
    """The statement that a client sent last, and whether it writes."""

    def __init__(self) -> None:
        self._writes_by_name: dict[bytes, bool] = {}
        self._claims: set[bytes] = set()
        """The names of statements that claim jobs."""
        self.is_writing = False
        """A write was sent, and its reply has not arrived yet."""
        self.is_claiming = False
        """That write claims jobs."""
        self.is_in_transaction = False
        """The server waits for the next statement of a transaction, or for its end."""
        self.backend_pid: int | None = None
        """The server's process at the other end, once it has reported it."""

    def sent(self, message: Message) -> None:
        match message.kind:
            case b"Q":
                self.is_writing = bool(_WRITES.search(message.body))
            case b"P":
                name, _, rest = message.body.partition(b"\0")
                text = rest.partition(b"\0")[0]
                self._writes_by_name[name] = bool(_WRITES.search(text))
                if _CLAIMS.search(text):
                    self._claims.add(name)
                else:
                    self._claims.discard(name)
            case b"B":
                name = message.body.partition(b"\0")[2].partition(b"\0")[0]
                self.is_writing = self._writes_by_name.get(name, False)
                self.is_claiming = name in self._claims
            case _:
                pass

    def answered(self, message: Message) -> bool:
        """Note the server's answer; return whether it confirms the commit of a write."""
        if message.kind == b"E" and FATAL not in message.body:
            self.is_writing = self.is_claiming = False
        if message.kind == b"K":
            self.backend_pid = code_of(message.body)
        if message.kind != b"Z":
            return False
        self.is_in_transaction = message.body != b"I"
        is_committed = self.is_writing and message.body == b"I"
        self.is_writing = self.is_claiming = False
        return is_committed
