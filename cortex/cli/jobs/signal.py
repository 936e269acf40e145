"""`cortex jobs signal`: sends an event to a job, or to a key."""

from functools import partial
from pathlib import Path
from typing import Final
from uuid import UUID

import click
from click.shell_completion import CompletionItem

from cortex.cli.changes import ChangeRequest, changes
from cortex.cli.completing import known
from cortex.cli.files import read_bytes
from cortex.cli.options import Command
from cortex.cli.target import session
from cortex.domain.canonical import parse
from cortex.domain.errors import InvalidValueError, UsageError
from cortex.domain.limits import PAYLOAD
from cortex.domain.phrases import short_id
from cortex.domain.safe import safe
from cortex.domain.signals import check_key, check_name, payload_of_text
from cortex.postgres.database import Database
from cortex.store import jobs, signals
from cortex.view.verbs import SIGNAL_JOB

SHOWN_MAX: Final = 4_096
"""Characters of a path, beyond which none is looked for."""


def _known(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Complete the job first, then a name for which jobs wait."""
    has_target = bool(context.params.get("words") or context.params.get("key"))
    return known("signal" if has_target else "job")(context, parameter, incomplete)


@click.command(cls=Command)
@click.argument("words", metavar="ID NAME", nargs=-1, required=True, shell_complete=_known)
@click.option(
    "--data", metavar="JSON|@FILE|-", help="What the job receives: JSON, a file or stdin [null]."
)
@click.option(
    "--key", metavar="KEY", help="Instead of ID: the job that asks for this key; kept for 24 h."
)
@changes(SIGNAL_JOB)
def signal(
    change: ChangeRequest, *, words: tuple[str, ...], data: str | None, key: str | None
) -> None:
    """Send a signal to a job, which `ctx.receive(NAME)` gets.

    It waits until the job asks for it. With --key it goes to whichever job asks for that key, also
    one that is not submitted yet. Exits with 5 if the job has ended.
    """
    job, name = _target(words, key)
    payload = _payload(data, name)
    with session(change.options) as call:
        job_id = None if job is None else call(jobs.find, job)
        send = partial(
            _send,
            name=name,
            payload=payload,
            job=job_id,
            key=key,
            credential=change.credential,
        )
        request = {"job": job_id, "key": key, "name": name, "payload": parse(payload)}
        signal_id = UUID(change.write(call, send, operation="jobs.signal", request=request))
    to = f"key {key}" if job_id is None else f"job {short_id(job_id)}"
    document = {"id": signal_id, "name": name, "job": job_id, "key": key}
    page = partial(_page, name=name, to=to)
    change.output.record({"signal": document}, name=str(signal_id), page=page)


async def _send(
    db: Database,
    *,
    by: str,
    reason: str,
    name: str,
    payload: str,
    job: UUID | None,
    key: str | None,
    credential: str,
) -> UUID:
    return await signals.send(
        db, name, payload, job=job, key=key, by=by, credential=credential, reason=reason
    )


def _target(words: tuple[str, ...], key: str | None) -> tuple[str | None, str]:
    """Return the job, None for a key, and the name of the signal. Raises `UsageError`."""
    *jobs_named, name = words
    if key is not None and jobs_named:
        raise UsageError(
            f"signal {name!a:.60} is for job {jobs_named[0]!a:.60} and for key {key!a:.60}",
            hint="name one of the two: cortex jobs signal payment --key order-8812",
        )
    if key is None and len(jobs_named) != 1:
        raise UsageError(
            f"a signal needs ID and NAME, got {' '.join(map(ascii, words))[:80]}",
            hint="such as: cortex jobs signal 9f3a1c payment; or name a key: --key order-8812",
        )
    check_name(name)
    if key is not None:
        check_key(key)
        return None, name
    return jobs_named[0], name


def _payload(data: str | None, name: str) -> str:
    """Return what `--data` gives as JSON text. Raises `InvalidValueError`."""
    what = f"--data of signal {name!r}"
    try:
        return payload_of_text("null" if data is None else _source(data, what), what=what)
    except InvalidValueError as error:
        if error.hint is not None or "is not JSON" not in error.message:
            raise
        raise InvalidValueError(error.message, hint=_hint(data)) from error


def _source(data: str, what: str) -> str:
    if not (data == "-" or data.startswith("@")):
        return data
    raw = read_bytes(data.removeprefix("@"), what=what, bytes_max=PAYLOAD.bytes_max)
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise InvalidValueError(f"{what} is not UTF-8: {error}") from error


def _hint(data: str | None) -> str | None:
    if data is None or data == "-" or data.startswith("@"):
        return None
    if len(data) < SHOWN_MAX and "\n" not in data and "\0" not in data and Path(data).is_file():
        return f"to read a file: --data @{data}"
    return """text needs its quotes, for the shell, too: --data '"text"'"""


def _page(*, name: str, to: str) -> list[str]:
    return [f"sent {safe(name)} to {safe(to)}"]
