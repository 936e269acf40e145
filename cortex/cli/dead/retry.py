"""`cortex dead retry`: continues failed jobs in new ones."""

from typing import Any, Final

import click

from cortex.cli.approvals.page import diff
from cortex.cli.apps import app_options, registry_of
from cortex.cli.dead.begin import begin
from cortex.cli.dead.choice import (
    ChosenDeadLetters,
    DeadLetterRequest,
    acting,
    agree,
    choose,
    preview,
    report,
)
from cortex.cli.files import read_bytes
from cortex.cli.idempotent import mutate
from cortex.cli.options import PATH_CHARS_MAX, Command, Options, Text
from cortex.cli.screen.output import Output
from cortex.cli.target import session
from cortex.domain.argument_check import check_payload
from cortex.domain.bulk import BulkVerb
from cortex.domain.clock import system_chance
from cortex.domain.dead_letter import NEWEST, PayloadEdit
from cortex.domain.errors import UsageError
from cortex.durable.codec import PAYLOAD_BYTES_MAX, parse_payload
from cortex.postgres.database import Database
from cortex.postgres.session import Session
from cortex.store import codes, dead_letters
from cortex.store.dead_letters import documents, resubmissions, resubmit

VERSION_MAX: Final = 2**31 - 1


class Version(click.ParamType[int]):
    """A version of an agent: its number, or `latest`."""

    name = "version"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if value == "latest":
            return NEWEST
        try:
            return click.IntRange(1, VERSION_MAX).convert(value, param, ctx)
        except click.BadParameter:
            self.fail(f"{value!r} is not a version: give its number, or latest", param, ctx)


@click.command(cls=Command)
@acting
@click.option(
    "--agent-version",
    type=Version(),
    metavar="N",
    help="Another version of the agent, or latest; starts over if it differs.",
)
@click.option(
    "--from-start", is_flag=True, help="Start over instead of continuing after the last step."
)
@click.option(
    "--payload",
    "payload_file",
    type=Text(PATH_CHARS_MAX),
    metavar="FILE",
    help="The payload of the new job, a JSON object; - for stdin. Shows what differs, and asks.",
)
@app_options
@click.pass_obj
def retry(
    options: Options,
    *,
    request: DeadLetterRequest,
    agent_version: int | None,
    from_start: bool,
    payload_file: str | None,
    app: str | None,
) -> None:
    """Continue failed jobs in new ones, each after the last step of its origin.

    The old jobs stay FAILED, with their payloads. Effects that they have applied are not repeated,
    also from the start. Named jobs are retried at once; exits with 5 if another person resolved one
    first. A filter submits a job of type `bulk`, which goes on after Ctrl-C.

    With --payload, one named job gets another payload; a step whose input it changes diverges from
    its record unless the job starts over: --from-start.
    """
    output = Output(options)
    verb = BulkVerb.RETRY
    with session(options) as call:
        chosen = choose(call, request)
        edit = None if payload_file is None else _edit(call, chosen, request, payload_file, app)
        if edit is not None:
            _show(edit, output)
        elif len(request.names) == 1:
            _warn_of_unfit(call, chosen, app, output)
        if request.is_dry_run:
            preview(chosen, output, verb)
            return
        if chosen.letters:
            agree(chosen, request, options, verb)
        if not request.names:
            begin(
                call,
                chosen,
                request,
                output,
                verb,
                agent_version=agent_version,
                from_start=from_start,
            )
            return
        wanted = resubmissions(
            chosen.ids, new_id=system_chance().new_id, rate=request.rate, edit=edit
        )

        async def work(db: Database) -> list[dict[str, Any]]:
            done = await resubmit(
                db,
                wanted,
                by=request.by,
                reason=request.reason or "",
                agent_version=agent_version,
                from_start=from_start,
            )
            return documents(done)

        text = mutate(
            call,
            work,
            output=output,
            key=request.key,
            operation="dead.retry",
            request=request.request
            | {"rate": request.rate, "agent_version": agent_version, "from_start": from_start}
            | ({} if edit is None else {"payload": edit.payload}),
        )
        report(call, text, output, verb)


def _edit(
    call: Session,
    chosen: ChosenDeadLetters,
    request: DeadLetterRequest,
    payload_file: str,
    app: str | None,
) -> PayloadEdit:
    """Return the checked payload for the job that continues the named one."""
    if len(request.names) != 1:
        hint = "cortex dead retry ID --payload FILE"
        raise UsageError("--payload is for one named job", hint=hint)
    (letter,) = chosen.letters
    content = read_bytes(payload_file, what="payload", bytes_max=PAYLOAD_BYTES_MAX)
    payload = parse_payload(content)
    live = call(codes.served, letter.type, is_exact=True).codes
    check_payload(letter.type, payload, own=registry_of(app).find(letter.type), live=live)
    return PayloadEdit.of(letter.type, call(dead_letters.show, letter.job_id).payload, payload)


def _show(edit: PayloadEdit, output: Output) -> None:
    if output.is_for_people:
        output.say("the payload of the failed job, and yours", "dim")
        for line in diff(edit.changes, output.talk):
            output.talk.write(line)


def _warn_of_unfit(
    call: Session, chosen: ChosenDeadLetters, app: str | None, output: Output
) -> None:
    """Say that the new job will wait for code, while its payload can still be changed."""
    find = registry_of(app).find
    for letter in chosen.letters:
        text = call(dead_letters.waiting_for_code, letter.job_id, find=find)
        if text is not None:
            output.say(f"{text}; or give it another payload: --payload FILE", "warn")
