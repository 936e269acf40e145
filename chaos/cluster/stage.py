"""Everything that one run consists of: server, proxy, pods, model, ledger, approver, client."""

import asyncio
import random
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from attrs import asdict, define, field, frozen

from chaos import observer
from chaos.cluster.approver import Approver
from chaos.cluster.command import Commands
from chaos.cluster.disk import Disk
from chaos.cluster.fork_server import ForkServer
from chaos.cluster.ledger import Ledger
from chaos.cluster.model import Model
from chaos.cluster.pods import Pod, Pods, Release, pod_environment
from chaos.cluster.postgres import OWNER, Postgres
from chaos.cluster.proxy import Proxy, ProxyLine
from chaos.cluster.receiver import Receiver
from chaos.cluster.scale import Scale
from chaos.evidence import Settings
from chaos.history import History
from chaos.workloads.client import Client
from chaos.workloads.messages import HOOK, SECRET, SECRET_VALUE, SUBSCRIBE, config_of_hook
from chaos.workloads.terms import terms_of

APP = "chaos.workloads.app"
PAUSE_S = (0.1, 1.5)
"""How long a place stays empty after a pod's death."""


def canary_of(seed: int) -> str:
    """The secret of a run, from its seed; the plan may make the model repeat it."""
    return f"sk-ant-canary-{seed:08x}-{'Kq7' * 8}"


@frozen(kw_only=True)
class StagePlan:
    """What a stage is built from."""

    seed: int
    pod_count: int
    scale: Scale
    workers: int = 1
    """Processes of each pod."""
    release: Release = field(factory=lambda: Release(app=APP))
    model_rules: Sequence[Mapping[str, Any]] = ()
    """Rules of a fault file; their times count from the start of the load."""
    environment: Mapping[str, str] = field(factory=dict)
    """Of each pod, in addition."""
    disk_mib: int | None = None
    """Size of the data's own disk; None for no separate disk, which cannot be filled."""
    delay_s: float = 0.0
    """Of each packet between pods and Postgres, until something heals their lines."""
    away_s: float = 0.0
    """How long the receiver of messages refuses them, from the first one on."""


@define(eq=False)
class Stage:
    """What nemeses act on; built on entering, removed without a trace on leaving."""

    plan: StagePlan
    folder: Path
    """The run's own directory; its creator removes it."""
    history: History
    disk: Disk | None = field(init=False, default=None)
    """Where the data lies."""
    postgres: Postgres = field(init=False)
    proxy: Proxy = field(init=False)
    pods_kept: Pods = field(init=False)
    client_line: ProxyLine = field(init=False)
    """How clients and the approver reach Postgres."""
    model: Model = field(init=False)
    ledger: Ledger = field(init=False)
    receiver: Receiver = field(init=False)
    """Of messages."""
    environment: dict[str, str] = field(init=False)
    """Of pods, except for their connection to Postgres."""
    fork_server: ForkServer = field(init=False)
    approver: Approver = field(init=False)
    client: Client = field(init=False)
    command: Commands = field(init=False)
    """What people type: a command of `cortex`, which reaches Postgres as clients do."""
    paused: set[str] = field(init=False, factory=set)
    """What faults have paused: each is resumed by the one that has paused it."""
    _exits: AsyncExitStack = field(init=False, factory=AsyncExitStack)

    @property
    def canary(self) -> str:
        """The secret that its pods get: it must not appear anywhere."""
        return canary_of(self.plan.seed)

    @property
    def pods(self) -> list[Pod]:
        """The pods that are alive, by their places; a stopped one is alive."""
        return self.pods_kept.running

    @property
    def settings(self) -> Settings:
        return self.plan.scale.figures

    @property
    def pod_lines(self) -> list[ProxyLine]:
        """The pods' lines to Postgres, by their places, whichever pod runs there."""
        return [place.line for place in self.pods_kept.places]

    async def heal(self) -> None:
        """Undo what a nemesis may have left: stopped pods, broken lines, a server that is down."""
        for pod in self.pods:
            if pod.is_stopped or pod.stopped_workers:
                pod.cont()
        for line in self.proxy.lines.values():
            await line.heal()
        await self.postgres.start()

    async def __aenter__(self) -> Self:
        try:
            await self._build()
        except BaseException:
            await self._exits.aclose()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await asyncio.shield(self._exits.aclose())

    async def _build(self) -> None:
        dice = random.Random(f"stage of {self.plan.seed}")
        keep = self._exits
        home = self.folder / "postgres"
        home.mkdir(mode=0o711)
        fork_server = self.fork_server = keep.enter_context(
            ForkServer(
                "anthropic",
                "cortex.http_client.tls:trusted",
                "cortex.demo.server",
                "cortex.cli.run.tick",
                APP,
            )
        )
        if self.plan.disk_mib is not None:
            self.disk = keep.enter_context(Disk(self.folder / "disk", size_mib=self.plan.disk_mib))
        self.postgres = Postgres(home)
        keep.push_async_callback(self.postgres.stop, "immediate")
        await self.postgres.start()
        await self.postgres.create(disk=self.disk)
        await observer.install(self.postgres.dsn)
        self.proxy = Proxy(self.postgres.socket_path, database=self.postgres.database, user=OWNER)
        keep.push_async_callback(self.proxy.close)
        self.client_line = await self.proxy.open("clients")
        self.ledger = keep.enter_context(Ledger(terms_of=terms_of))
        self.receiver = keep.enter_context(Receiver(away_s=self.plan.away_s))
        await self.postgres.sql(SUBSCRIBE, HOOK, "*", config_of_hook(self.receiver.url))
        self.model = Model(fork_server, folder=self.folder, history=self.history)
        keep.callback(self.model.close)
        self.approver = Approver(
            self.client_line.dsn,
            seed=self.plan.seed,
            ledger=self.ledger,
            history=self.history,
        )
        self.client = Client(self.client_line.dsn, history=self.history)
        keep.push_async_callback(self.approver.close)
        keep.push_async_callback(self.client.close)
        self.environment = self._environment()
        self.command = Commands(
            fork_server=fork_server,
            folder=self.folder,
            environment={**self.environment, "CORTEX_DSN": self.client_line.dsn},
        )
        self.pods_kept = Pods(
            fork_server,
            release=self.plan.release,
            folder=self.folder,
            environment=self.environment,
            history=self.history,
            pause_s=lambda: dice.uniform(*PAUSE_S),
        )
        keep.push_async_callback(self.pods_kept.close)
        for number in range(1, self.plan.pod_count + 1):
            line = await self.proxy.open(f"p{number}")
            line.slow(self.plan.delay_s)
            self.pods_kept.add(line)
        await self.pods_kept.until_ready()
        await self.model.start(self.plan.model_rules)

    def _environment(self) -> dict[str, str]:
        return pod_environment(
            asdict(self.plan.scale),
            folder=self.folder,
            PYTHONPATH=str(Path(__file__).parent.parent.parent),
            ANTHROPIC_BASE_URL=self.model.url,
            ANTHROPIC_API_KEY=self.canary,
            CHAOS_LEDGER=self.ledger.url,
            CHAOS_RECEIVER=self.receiver.url,
            CORTEX_HTTP_ALLOW=self.receiver.address,
            **{SECRET: SECRET_VALUE},
            CORTEX_WORKERS=str(self.plan.workers),
            **self.plan.environment,
        )
