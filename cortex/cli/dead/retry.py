"""`cortex dead retry`: continues failed jobs in new ones."""

from typing import Any, Final

import click

from cortex.cli.approvals.page import diff
from cortex.cli.apps import app_options, registry_of
from cortex.cli.changes import ChangeRequest, changes
from cortex.cli.choice import LETTERS, JobsRequest, chosen, have_done
from cortex.cli.dead.choice import ACTS, ChosenDeadLetters, agree, find, preview, report
from cortex.cli.dead.filters import filtered
from cortex.cli.files import read_bytes
from cortex.cli.options import PATH_CHARS_MAX, Command, Text
from cortex.cli.screen.output import Output
from cortex.cli.target import session
from cortex.domain.argument_check import check_payload
from cortex.domain.bulk import RATE_DEFAULT, BulkVerb
from cortex.domain.clock import system_chance
from cortex.domain.dead_letter import NEWEST, PayloadEdit
from cortex.domain.errors import UsageError
from cortex.durable.codec import PAYLOAD_BYTES_MAX, parse_payload
from cortex.postgres.database import Database
from cortex.postgres.session import Session
from cortex.store import codes, dead_letters
from cortex.store.dead_letters import documents, resubmissions, resubmit
from cortex.view.verbs import RETRY_LETTERS

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
@filtered
@chosen(LETTERS)
@changes(RETRY_LETTERS)
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
def retry(
    change: ChangeRequest,
    *,
    request: JobsRequest,
    agent_version: int | None,
    from_start: bool,
    payload_file: str | None,
    apps: tuple[str, ...],
) -> None:
    """Continue failed jobs in new ones, each after the last step of its origin.

    The old jobs stay FAILED, with their payloads. Effects that they have applied are not repeated,
    also from the start. Named jobs are retried at once; exits with 5 if another person resolved one
    first. A filter submits a job of type `bulk`, which goes on after Ctrl-C.

    With --payload, one named job gets another payload; a step whose input it changes diverges from
    its record unless the job starts over: --from-start.
    """
    output, verb = change.output, BulkVerb.RETRY
    how = {"agent_version": agent_version, "from_start": from_start}
    with session(change.options) as call:
        found = find(call, request, verb)
        edit = None if payload_file is None else _edit(call, found, request, payload_file, apps)
        if edit is not None:
            _show(edit, output)
        elif len(request.names) == 1:
            _warn_of_unfit(call, found, apps, output)
        if request.is_dry_run:
            preview(found, output, verb)
            return
        agree(found, change, request, verb)
        if not request.names:
            have_done(call, change, request, found.choice, ACTS[verb], empty=found.empty, **how)
            return
        rate = request.rate or RATE_DEFAULT
        wanted = resubmissions(
            found.choice.job_ids, new_id=system_chance().new_id, rate=rate, edit=edit
        )

        async def work(db: Database, /, *, by: str, reason: str) -> list[dict[str, Any]]:
            done = await resubmit(
                db,
                wanted,
                by=by,
                credential=change.credential,
                reason=reason,
                agent_version=agent_version,
                from_start=from_start,
            )
            return documents(done)

        wish = request.wish | {"rate": rate} | how
        if edit is not None:
            wish["payload"] = edit.payload
        done = change.write(call, work, operation="dead.retry", request=wish)
        report(call, done, output, verb)


def _edit(
    call: Session,
    chosen: ChosenDeadLetters,
    request: JobsRequest,
    payload_file: str,
    apps: tuple[str, ...],
) -> PayloadEdit:
    """Return the checked payload for the job that continues the named one."""
    if len(request.names) != 1:
        hint = "cortex dead retry ID --payload FILE"
        raise UsageError("--payload is for one named job", hint=hint)
    (letter,) = chosen.letters
    content = read_bytes(payload_file, what="payload", bytes_max=PAYLOAD_BYTES_MAX)
    payload = parse_payload(content)
    live = call(codes.served, letter.type, is_exact=True).codes
    check_payload(letter.type, payload, own=registry_of(apps).find(letter.type), live=live)
    return PayloadEdit.of(letter.type, call(dead_letters.show, letter.job_id).payload, payload)


def _show(edit: PayloadEdit, output: Output) -> None:
    if output.is_for_people:
        output.say("the payload of the failed job, and yours", "dim")
        for line in diff(edit.changes, output.talk):
            output.talk.write(line)


def _warn_of_unfit(
    call: Session, chosen: ChosenDeadLetters, apps: tuple[str, ...], output: Output
) -> None:
    """Say that the new job will wait for code, while its payload can still be changed."""
    find = registry_of(apps).find
    for letter in chosen.letters:
        text = call(dead_letters.waiting_for_code, letter.job_id, find=find)
        if text is not None:
            output.say(f"{text}; or give it another payload: --payload FILE", "warn")
