"""All tools, and the two that do more than ask their route: waiting, and agreeing to a request."""

import json
from collections.abc import Mapping
from typing import Any, Final

import attrs
import trio

from cortex.domain.approvals.approval import ApprovalStatus, Risk
from cortex.domain.approvals.vote import LAST_DIGITS
from cortex.domain.argument_brief import call_name
from cortex.domain.errors import ForbiddenError, UsageError
from cortex.domain.safe import safe
from cortex.http.framework.route import Method, Route
from cortex.http.mcp.allow import Allow
from cortex.http.mcp.asking import Answer, Ask
from cortex.http.mcp.tool import Call, Tool
from cortex.http.routes import ROUTES
from cortex.view.arguments import marked_json

ROWS: Final = 20
WAIT_S: Final = 60
WAIT_S_MAX: Final = 600
TURN_S: Final = 5.0
"""Between two reports of progress."""
DIALOG_CHARS_MAX: Final = 2_000
"""People decide about arguments that they can read there whole."""
ELSEWHERE: Final = "decide it in the terminal UI, on the approval page or with `cortex approvals`"
UNPROCESSABLE: Final = 422
ACCEPTED: Final = 202

_BY_PLACE: Final[Mapping[tuple[Method, str], Route]] = {
    (each.method, each.path): each for each in ROUTES
}
_JOB: Final = "/v1/jobs/{job_id}"
_APPROVAL: Final = "/v1/approvals/{approval_id}"
_LETTER: Final = "/v1/dead-letters/{job_id}"


async def wait_for_job(tool: Tool, call: Call, arguments: Mapping[str, Any]) -> Answer:
    """Wait until a job has ended, or the time is over; then say why it goes on."""
    limit = arguments.get("timeout_s", WAIT_S)
    if (
        isinstance(limit, bool)
        or not isinstance(limit, int | float)
        or not 0 <= limit <= WAIT_S_MAX
    ):
        raise UsageError(f"timeout_s must be 0 to {WAIT_S_MAX} seconds, got {ascii(limit)[:80]}")
    path = tool.asked(arguments).path
    began = trio.current_time()
    while True:
        turn_began = trio.current_time()
        turn_s = max(0.0, min(limit - (turn_began - began), TURN_S))
        wait = Ask(method=Method.GET, path=path, query=(("wait_ms", str(int(1000 * turn_s))),))
        found = await call.ask(wait)
        if found.status == UNPROCESSABLE and "job_status" in found.document:
            return attrs.evolve(found, status=200)  # that it failed is what was asked for
        if found.status != ACCEPTED:
            return found
        why = await call.ask(Ask(method=Method.GET, path=path.removesuffix("/result") + "/why"))
        if why.is_error:
            return why
        await trio.sleep_until(turn_began + turn_s)  # a job that waits for code answers at once
        passed_s = trio.current_time() - began
        await call.progress(min(passed_s, limit), float(limit), safe(why.document["sentence"]))
        if passed_s >= limit:
            reason = {key: why.document[key] for key in ("cause", "sentence", "ways_out")}
            return Answer(200, json.dumps(found.document | reason))


async def approve(tool: Tool, call: Call, arguments: Mapping[str, Any]) -> Answer:
    """Agree as the caller's person; of a dangerous request that person types the end of the id."""
    ask = tool.asked(arguments)
    found = await call.ask(Ask(method=Method.GET, path=ask.path.removesuffix("/approve")))
    if found.is_error:
        return found
    request = found.document
    body = dict(ask.body or {})
    if Risk(request["risk"]).needs_sign_in:
        is_as_shown = request["digest"] == arguments["digest"]
        if request["status"] != ApprovalStatus.PENDING or not is_as_shown:
            # Without a confirmation it cannot count: the route says what is wrong with it.
            return await call.ask(attrs.evolve(ask, key=None))
        typed = await call.typed(
            _question(request), label=f"Last {LAST_DIGITS} characters of its id"
        )
        if typed is None:
            raise ForbiddenError(
                f"approval {request['id']} is {request['risk']}, and the person did not confirm it",
                hint="nothing was decided",
            )
        body["confirm"] = typed
    return await call.ask(attrs.evolve(ask, body=body))


def _question(request: Mapping[str, Any]) -> str:
    what = call_name(request["tool"] or request["key"])
    arguments = marked_json(request["arguments"])
    if len(arguments) > DIALOG_CHARS_MAX:
        raise ForbiddenError(
            f"the arguments of approval {request['id']} are too long for the assistant's dialog",
            hint=ELSEWHERE,
        )
    return safe(
        f"Approve {what} ({request['risk']}) of {request['agent'] or request['job_type']} with "
        f"exactly these arguments? {arguments} To agree, type the last {LAST_DIGITS} characters of "
        f"{request['id']}."
    )


def _read(name: str, title: str, path: str, description: str, **more: Any) -> Tool:
    return Tool(
        name=name,
        title=title,
        route=_BY_PLACE[Method.GET, path],
        description=description,
        **more,
    )


def _list(name: str, title: str, path: str, description: str, **more: Any) -> Tool:
    return _read(name, title, path, description, defaults={"limit": ROWS}, **more)


def _change(name: str, title: str, path: str, description: str, **more: Any) -> Tool:
    return Tool(
        name=name,
        title=title,
        route=_BY_PLACE[Method.POST, path],
        description=description,
        **more,
    )


TOOLS: Final = (
    _list(
        "list_jobs",
        "List jobs",
        "/v1/jobs",
        "List jobs that match a filter, the newest first. Of a page that is not the last, "
        "next_cursor is the cursor of the next one.",
    ),
    _read(
        "show_job",
        "Show a job",
        _JOB,
        "Show everything about a job except its steps: state, payload, result, error, cost, "
        "attempts, and what people changed.",
    ),
    _read(
        "why_job",
        "Explain why a job is not running",
        f"{_JOB}/why",
        "Explain why a job is not running, when that is expected to change, and which commands "
        "would help. Ask this first when a job does not go on.",
        hides=frozenset({"facts"}),
    ),
    _read(
        "wait_for_job",
        "Wait for a job",
        f"{_JOB}/result",
        "Wait until a job has ended and return its result or its error. If it goes on when the "
        "time is over, return why: then ask again, or look at what it waits for.",
        handle=wait_for_job,
        waits=True,
        leaves_out=frozenset({"wait_ms"}),
        more={
            "timeout_s": {
                "type": "number",
                "minimum": 0,
                "maximum": WAIT_S_MAX,
                "default": WAIT_S,
                "description": "seconds to wait at most; 0: look once",
            }
        },
    ),
    _list(
        "list_job_steps",
        "List the steps of a job",
        f"{_JOB}/steps",
        "List the steps of a job in order: calls of models, tools, timers, approvals.",
    ),
    _list(
        "list_job_logs",
        "List the log of a job",
        f"{_JOB}/logs",
        "List what the code of a job logged and printed, in order.",
    ),
    _list(
        "list_logs",
        "List log lines of all jobs",
        "/v1/logs",
        "List log lines of all jobs, the newest first.",
    ),
    _list(
        "list_approvals",
        "List approval requests",
        "/v1/approvals",
        "List requests that wait for people, the most dangerous first, or those in other states. "
        "Show one before anything is decided about it.",
        hides=frozenset({"digest"}),
    ),
    _read(
        "show_approval",
        "Show an approval request",
        _APPROVAL,
        "Show everything that a decision about a request is based on: the exact arguments, their "
        "digest, the risk, and what follows.",
        is_exact=True,
    ),
    _list(
        "list_dead_letters",
        "List dead letters",
        "/v1/dead-letters",
        "List jobs that failed for good, the newest first.",
    ),
    _list(
        "list_dead_letter_errors",
        "List the errors of dead letters",
        "/v1/dead-letters/errors",
        "List the errors by which jobs failed for good, each with its count and its newest job.",
    ),
    _read(
        "show_dead_letter",
        "Show a dead letter",
        _LETTER,
        "Show why a job failed for good, and what a retry would do.",
    ),
    _list(
        "list_costs",
        "List costs",
        "/v1/costs",
        "List tokens and money of model calls by agent, model, tenant, job or day, and in total.",
    ),
    _read(
        "show_health",
        "Show the health of the installation",
        "/v1/health",
        "Show queue, failures and background work, each with its threshold and a word.",
    ),
    _read(
        "list_job_types",
        "List job types",
        "/v1/types",
        "List job types with the JSON Schema of their arguments, and which of them run now.",
    ),
    _list("list_agents", "List agents", "/v1/agents", "List agents with their newest versions."),
    _change(
        "submit_job",
        "Submit a job",
        "/v1/jobs",
        "Submit a job; to run an agent, type is run_agent. Look at list_job_types for the "
        "arguments. Returns the id.",
        allow=Allow.SUBMIT,
    ),
    _change(
        "cancel_job",
        "Cancel a job",
        f"{_JOB}/cancel",
        "Cancel a job for good; a running one ends as soon as its pod has stopped it.",
        allow=Allow.CANCEL,
        is_destructive=True,
        is_idempotent=True,
    ),
    _change(
        "retry_job",
        "Retry a job",
        f"{_JOB}/retry",
        "Retry a waiting job at once; a failed one continues in a new job, after its last step.",
        allow=Allow.RETRY,
    ),
    _change(
        "retry_dead_letter",
        "Retry a dead letter",
        f"{_LETTER}/retry",
        "Continue a job that failed for good in a new one, after its last step. Look first whether "
        "its cause is gone.",
        allow=Allow.RETRY,
    ),
    _change(
        "approve_approval",
        "Approve a request",
        f"{_APPROVAL}/approve",
        "Agree, in the name of the person whose token this server has, that a call runs with "
        "exactly the arguments that show_approval showed. Only when that person asked for this "
        "decision. Of a HIGH or CRITICAL request the person is asked to confirm.",
        allow=Allow.APPROVE,
        handle=approve,
        waits=True,  # for a person
        leaves_out=frozenset({"arguments", "confirm"}),
        is_destructive=True,
        is_idempotent=True,
    ),
    _change(
        "deny_approval",
        "Deny a request",
        f"{_APPROVAL}/deny",
        "Deny a request, in the name of the person whose token this server has: its call does not "
        "run. Only when that person asked for this decision.",
        allow=Allow.APPROVE,
        is_destructive=True,
        is_idempotent=True,
    ),
)
