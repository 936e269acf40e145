"""A client of server-sent events, as browsers have one, that a test can hold back."""

import http.client
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import attrs

from tests.support.eventually import WITHIN_S


@attrs.frozen(kw_only=True)
class Event:
    """One event; `id` is the last one that was seen by then."""

    name: str
    data: Any
    id: str


class Events:
    """Events of one connection. Iterating ends with the stream."""

    def __init__(self, connection: http.client.HTTPConnection) -> None:
        self._connection = connection
        self.comments: list[str] = []
        self.last_id = ""

    @cached_property
    def response(self) -> http.client.HTTPResponse:
        """Waited for when it is first looked at."""
        return self._connection.getresponse()

    def __iter__(self) -> Iterator[Event]:
        name, data = "", ""
        while line := self.response.readline().decode():
            field, _, value = line.rstrip("\n").partition(": ")
            match field:
                case "event":
                    name = value
                case "data":
                    data = value
                case "id":
                    self.last_id = value
                case "" if not value and name:
                    yield Event(name=name, data=json.loads(data), id=self.last_id)
                    name, data = "", ""
                case "" if value:
                    self.comments.append(value)
                case _:
                    pass

    def until(self, name: str) -> list[Event]:
        """Take events until one of this name has come."""
        found = []
        for event in self:
            found.append(event)
            if event.name == name:
                return found
        raise AssertionError(f"the stream ended without {name}: {found}")


@contextmanager
def follow(
    address: tuple[str, int], path: str, *, token: str, headers: Mapping[str, str] = {}
) -> Iterator[Events]:
    """Open a stream for as long as the block."""
    connection = http.client.HTTPConnection(*address, timeout=WITHIN_S)
    try:
        sent = {"Authorization": f"Bearer {token}", **headers}
        connection.request("GET", path, headers=sent)
        yield Events(connection)
    finally:
        connection.close()
