"""SQL that submits jobs and sends signals inside the caller's own transaction, for any driver.

Drivers disagree about placeholders (`$1`, `%s`, `:name`), so the statement has none: its values are
literals. Text other than plain words is written in base64, which holds no character that SQL, a
driver or an ORM treats specially.
"""

import re
from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, LiteralString, NamedTuple
from uuid import UUID

import orjson

from cortex.client.signals import Signal
from cortex.client.submission import Options, SubmittableJob, submission, submissions
from cortex.domain.argument_check import check_payload
from cortex.domain.errors import UsageError
from cortex.domain.job import Submission

_PLAIN: Final = re.compile(r"[A-Za-z0-9_.-]{0,200}", re.ASCII)


class Statement(NamedTuple):
    """A statement for the caller's transaction: `execute(sql, args)`, or `execute(sql, *args)`."""

    sql: LiteralString
    """Its values are quoted, so it may go where a driver's types ask for a literal."""
    args: dict[str, Any]
    """Empty, and a mapping, which every driver takes for no arguments."""


def submit_statement(
    job: SubmittableJob[Any] | str,
    arguments: Mapping[str, Any],
    options: Options,
    *,
    new_id: Callable[[], UUID],
) -> Statement:
    """Return a statement that submits one job; its one value is the job's id."""
    one = submission(job, arguments, options, new_id=new_id)
    _check(job, [one])
    given: dict[str, str | None] = {
        "type": _text(one.type),
        "payload": _json(one.payload),
        "agent": _text(one.agent),
        "tenant": _text(one.tenant),
        "queue_name": _text(one.queue_name),
        "priority": _number(one.priority),
        "run_at": _instant(one),
        "max_retries": _number(one.max_retries),
        "timeout_s": _number(one.timeout_s),
        "job_key": _text(one.job_key),
        "id": f"'{one.id}'",
        "tags": f"ARRAY[{', '.join(str(_text(tag)) for tag in one.tags)}]" if one.tags else None,
        "traceparent": _text(one.traceparent),
        "idempotency_key": _text(options.key),
        "due_by": _deadline(one),
    }
    named = ", ".join(f"{name} => {value}" for name, value in given.items() if value is not None)
    return Statement(f"SELECT cortex.submit_job({named}) AS id", {})


def submit_many_statement(
    job: SubmittableJob[Any] | str,
    payloads: Iterable[Mapping[str, Any]],
    options: Options,
    *,
    new_id: Callable[[], UUID],
) -> Statement:
    """Return a statement that submits many jobs; its one value is the list of their ids."""
    if options.key is not None:
        raise UsageError("key is for one job", hint="submit each job with a key of its own")
    if options.by is not None:
        raise UsageError(
            "client.sql has no option 'by'",
            hint="in your transaction: SELECT set_config('cortex.actor', 'ana', true)",
        )
    many = submissions(job, payloads, options, new_id=new_id)
    _check(job, many)
    rows = _json(orjson.dumps([[str(each.id), orjson.Fragment(each.payload)] for each in many]))
    tags = _json(orjson.dumps(options.tags)) if options.tags else None
    first = many[0] if many else submission(job, {}, options, new_id=new_id)
    same = [
        (_text(first.agent), "text"),
        (_text(first.tenant), "text"),
        (_text(first.queue_name), "text"),
        (_number(first.priority), "int"),
        (_instant(first), "timestamptz"),
        (None, "int"),
        (_number(first.max_retries), "int"),
        (_number(first.timeout_s), "int"),
        (_text(first.job_key), "text"),
        (tags, "jsonb"),
        (_text(first.traceparent), "text"),
        (_deadline(first), "timestamptz"),
    ]
    columns = [
        "array_agg(CAST(j.row ->> 0 AS uuid) ORDER BY j.n)",
        f"array_agg({_text(first.type)} ORDER BY j.n)",
        "array_agg(j.row -> 1 ORDER BY j.n)",
        *(f"array_agg(CAST({value or 'NULL'} AS {kind}))" for value, kind in same),
    ]
    rows_of = f"jsonb_array_elements({rows}) WITH ORDINALITY AS j(row, n)"
    text = f"SELECT cortex.submit_jobs({', '.join(columns)}) AS ids FROM {rows_of}"  # noqa: S608 -- literals of this module
    return Statement(text, {})


def signal_statement(signal: Signal) -> Statement:
    """Return a statement that sends a signal; its one value is the signal's id."""
    given = {
        "name": _text(signal.name),
        "payload": _json(signal.payload),
        "job": None if signal.job is None else f"CAST('{signal.job}' AS uuid)",
        "key": _text(signal.key),
        "tenant": _text(signal.tenant),
        "idempotency_key": _text(signal.idempotency_key),
    }
    named = ", ".join(f"{name} => {value}" for name, value in given.items() if value is not None)
    return Statement(f"SELECT cortex.send_signal({named}) AS id", {})


def _check(job: SubmittableJob[Any] | str, jobs: Iterable[Submission]) -> None:
    """Raise `InvalidValueError` for arguments that the handler does not take, if it is here."""
    if not isinstance(job, str):
        for each in jobs:
            check_payload(each.type, each.payload, own=job, live=())


def _text(value: str | None) -> str | None:
    if value is None:
        return None
    if _PLAIN.fullmatch(value):
        return f"CAST('{value}' AS text)"
    return f"convert_from(decode('{_base64(value.encode())}', 'base64'), 'UTF8')"


def _json(value: str | bytes) -> str:
    raw = value.encode() if isinstance(value, str) else value
    return f"CAST(convert_from(decode('{_base64(raw)}', 'base64'), 'UTF8') AS jsonb)"


def _base64(raw: bytes) -> str:
    return b64encode(raw).decode("ascii")


def _number(value: int | None) -> str | None:
    return None if value is None else str(int(value))


def _deadline(job: Submission) -> str | None:
    return None if job.due_by is None else f"to_timestamp({job.due_by.timestamp()!r})"


def _instant(job: Submission) -> str | None:
    if job.run_at is not None:
        return f"to_timestamp({job.run_at.timestamp()!r})"
    if job.delay_s is not None:
        return f"cortex.now() + {float(job.delay_s)!r} * CAST('1 second' AS interval)"
    return None
