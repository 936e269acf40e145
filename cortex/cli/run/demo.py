"""`cortex demo`: a database, a pod, a scripted model and a real job, in one process."""

import logging
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from uuid import UUID

import attrs
import click
import orjson
import trio

from cortex.agent.models.anthropic import standard
from cortex.agent.models.endpoint import Endpoint
from cortex.agent.models.providers import Models, endpoints_of
from cortex.cli.jobs.facts import Cursor, Snapshot, is_ending, snapshot
from cortex.cli.jobs.follow import FactPrinter, status_line
from cortex.cli.options import Command, Options
from cortex.cli.run.demo_approval import how_decided, how_to_decide, open_request
from cortex.cli.run.prices import prices_of
from cortex.cli.run.serve import serve
from cortex.cli.screen.live_line import live_line
from cortex.cli.screen.logs import configure_logs
from cortex.cli.screen.terminal import Terminal, stdout_terminal
from cortex.cli.screen.typed import typed
from cortex.cli.target import data_dir, settings_from
from cortex.config import Settings, files
from cortex.demo import mail
from cortex.demo.job import DEMO_JOBS, LIVE, REPORT, SCRIPTED, SCRIPTED_MODEL, demo_agent
from cortex.demo.script_inspect import inspect
from cortex.demo.server import serve as serve_model
from cortex.domain.approvals.approval import ApprovalRow
from cortex.domain.clock import system_chance
from cortex.domain.errors import ApprovalExpiredError, DeniedError
from cortex.domain.job import JobStatus, Submission
from cortex.domain.phrases import span
from cortex.domain.prices import PriceTable
from cortex.domain.safe import safe
from cortex.domain.waiting import ID_DIGITS
from cortex.durable.registry import Registry
from cortex.postgres.bridge import Port
from cortex.runtime.liveness.drain import Shutdown
from cortex.runtime.pod_parts import PodParts, standard_parts
from cortex.runtime.pod_ready import Ready
from cortex.store import approvals, jobs, specs
from cortex.store.jobs import FollowedJob
from cortex.store.people import system_user
from cortex.store.specs import SpecKind
from cortex.view.jobs import took_s
from cortex.view.phrases import money

POLL_S = 0.25
END_OF_THE_POD = {"pre_stop_s": 0.0, "abort_s": 3.0, "closed_s": 13.0, "kill_s": 23.0}
"""After Ctrl-C: enough for a step, short enough for a person."""
DEATHS_MAX = 1000
"""Users kill the demo on purpose: that must not make its job a poison job."""
SETTLE_S = 0.0
"""A repeated demo continues at once: no other pod runs its jobs, so no lock can be late."""
LABEL_CELLS = 9


@click.command(cls=Command)
@click.argument(
    "folder",
    required=False,
    type=click.Path(exists=True, file_okay=False, resolve_path=True, path_type=Path),
)
@click.option("--approve", is_flag=True, help="Let the agent mail its report, if you approve.")
@click.option("--model", metavar="NAME", help="A real model; needs the key of its provider.")
@click.pass_obj
def demo(options: Options, *, folder: Path | None, approve: bool, model: str | None) -> None:
    """See it work: an agent inspects a folder and writes a report, as a durable job.

    FOLDER defaults to the current git checkout. The model is a script that speaks the Messages API
    on loopback, so no key is needed. With --approve the agent asks to mail the report and waits
    until you decide, in `cortex tui` in a second terminal; the mail becomes a file. Stop the demo
    with Ctrl-C, or kill it, at any moment: the next run continues the same job.
    """
    settings = settings_from(options, deaths_max=DEATHS_MAX, settle_s=SETTLE_S, **END_OF_THE_POD)
    if model is not None:
        Models(endpoints_of(settings.models)).check(model)
    configure_logs(level=logging.ERROR)
    show = _Demo(
        settings=settings,
        prices=prices_of(settings),
        terminal=stdout_terminal(options.color),
        folder=folder or _checkout(Path.cwd()),
        model=model or SCRIPTED_MODEL,
        is_scripted=model is None,
        asks=approve,
    )
    raise click.exceptions.Exit(trio.run(show.run))


@attrs.define(kw_only=True, slots=False)
class _Demo:
    settings: Settings
    prices: PriceTable
    terminal: Terminal
    folder: Path
    model: str
    is_scripted: bool
    asks: bool
    """Whether the agent asks a person before it mails its report."""
    shutdown: Shutdown = attrs.field(factory=Shutdown)
    announced: set[UUID] = attrs.field(factory=set)
    """Requests whose instructions were already printed."""
    decided: list[ApprovalRow] = attrs.field(factory=list)
    """The requests, once the job is over."""
    ended: FollowedJob | None = None
    """The job, once it is over."""

    @property
    def job_type(self) -> str:
        return SCRIPTED if self.is_scripted else LIVE

    @property
    def payload(self) -> dict[str, object]:
        """The identity of the job: the same payload continues the same job."""
        return {"folder": str(self.folder), "model": self.model}

    async def run(self) -> int:
        """Run pod and job until the job's end or a signal; return the exit code."""
        name = f"{self.model} (a script on this machine)" if self.is_scripted else self.model
        self._show("model", name)
        self._show("folder", str(self.folder))
        async with AsyncExitStack() as stack:
            endpoints = endpoints_of(self.settings.models)
            if self.is_scripted:
                server = await stack.enter_async_context(serve_model(inspect))
                endpoints = (standard(base_url=server.base_url, api_key="scripted"),)
            exit_code = await serve(
                self.settings,
                lambda: self._parts(endpoints),
                on_ready=lambda ready: ready.nursery.start_soon(self._follow, ready),
                shutdown=self.shutdown,
            )
        return self._close(exit_code)

    def _parts(self, endpoints: tuple[Endpoint, ...]) -> PodParts:
        """Return the parts of an ordinary pod that runs only the demo's jobs."""
        parts = standard_parts(
            apps=[mail],
            workspaces=data_dir(self.settings) / "workspaces",
            prices=self.prices,
            hidden=tuple(path.resolve() for path in files()),
            is_unsafe=self.settings.unsafe_run_command,
            workspace_bytes=self.settings.workspace_mb << 20,
            endpoints=endpoints,
        )
        return attrs.evolve(parts, registry=Registry([DEMO_JOBS[self.job_type]]))

    async def _follow(self, ready: Ready) -> None:
        """Find or submit the job and report its progress; at its end stop the pod."""
        job_id = await self._job(ready.port)
        printer = FactPrinter(self.terminal)
        observed = await ready.port(snapshot, job_id, Cursor())
        with live_line(self.terminal, is_on=True) as live:
            while True:
                live.clear()
                printer.print(fact for fact in observed.facts if not is_ending(fact))
                if observed.is_over:
                    break
                self._tell_how_to_decide(observed)
                live.show(status_line(observed.job, self.terminal))
                await trio.sleep(POLL_S)
                observed = await ready.port(snapshot, job_id, observed.cursor)
        printer.print_ending(attrs.evolve(observed.job, result=None))
        self.decided = await ready.port(approvals.of_job, job_id)
        self.ended = observed.job
        self.shutdown.request()

    def _tell_how_to_decide(self, observed: Snapshot) -> None:
        request = open_request(observed)
        if request is None or request.id in self.announced:
            return
        self.announced.add(request.id)
        self.terminal.write("")
        for label, text in how_to_decide(request, partial(typed, settings=self.settings)):
            self._show(label, text)
        self.terminal.write("")
        self.terminal.flush()

    async def _job(self, port: Port) -> UUID:
        agent = demo_agent(self.job_type, self.model, asks=self.asks)
        chance = system_chance()
        await port(
            specs.apply,
            SpecKind.AGENT,
            new_id=chance.new_id(),
            name=agent.name,
            spec=agent.to_json(),
            by=system_user().name,
        )
        found = await port(jobs.unfinished, agent=agent.name, payload=self.payload)
        if found is not None:
            self._show("job", f"{found} continues after its last step")
        else:
            found = chance.new_id()
            payload = orjson.dumps(self.payload).decode()
            await port(
                jobs.submit,
                [Submission(id=found, type=self.job_type, payload=payload, agent=agent.name)],
            )
            self._show("job", str(found))
        self.terminal.write("")
        self.terminal.flush()
        return found

    def _close(self, exit_code: int) -> int:
        self.terminal.write("")
        job = self.ended
        if job is None:
            self._show("paused", f"nothing is lost; to continue: {self._again()}")
            return exit_code
        shown = job.id.hex[-ID_DIGITS:]
        next_ = f"{typed('jobs', 'show', shown, settings=self.settings)}    the job, step by step"
        for approval in self.decided:
            self._show("decided", how_decided(approval))
        if job.status is not JobStatus.COMPLETED:
            if job.error_code not in (DeniedError.code, ApprovalExpiredError.code):
                why = str(job.error_message or job.cancel_reason or "")
                self._show("failed", why)
            self._show("next", next_)
            return 6
        result = job.result
        took = span(took_s(job) or 0.0)
        tokens = result["input_tokens"] + result["output_tokens"]
        price = money(float(result["cost_usd"])) + (" of play money" if self.is_scripted else "")
        self._show("report", str(Path(result["workspace"]) / REPORT))
        for sent in sorted(Path(result["workspace"], mail.OUTBOX).glob("*")):
            self._show("mail", str(sent))
        self._show("used", f"{result['steps']} steps, {tokens:,} tokens, {price}, {took}")
        self._show("next", next_)
        self._show("", "kill -9 this demo halfway and run it again: it continues where it was")
        return exit_code

    def _again(self) -> str:
        """Return the command that continues the same job."""
        words = ["demo", *(["--approve"] if self.asks else [])]
        words += [] if self.is_scripted else ["--model", self.model]
        words += [] if self.folder == _checkout(Path.cwd()) else [str(self.folder)]
        return typed(*words, settings=self.settings)

    def _show(self, label: str, text: str) -> None:
        head = self.terminal.paint(f"{label:<{LABEL_CELLS}}", "dim")
        self.terminal.write(f"{head}{safe(text)}")


def _checkout(start: Path) -> Path:
    """Return the git checkout around a folder, or the folder itself."""
    for folder in (start, *start.parents):
        if (folder / ".git").exists():
            return folder
    return start
