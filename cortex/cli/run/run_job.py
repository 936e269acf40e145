"""`cortex run`: one job to its end in this terminal, with a pod of its own beside it.

The pod is a child of this process that runs this job and no other. This process submits the job,
shows what happens to it, and asks for its approvals. Whatever ends this process ends the pod: the
job is then handed back, and waits.
"""

import logging
import os
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from types import ModuleType
from typing import Final
from uuid import UUID

import attrs
import click

from cortex.cli.apps import App, load_apps, path_option, registry_with
from cortex.cli.asking import acting_in
from cortex.cli.completing import known
from cortex.cli.failures import INTERRUPTED
from cortex.cli.jobs.facts import Snapshot, is_ending
from cortex.cli.jobs.follow import FactPrinter, status_line
from cortex.cli.jobs.job_page import block, steps_lines
from cortex.cli.jobs.payload import read_payload, split_arguments, with_arguments
from cortex.cli.jobs.show import STEPS_DEFAULT, read_record
from cortex.cli.jobs.watch import exit_by, looks
from cortex.cli.options import Command, Options, Text
from cortex.cli.run.forked_pod import ForkedPod, fork_pod, settings_beside
from cortex.cli.run.job_approvals import ask_for
from cortex.cli.run.pod_lines import PodLines
from cortex.cli.screen.live_line import LiveLine, live_line
from cortex.cli.screen.logs import configure_logs
from cortex.cli.screen.output import Output
from cortex.cli.screen.typed import typed
from cortex.cli.synonyms import is_id
from cortex.cli.target import session
from cortex.config import Settings
from cortex.domain.argument_check import check_payload
from cortex.domain.clock import system_chance
from cortex.domain.errors import UnavailableError, UsageError
from cortex.domain.job import Submission
from cortex.domain.phrases import short_id
from cortex.domain.policy import NAME_MAX, refuse_bulk, require_agent
from cortex.domain.safe import safe
from cortex.domain.waiting import ID_DIGITS
from cortex.durable.registry import Registry
from cortex.jobs import builtin_registry
from cortex.postgres.session import Session
from cortex.store import jobs

OUTPUT_S: Final = 1.0
"""Wait for the pod's last lines."""
BAR: Final = "│ "
"""Before a line that the job printed."""


@click.command("run", cls=Command)
@click.argument("app", type=App(), metavar="APP")
@click.argument("job", metavar="[JOB]", required=False, shell_complete=known("job"))
@click.argument("pairs", metavar="[K=V…]", nargs=-1)
@path_option
@click.option("--payload", metavar="JSON|@FILE|-", help="A JSON object: the handler's arguments.")
@click.option(
    "--agent",
    type=Text(NAME_MAX),
    metavar="NAME",
    help="The agent to run.",
    shell_complete=known("agent"),
)
@click.pass_obj
def run(
    options: Options,
    *,
    app: str,
    job: str | None,
    pairs: tuple[str, ...],
    payload: str | None,
    agent: str | None,
) -> None:
    """Run one job to its end in this terminal, and show its steps and its result.

    APP is a file or module, JOB a job type of it, which may be left out if it has one, or the id of
    a job to go on with; K=V are its arguments, JSON or else text. Approvals are asked for here.
    Ctrl-C hands the job back: it waits, and the command that goes on with it is shown. The database
    is that of the settings, else the embedded one; of its jobs no other is run.
    """
    output = Output(options)
    options.refuse_columns("run shows one job, it has no columns")
    if job is not None and "=" in job:
        pairs, job = (job, *pairs), None
    settings = settings_beside(options)
    registry = registry_with(_loaded(app, [job or "", *pairs]))
    wanted = _Wanted(app=app, registry=registry, settings=settings, output=output)
    if job is not None and is_id(job) and registry.find(job) is None:
        if pairs or payload or agent:
            raise UsageError(f"{job} is a job with its own arguments", hint="give none")
        wanted.name = job
    else:
        wanted.submission = _submission(
            job or _only_job(app, registry.names),
            pairs=pairs,
            payload=payload,
            agent=agent,
            registry=registry,
        )
    raise click.exceptions.Exit(wanted.run(options))


def _loaded(app: str, others: Sequence[str]) -> Sequence[ModuleType]:
    try:
        return load_apps((app,))
    except UsageError as error:
        if not app.isidentifier() or find_spec(app) is not None:
            raise
        words = shlex.join(each for each in (app, *others) if each)
        hint = (
            f"name a file, such as app.py; to submit it to pods: cortex jobs submit --wait {words}"
        )
        raise UsageError(error.message, hint=hint) from error


def _submission(
    job_type: str,
    *,
    pairs: Sequence[str],
    payload: str | None,
    agent: str | None,
    registry: Registry,
) -> Submission:
    """Check the job as `jobs submit` does, against the handler that will run it."""
    refuse_bulk(job_type, None)
    require_agent(job_type, agent)
    own = registry.get(job_type)
    text = with_arguments(read_payload(payload), split_arguments(pairs), [own.schema])
    check_payload(job_type, text, own=own, live=[])
    return Submission(id=system_chance().new_id(), type=job_type, payload=text, agent=agent)


def _only_job(app: str, known: Sequence[str]) -> str:
    names = sorted({*known} - {*builtin_registry().names})
    if len(names) == 1:
        return names[0]
    if not names:
        raise UsageError(f"{app} has no job", hint="mark a function with @cortex.job")
    raise UsageError(f"{app} has {len(names)} jobs", hint=f"name one: {', '.join(names)}")


@attrs.define(kw_only=True)
class _Wanted:
    """The job to run: a new one, or one by its name."""

    app: str
    registry: Registry
    settings: Settings
    output: Output
    submission: Submission | None = None
    name: str = ""
    job_id: UUID | None = None
    """Once it exists."""
    is_over: bool = False

    def run(self, options: Options) -> int:
        """Run the job beside a pod; return the exit code."""
        reads, writes = os.pipe()
        pod = fork_pod(
            self.settings, (self.app,), outputs=(writes, writes), surroundings=_surroundings
        )
        os.close(writes)
        lines = PodLines(reads)
        lines.start()
        ended: Snapshot | None = None
        try:
            ended = self._beside(pod, lines, options)
        except KeyboardInterrupt:
            return INTERRUPTED
        finally:
            pod.hand_back()
            code = pod.close()
            lines.end(OUTPUT_S)
            if ended is None:
                self._show_lines(lines)
                self._say_how_to_go_on(code)
        exit_by([ended])
        return 0

    def _beside(self, pod: ForkedPod, lines: PodLines, options: Options) -> Snapshot:
        if self.submission is not None:
            pod.let_run(self.submission.id)
        else:
            with session(options) as call:
                job_id = self._unended(call)
            pod.let_run(job_id)
        pod.until_ready()
        with session(options) as call:
            if self.submission is not None:
                by = acting_in(call, None)
                call(jobs.submit_once, self.submission, by=by.name, credential=by.credential)
                job_id = self.submission.id
            else:
                job_id = self._unended(call)
            self.job_id = job_id
            if self.output.is_for_people:
                self.output.say(f"job {job_id}", "dim")
            ended = self._followed(call, job_id, pod, lines)
            self.is_over = True
            self._show(call, ended)
            return ended

    def _unended(self, call: Session) -> UUID:
        job_id = call(jobs.find, self.name)
        job = call(jobs.show, job_id)
        if job.status.is_terminal:
            hint = typed("jobs", "show", _end_of(job_id), settings=self.settings)
            raise UsageError(f"job {short_id(job_id)} is {job.status.value}", hint=hint)
        if job.type not in self.registry.names:  # its pod would never claim it
            message = f"{self.app} has no job {job.type!r}, which job {short_id(job_id)} is"
            raise UsageError(message, hint="name the application that has it")
        return job_id

    def _followed(self, call: Session, job_id: UUID, pod: ForkedPod, lines: PodLines) -> Snapshot:
        output, asked = self.output, set[UUID]()
        printer = FactPrinter(output.terminal)
        with live_line(output.terminal, is_on=output.is_for_people) as live:
            for observed in looks(call, job_id, output=output):
                self._show_lines(lines, live)
                if output.is_for_people and observed.facts:
                    live.clear()
                    printer.print(fact for fact in observed.facts if not is_ending(fact))
                if observed.is_over:
                    live.clear()
                    return observed
                ask_for(call, observed, asked, output=output, settings=self.settings, live=live)
                if (code := pod.exit_code) is not None:
                    raise UnavailableError(f"the pod has ended with exit code {code}")
                live.show(status_line(observed.job, output.terminal))
        raise AssertionError("polling ends with a job that is over")

    def _show_lines(self, lines: PodLines, live: LiveLine | None = None) -> None:
        """Show what the job and its pod have printed."""
        for line in filter(None, lines.taken()):
            if live is not None:
                live.clear()
            self.output.talk.write(self.output.talk.paint(BAR, "dim") + safe(line))
        self.output.talk.flush()

    def _show(self, call: Session, ended: Snapshot) -> None:
        steps_max = STEPS_DEFAULT if self.output.is_for_people else None
        record = call(read_record, ended.job.id, steps_max=steps_max)
        if not self.output.is_for_people:
            self.output.record(record.document, name=str(record.job.id), page=list)
            return
        terminal = self.output.terminal
        FactPrinter(terminal).print_ending(attrs.evolve(ended.job, result=None))
        for line in steps_lines(record, terminal):
            self.output.line(line)
        if record.job.result is not None:
            self.output.line("")
            for line in block(record.job.result, indent=""):
                self.output.line(line)
        if ended.job.error_message is not None:
            again = typed("jobs", "show", _end_of(ended.job.id), settings=self.settings)
            self.output.say(f"step by step: {again}", "dim")

    def _say_how_to_go_on(self, code: int) -> None:
        if self.job_id is None or self.is_over or not self.output.is_for_people:
            return
        name = _end_of(self.job_id)
        again = typed("run", self.app, name, settings=self.settings)
        end = typed("jobs", "cancel", name, settings=self.settings)
        left = "" if code in {0, INTERRUPTED, 143} else f" (its pod ended with exit code {code})"
        self.output.say(f"job …{name} waits{left}; to go on: {again}; to cancel it: {end}", "warn")


def _end_of(job_id: UUID) -> str:
    """Return the end of an id, to be typed."""
    return job_id.hex[-ID_DIGITS:]


@contextmanager
def _surroundings() -> Iterator[None]:
    with suppress(AttributeError):  # a test's stream
        sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    configure_logs(level=logging.ERROR, is_plain=True)
    yield
