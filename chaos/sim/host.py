"""Protocols for what the parts of a simulation use of the whole, and connections of their machine.

`World` and `Machine` implement them above, so that no file imports its user.
"""

from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeVar

from chaos.history import Type
from chaos.sim.clock import Clock, Turns
from chaos.sim.island import Island
from chaos.sim.network import Network
from chaos.sim.notices import Notices
from chaos.sim.pace import Pace
from chaos.sim.plan import Plan
from chaos.sim.server import Client, Server
from chaos.sim.transcript import Transcript
from cortex.runtime.pod_parts import PodParts

T = TypeVar("T")


class Scene(Protocol):
    """The simulation in which something happens."""

    plan: Plan
    seed: int
    server: Server
    clock: Clock
    turns: Turns
    pace: Pace
    notices: Notices
    transcript: Transcript
    parts: PodParts
    problems: list[str]
    is_stormy: bool

    async def sleep(self, seconds: float) -> None: ...

    def start_soon(self, work: Callable[..., Awaitable[None]], *args: object) -> None: ...

    async def elsewhere(self, work: Callable[[], Awaitable[T]]) -> T: ...

    def note(self, process: str, kind: str, type_: Type = "info", /, **value: Any) -> None: ...

    def ran(self, machine: "Host", query: str, args: tuple[object, ...], result: Any) -> None: ...


class Host(Protocol):
    """The machine of a connection."""

    name: str
    island: Island
    network: Network
    connections: list[Client]

    @property
    def world(self) -> Scene: ...
