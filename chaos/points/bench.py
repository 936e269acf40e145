"""What all trials share, and the trial itself: its own database and the pods on it."""

import asyncio
import json
import signal
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self
from uuid import UUID

import asyncpg
from attrs import asdict, define, evolve, field, frozen

from chaos import observer
from chaos.cluster.fork_server import ForkServer, Process
from chaos.cluster.ledger import Ledger, Terms
from chaos.cluster.model import SCRIPT, Model
from chaos.cluster.pods import pod_environment
from chaos.cluster.postgres import OWNER, Postgres, Row
from chaos.cluster.receiver import Receiver
from chaos.cluster.scale import SCALED
from chaos.history import History
from chaos.points.programs import REFUSED
from chaos.workloads.messages import SECRET, SECRET_VALUE
from chaos.workloads.old_jobs import ARCHIVE
from chaos.workloads.terms import terms_of
from cortex.crash_points import VARIABLE
from cortex.domain.clock import system_chance
from cortex.domain.errors import CortexError
from cortex.postgres.database import Database, Profile, open_database

SCALE: Final = evolve(SCALED, zombie_s=4.0, settle_s=0.0, peer_check_s=0.25, poll_s=0.2, slots=4)
"""No server has just started, so no settling is needed."""
PATIENT_S: Final = 30.0
"""Instead of `zombie_s` where no pod is stopped: a slow machine must not cost a pod its job."""
POLL_S: Final = 0.03
WITHIN_S: Final = 240.0
"""Ample: it is only used up if something is wrong, and machines may be slow."""
UNPROCESSABLE: Final = 422
_ENTER_TYPES: Final = """
    INSERT INTO cortex.job_type SELECT * FROM jsonb_populate_recordset(NULL::cortex.job_type, $1)
    ON CONFLICT DO NOTHING
"""


class MissingError(Exception):
    """What a trial waited for did not happen."""


class AppError(Exception):
    """No pod starts with the application."""


TROUBLE: Final = (MissingError, CortexError, OSError, TimeoutError, asyncpg.PostgresError)
"""What keeps a trial from ending."""


@frozen
class TrialPod:
    name: str
    process: Process
    log_path: Path

    @property
    def log(self) -> str:
        return self.log_path.read_text("utf-8", "replace")

    @property
    def ready(self) -> dict[str, Any] | None:
        """What it printed when it was ready; an app may print before it."""
        for line in self.log_path.with_suffix(".out").read_text("utf-8").splitlines():
            if line.startswith('{"schema_version"') and line.endswith("}"):
                document: dict[str, Any] = json.loads(line)
                return document
        return None

    @property
    def is_dead(self) -> bool:
        return self.process.poll() is not None

    @property
    def is_stopped(self) -> bool:
        try:
            stat = Path(f"/proc/{self.process.pid}/stat").read_text()
        except (FileNotFoundError, ProcessLookupError):
            return False
        return stat.rpartition(")")[2].split()[0] == "T"

    @property
    def is_hit(self) -> bool:
        """It reached the point at which it ends or stops itself."""
        return self.is_dead or self.is_stopped


@define(eq=False)
class Bench:
    """The server, the model and the ledger of all trials."""

    folder: Path
    app: str
    script: str = SCRIPT
    has_own_models: bool = False
    """Each trial has its own model: nothing in its requests distinguishes trials."""
    imported: tuple[str, ...] = ()
    """Further modules that pods find imported when they start."""
    postgres: Postgres = field(init=False)
    forks: ForkServer = field(init=False)
    ledger: Ledger = field(init=False)
    receiver: Receiver = field(init=False)
    model: Model = field(init=False)
    history: History = field(init=False)
    job_types: list[dict[str, Any]] = field(init=False, factory=list)
    """The rows of all job types that the app's pods register."""
    _exits: AsyncExitStack = field(init=False, factory=AsyncExitStack)
    _count: int = field(init=False, default=0)

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

    def trial(self, *, has_stops: bool) -> "Trial":
        """Make a trial, to be entered; `has_stops`: a pod is stopped in it."""
        self._count += 1
        return Trial(
            self, key=f"t{self._count}", zombie_s=SCALE.zombie_s if has_stops else PATIENT_S
        )

    async def _build(self) -> None:
        keep = self._exits
        home = self.folder / "postgres"
        home.mkdir(mode=0o711)
        self.history = History(self.folder / "history.jsonl")
        keep.callback(self.history.close)
        self.forks = keep.enter_context(
            ForkServer(
                "anthropic",
                "cortex.http_client.tls:trusted",
                "cortex.demo.server",
                "cortex.http.server",
                "cortex.cli.run.tick",
                "chaos.points.app",
                *self.imported,
            )
        )
        self.postgres = Postgres(home)
        keep.push_async_callback(self.postgres.stop, "immediate")
        await self.postgres.start()
        await self.postgres.create()  # and with it the template of all others
        # Hundreds of databases with one job each: there is nothing to vacuum, but each would be
        # visited.
        await self.postgres.configure("autovacuum", "off")
        self.ledger = keep.enter_context(Ledger(terms_of=_terms_of))
        self.receiver = keep.enter_context(Receiver(is_troubled=False))
        self.model = Model(self.forks, folder=self.folder, history=self.history)
        keep.callback(self.model.close)
        if not self.has_own_models:
            await self.model.start((), script=self.script)
        await self._learn_types()

    async def _learn_types(self) -> None:
        """Let a pod register the app's job types, for jobs submitted before any pod runs."""
        async with Trial(self, key="types") as trial:
            pod = trial.start("pod")
            await trial.until(lambda: pod.is_dead or pod.ready, "a pod is ready")
            if pod.is_dead:
                raise AppError(_why_of(pod.log))
            (row,) = await trial.sql(
                "SELECT jsonb_agg(to_jsonb(t)) AS types FROM cortex.job_type t"
            )
            self.job_types = json.loads(row["types"])


def _why_of(log: str) -> str:
    """The last error of a pod, as people see it."""
    line = log.strip().rpartition("\n")[2]
    try:
        return str(json.loads(line)["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return line


def _terms_of(account: str) -> Terms:
    return Terms(refusal=UNPROCESSABLE) if account.startswith(REFUSED) else terms_of(account)


@define(eq=False)
class Trial:
    """One job in its own database; on leaving, all of its pods are gone."""

    bench: Bench
    key: str
    zombie_s: float = PATIENT_S
    owned: str = field(init=False)
    """The address of its database, as superuser."""
    dsn: str = field(init=False)
    """The same as its pods have it."""
    model: Model = field(init=False)
    db: Database = field(init=False)
    folder: Path = field(init=False)
    pods: list[TrialPod] = field(init=False, factory=list)
    token: str = field(init=False, default="")
    """Of the API."""
    old: dict[str, bool] = field(init=False, factory=dict)
    """The jobs that ended long before, and whether something refers to them."""

    async def __aenter__(self) -> Self:
        self.folder = self.bench.folder / self.key
        self.folder.mkdir()
        self.owned = await self.bench.postgres.create(self.key)
        await observer.install(self.owned)
        self.dsn = self.owned.replace("//postgres@", f"//{OWNER}@", 1)
        self.model = self.bench.model
        if self.has_own_model:
            bench = self.bench
            self.model = Model(bench.forks, folder=self.folder, history=bench.history)
            await self.model.start((), script=bench.script)
        # As the owner, who also moves times, and fills budgets.
        profile = Profile(dsn=self.owned, role=None, connections_max=2)
        self.db = await open_database(profile, rng=system_chance().rng)
        await self.sql(_ENTER_TYPES, json.dumps(self.bench.job_types))
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for pod in self.pods:
            pod.process.kill()
        if self.has_own_model:
            self.model.close()
        await asyncio.shield(self.db.close())

    @property
    def has_own_model(self) -> bool:
        return self.bench.has_own_models

    @property
    def archive(self) -> Path:
        """The folder in which retention keeps copies."""
        return self.folder / ARCHIVE

    def subscription(self, word: str) -> str:
        """Return the name of its subscription to topics that begin with a word."""
        return f"chaos-{self.key}-{word}"

    def start(self, name: str, at: str = "", **settings: object) -> TrialPod:
        """Start a pod; `at` is what it does at which point."""
        return self._start("up", name, at, settings)

    def tick(self, name: str, at: str = "", **settings: object) -> TrialPod:
        """Start a tick, which ends by itself."""
        return self._start("tick", name, at, settings)

    def _start(self, command: str, name: str, at: str, settings: Mapping[str, object]) -> TrialPod:
        log_path = self.folder / f"{name}.log"
        env = pod_environment(
            {**asdict(SCALE), "zombie_s": self.zombie_s, **settings},
            folder=self.folder,
            PYTHONPATH=str(Path(__file__).parent.parent.parent),
            ANTHROPIC_BASE_URL=self.model.url,
            ANTHROPIC_API_KEY="scripted",
            CHAOS_LEDGER=self.bench.ledger.url,
            CORTEX_HTTP_ALLOW=self.bench.receiver.address,
            **{SECRET: SECRET_VALUE},
            CORTEX_DSN=self.dsn,
            **({VARIABLE: at} if at else {}),
        )
        with log_path.open("wb") as log, log_path.with_suffix(".out").open("wb") as out:
            process = self.bench.forks.start(
                [command, "--app", self.bench.app, "--json"],
                env=env,
                cwd=Path.cwd(),
                stdout=out,
                stderr=log,
            )
        pod = TrialPod(name, process, log_path)
        self.pods.append(pod)
        return pod

    async def sql(self, query: str, *args: object) -> list[Row]:
        rows = await self.db.transact(lambda connection: connection.fetch(query, *args))
        return [dict(row) for row in rows]

    async def submit(self, job_type: str, payload: Mapping[str, Any]) -> UUID:
        """Submit the job as any program would."""
        query = "SELECT cortex.submit_job($1, $2::jsonb) AS id"
        (row,) = await self.sql(query, job_type, json.dumps(payload))
        job_id: UUID = row["id"]
        return job_id

    async def until(
        self, holds: Callable[[], object], what: str, *, within_s: float = WITHIN_S
    ) -> None:
        """Wait until the condition holds. Raises `MissingError`."""
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + within_s
        while not holds():
            if loop.time() > give_up_at:
                raise MissingError(f"not within {within_s:g} s: {what}")
            await asyncio.sleep(POLL_S)

    async def until_row(
        self, query: str, *args: object, what: str, within_s: float = WITHIN_S
    ) -> Row:
        """Wait until a query has a row; return it. Raises `MissingError`."""
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + within_s
        while not (rows := await self.sql(query, *args)):
            if loop.time() > give_up_at:
                raise MissingError(f"not within {within_s:g} s: {what}")
            await asyncio.sleep(POLL_S)
        return rows[0]

    async def end(self, pod: TrialPod) -> int:
        """Let a pod drain; return its exit code. Raises `MissingError`."""
        await self.until(lambda: pod.is_dead or pod.ready, f"{pod.name} is ready")
        pod.process.send_signal(signal.SIGTERM)
        await self.until(lambda: pod.is_dead, f"{pod.name} leaves")
        return pod.process.wait()
