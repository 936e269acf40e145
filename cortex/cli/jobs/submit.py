"""`cortex jobs submit`: checks a job as far as possible, and submits it once."""

import os
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final
from uuid import UUID

import attrs
import click
import orjson

from cortex.cli.apps import app_options, registry_of
from cortex.cli.changes import ChangeRequest, changes
from cortex.cli.completing import known
from cortex.cli.jobs.follow import FactPrinter
from cortex.cli.jobs.payload import read_payload, split_arguments, with_arguments
from cortex.cli.jobs.submit_lines import (
    SUBMITTED_COLUMNS,
    SubmittedJob,
    naming_line,
    read_lines,
)
from cortex.cli.jobs.watch import ENDING_COLUMNS, exit_by, wait_for
from cortex.cli.options import PATH_CHARS_MAX, Command, Instant, Seconds, Text
from cortex.cli.screen.output import Output
from cortex.cli.starting_pod import StartingPod
from cortex.domain.argument_check import check_payload
from cortex.domain.clock import system_chance
from cortex.domain.job import APPROVAL_NOTIFY, Submission
from cortex.domain.phrases import short_id
from cortex.domain.policy import (
    DELAY_MAX_S,
    KEY_MAX,
    NAME_MAX,
    PRIORITY_MAX,
    RETRIES_MAX,
    TIMEOUT_MAX_S,
    check_timeout,
    default_timeout_s,
    refuse_bulk,
    request_of,
    require_agent,
)
from cortex.domain.tracing.traceparent import TraceParent
from cortex.durable.registry import JobType
from cortex.postgres.database import Database
from cortex.postgres.session import Session
from cortex.store import approvals, jobs, pulse
from cortex.store.codes import ServedType
from cortex.view.jobs import unserved
from cortex.view.resources.jobs import JOBS
from cortex.view.verbs import SUBMIT_JOB

ENVIRONMENT: Final = "TRACEPARENT"


@click.command(cls=Command)
@click.argument("job_type", metavar="TYPE", shell_complete=known("type"))
@click.argument("pairs", metavar="[K=V…]", nargs=-1)
@click.option("--payload", metavar="JSON|@FILE|-", help="A JSON object: the handler's arguments.")
@click.option(
    "--arg",
    "arguments",
    multiple=True,
    metavar="K=V",
    help="Set one argument, as K=V does; overrides --payload.",
)
@click.option(
    "--jsonl",
    type=Text(PATH_CHARS_MAX),
    metavar="FILE",
    help="Submit a job for each line, a JSON object, all or none; - for stdin.",
)
@click.option(
    "--agent",
    type=Text(NAME_MAX),
    metavar="NAME",
    help="The agent to run.",
    shell_complete=known("agent"),
)
@click.option(
    "--queue", type=Text(NAME_MAX), metavar="NAME", help="Run the queue's jobs one by one."
)
@click.option(
    "--priority",
    type=click.IntRange(-PRIORITY_MAX, PRIORITY_MAX),
    metavar="N",
    help="Lower numbers run first [0].",
)
@click.option(
    "--delay", type=Seconds(DELAY_MAX_S), metavar="S", help="Earliest start, in seconds from now."
)
@click.option(
    "--due-by",
    type=Instant(),
    metavar="TIME",
    help="Deadline: earliest first within a priority. A late job runs, too.",
)
@click.option(
    "--timeout",
    type=click.IntRange(1, TIMEOUT_MAX_S),
    metavar="S",
    help="Maximum run time in seconds, all attempts together.",
)
@click.option(
    "--max-retries", type=click.IntRange(0, RETRIES_MAX), metavar="N", help="Application retries."
)
@click.option(
    "--key", type=Text(KEY_MAX), metavar="KEY", help="Replace the waiting job with this key."
)
@click.option(
    "--tag",
    "tags",
    multiple=True,
    type=Text(NAME_MAX),
    metavar="TAG",
    help="A word to find it by: tag:TAG in filters; repeatable.",
)
@click.option(
    "--traceparent",
    metavar="ID",
    help="Trace and span to continue, as W3C Trace Context [$TRACEPARENT].",
)
@app_options
@click.option("--wait", is_flag=True, help="Wait until it ends.")
@changes(SUBMIT_JOB)
def submit(
    change: ChangeRequest,
    *,
    job_type: str,
    pairs: tuple[str, ...],
    payload: str | None,
    arguments: tuple[str, ...],
    jsonl: str | None,
    agent: str | None,
    queue: str | None,
    priority: int | None,
    delay: float | None,
    due_by: datetime | None,
    timeout: int | None,
    max_retries: int | None,
    key: str | None,
    tags: tuple[str, ...],
    traceparent: str | None,
    apps: tuple[str, ...],
    wait: bool,
) -> None:
    """Submit a job and print its id.

    K=V is an argument, JSON or else text. The payload is checked against what ready pods take, and
    against the handler where it is here (--app, built-in). Without such a pod the job waits.
    """
    refuse_bulk(job_type, queue)
    require_agent(job_type, agent)
    output = change.output
    overrides = split_arguments((*arguments, *pairs))
    given = {None: read_payload(payload)} if jsonl is None else read_lines(jsonl, payload, key)
    registry = registry_of(apps)
    own = registry.find(job_type)
    starting = StartingPod(output)
    with starting.session(change.options) as call:
        served = starting.served(call, job_type)
        if apps and own is None and served.timeout_s is None:
            registry.get(job_type)  # raises: the application was named for this type
        schemas = [each.schema for each in served.codes] if own is None else [own.schema]
        template = Submission(
            id=system_chance().new_id(),
            type=job_type,
            agent=agent,
            queue_name=queue,
            priority=priority,
            delay_s=delay,
            due_by=due_by,
            timeout_s=timeout,
            max_retries=max_retries,
            job_key=key,
            tags=tags,
            traceparent=_traceparent(traceparent),
        )
        submissions = _filled(template, given.values(), overrides, schemas)
        _check_payloads(given, submissions, own=own, served=served)
        if timeout is not None:
            default_s = (
                own.policy.timeout_s if own else default_timeout_s(job_type, served.timeout_s)
            )
            check_timeout(job_type, timeout, default_s=default_s, name="--timeout")
        if job_type == APPROVAL_NOTIFY:
            call(approvals.require_named, submissions[0])
        made = _submit(change, call, submissions, is_list=jsonl is not None)
        ids = [each.id for each in made]
        _show_submitted(output, made, is_list=jsonl is not None, is_waiting=wait)
        if (remark := unserved(job_type, served, is_known=own is not None)) is not None:
            _say_lonely(output, call, remark)
        if wait:
            _await_ends(output, call, ids)


def _filled(
    template: Submission,
    payloads: Iterable[str],
    overrides: Sequence[tuple[str, str]],
    schemas: Sequence[Mapping[str, Any]],
) -> list[Submission]:
    new_id = system_chance().new_id
    return [
        attrs.evolve(template, id=new_id(), payload=with_arguments(each, overrides, schemas))
        for each in payloads
    ]


def _check_payloads(
    lines: Iterable[int | None],
    submissions: Sequence[Submission],
    *,
    own: JobType[..., Any] | None,
    served: ServedType,
) -> None:
    for line, each in zip(lines, submissions, strict=True):
        with naming_line(line):
            check_payload(each.type, each.payload, own=own, live=served.codes)


def _await_ends(output: Output, call: Session, ids: list[UUID]) -> None:
    ended = [wait_for(call, job_id, output=output) for job_id in ids]
    if output.is_for_people:
        for each in ended:
            FactPrinter(output.talk).print_ending(each.job)
    else:
        output.listing(JOBS.noun, ENDING_COLUMNS, [each.job for each in ended], empty="")
    exit_by(ended)


def _say_lonely(output: Output, call: Session, remark: str) -> None:
    if call(pulse.figures).ticked_s is None:
        output.say(f"{remark}: cortex up", "warn")
    else:
        output.say(f"{remark}: it waits for cortex tick", "dim")


def _traceparent(option: str | None) -> str | None:
    """Return the span that the job is part of; a broken one of the environment is ignored."""
    if option is not None:
        return str(TraceParent.given(option, source="--traceparent"))
    inherited = TraceParent.parse(os.environ.get(ENVIRONMENT, ""))
    return None if inherited is None else str(inherited)


def _submit(
    change: ChangeRequest, call: Session, submissions: list[Submission], *, is_list: bool
) -> list[SubmittedJob]:
    """Submit and return the jobs; for a used key, return those of the first run."""
    credential = change.identity.credential
    if change.key is None and not is_list:
        job_id = call(
            jobs.submit_once,
            submissions[0],
            by=change.by,
            credential=credential,
            reason=change.reason,
        )
        return [SubmittedJob(job_id, is_new=job_id == submissions[0].id)]

    async def work(db: Database, *, by: str, reason: str) -> list[dict[str, Any]] | dict[str, Any]:
        done = await jobs.submit_all(db, submissions, by=by, credential=credential, reason=reason)
        made = [
            {"id": str(done.job_of(each.id)), "is_new": each.id not in done.existing}
            for each in submissions
        ]
        return made if is_list else made[0]

    request = request_of(submissions[0])
    if is_list:
        request["payload"] = [orjson.loads(each.payload) for each in submissions]
    answer = change.write(call, work, operation="jobs.submit", request=request)
    return [
        SubmittedJob(UUID(each["id"]), is_new=each["is_new"])
        for each in (answer if is_list else [answer])
    ]


def _show_submitted(
    output: Output, made: list[SubmittedJob], *, is_list: bool, is_waiting: bool
) -> None:
    if not is_list:
        _show_one(output, made[0], is_waiting=is_waiting)
    elif output.is_for_people:
        for each in made:
            output.line(str(each.id))
        if old := sum(not each.is_new for each in made):
            output.say(f"{old} of them existed: their type has a rule for that", "warn")
    elif not is_waiting:
        output.listing(JOBS.noun, SUBMITTED_COLUMNS, made, empty="")


def _show_one(output: Output, job: SubmittedJob, *, is_waiting: bool) -> None:
    job_id = job.id
    if output.is_for_people:
        output.line(str(job_id))
        if not job.is_new:
            output.say("not a new job: the rule of its type named one that exists", "warn")
        if output.terminal.is_tty and not is_waiting:
            output.say(f"to follow it: cortex jobs watch {short_id(job_id)}", "dim")
    elif not is_waiting:
        document = {"job": {"id": job_id, "status": job.status, "is_new": job.is_new}}
        output.record(document, name=str(job_id), page=list)
