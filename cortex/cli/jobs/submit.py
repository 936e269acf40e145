"""`cortex jobs submit`: checks a job as far as possible, and submits it once."""

import os
from typing import Final
from uuid import UUID

import click

from cortex.cli.apps import app_options, registry_of
from cortex.cli.asking import acting_credential
from cortex.cli.changes import ChangeRequest, changes
from cortex.cli.jobs.follow import FactPrinter
from cortex.cli.jobs.payload import read_payload, split_arguments, with_arguments
from cortex.cli.jobs.watch import ENDING_COLUMNS, exit_by, wait_for
from cortex.cli.options import Command, Seconds, Text
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
from cortex.postgres.database import Database
from cortex.postgres.session import Session
from cortex.store import approvals, jobs, pulse
from cortex.view.jobs import unserved
from cortex.view.resources.jobs import JOBS
from cortex.view.verbs import SUBMIT_JOB

ENVIRONMENT: Final = "TRACEPARENT"


@click.command(cls=Command)
@click.argument("job_type", metavar="TYPE")
@click.option("--payload", metavar="JSON|@FILE|-", help="A JSON object: the handler's arguments.")
@click.option(
    "--arg",
    "arguments",
    multiple=True,
    metavar="K=V",
    help="Set one argument; overrides --payload.",
)
@click.option("--agent", type=Text(NAME_MAX), metavar="NAME", help="The agent to run.")
@click.option(
    "--tenant", type=Text(NAME_MAX), metavar="NAME", help="The tenant it belongs to [default]."
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
    payload: str | None,
    arguments: tuple[str, ...],
    agent: str | None,
    tenant: str | None,
    queue: str | None,
    priority: int | None,
    delay: float | None,
    timeout: int | None,
    max_retries: int | None,
    key: str | None,
    tags: tuple[str, ...],
    traceparent: str | None,
    apps: tuple[str, ...],
    wait: bool,
) -> None:
    """Submit a job and print its id.

    The payload is checked against what the ready pods that run the type take, and against the
    handler where it is here (--app, built-in). Without such a pod the job is accepted, and waits.
    """
    refuse_bulk(job_type, queue)
    require_agent(job_type, agent)
    output = change.output
    given, overrides = read_payload(payload), split_arguments(arguments)
    registry = registry_of(apps)
    own = registry.find(job_type)
    starting = StartingPod(output)
    with starting.session(change.options) as call:
        served = starting.served(call, job_type)
        if apps and own is None and served.timeout_s is None:
            registry.get(job_type)  # raises: the application was named for this type
        schemas = [each.schema for each in served.codes] if own is None else [own.schema]
        submission = Submission(
            id=system_chance().new_id(),
            type=job_type,
            payload=with_arguments(given, overrides, schemas),
            agent=agent,
            tenant=tenant,
            queue_name=queue,
            priority=priority,
            delay_s=delay,
            timeout_s=timeout,
            max_retries=max_retries,
            job_key=key,
            tags=tags,
            traceparent=_traceparent(traceparent),
        )
        check_payload(job_type, submission.payload, own=own, live=served.codes)
        if timeout is not None:
            default_s = (
                own.policy.timeout_s if own else default_timeout_s(job_type, served.timeout_s)
            )
            check_timeout(job_type, timeout, default_s=default_s, name="--timeout")
        if job_type == APPROVAL_NOTIFY:
            call(approvals.require_named, submission)
        job_id = _submit(change, call, submission)
        _tell_submitted(output, job_id, is_waiting=wait)
        if (remark := unserved(job_type, served, is_known=own is not None)) is not None:
            _say_lonely(output, call, remark)
        if wait:
            _await_end(output, call, job_id)


def _await_end(output: Output, call: Session, job_id: UUID) -> None:
    ended = wait_for(call, job_id, output=output)
    if output.is_for_people:
        FactPrinter(output.talk).print_ending(ended.job)
    else:
        output.listing(JOBS.noun, ENDING_COLUMNS, [ended.job], empty="")
    exit_by([ended])


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


def _submit(change: ChangeRequest, call: Session, submission: Submission) -> UUID:
    """Submit and return the job's id; for a used key, return the id of the first run."""
    credential = acting_credential()
    if change.key is None:
        person = {"by": change.by, "credential": credential, "reason": change.reason}
        call(jobs.submit_once, submission, **person)
        return submission.id

    async def work(db: Database, *, by: str, reason: str) -> UUID:
        await jobs.submit(db, [submission], by=by, credential=credential, reason=reason)
        return submission.id

    request = request_of(submission)
    return UUID(change.write(call, work, operation="jobs.submit", request=request))


def _tell_submitted(output: Output, job_id: UUID, *, is_waiting: bool) -> None:
    if output.is_for_people:
        output.line(str(job_id))
        if output.terminal.is_tty and not is_waiting:
            output.say(f"to follow it: cortex jobs watch {short_id(job_id)}", "dim")
    elif not is_waiting:
        document = {"job": {"id": job_id, "status": "PENDING"}}
        output.record(document, name=str(job_id), page=list)
