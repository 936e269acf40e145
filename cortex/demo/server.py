"""The scripted Messages-API server, on loopback.

    async with serve(script) as server: ...server.base_url...
    python -m cortex.demo.server --port 0 --script inspect --script-file faults.yaml

As a process it prints one JSON line with its base_url when it is ready, and ends on SIGTERM.
GET /calls is the log of all calls, /calls/open of those that it is answering.
`--script-file` lays faults over the script: see `cortex.demo.fault_file`. It is cheap:
300 streams of 20 chunks a second take a fraction of one core.
"""

import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from email.utils import formatdate
from functools import partial
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from typing import Any

import click
import orjson
import trio
from attrs import evolve, frozen

from cortex.demo.batches import PATH as BATCHES
from cortex.demo.batches import Batches
from cortex.demo.calls import CallLog, Entry
from cortex.demo.events import PING, message, pieces
from cortex.demo.fault_file import read_rules
from cortex.demo.faults import Faults
from cortex.demo.prompt_cache import PromptCache, places_of, tokens_of
from cortex.demo.script import (
    Call,
    Fault,
    Refusal,
    Reply,
    Script,
    at_pace,
    text_of,
)
from cortex.demo.script_echo import echo
from cortex.demo.script_inspect import inspect
from cortex.demo.script_tools import tools
from cortex.demo.validation import refusal_of
from cortex.demo.wire import HttpRequest, Wire
from cortex.domain.clock import system_chance
from cortex.domain.errors import UsageError

SCRIPTS: dict[str, Script] = {"inspect": inspect, "echo": echo, "tools": tools}
Play = Callable[[Reply | Refusal, Entry], Awaitable[str]]
"""Sends an answer; returns its outcome."""
BACKLOG = 1024  # connections that may wait to be accepted at once

_JSON = "application/json"
_WEB_PAGE = b"<!doctype html><title>Sign in</title><h1>Welcome to the guest network</h1>"


class RefusedRequestError(ValueError):
    """The Messages API refuses this request."""


@frozen
class ScriptedServer:
    """A running server. `calls` is its live log."""

    base_url: str
    calls: CallLog
    batches: Batches


@asynccontextmanager
async def serve(
    script: Script, *, host: str = "127.0.0.1", port: int = 0
) -> AsyncIterator[ScriptedServer]:
    """Run a server until the block is left; streams that are still open are cut."""
    log, cache = CallLog(), PromptCache()
    batches = Batches(partial(_result, script, log))

    async def connected(stream: trio.SocketStream) -> None:
        try:
            await _converse(Wire(stream), script, log, cache, batches)
        except trio.BrokenResourceError:
            return  # the client is gone

    listeners = await trio.open_tcp_listeners(port, host=host, backlog=BACKLOG)
    actual_port = listeners[0].socket.getsockname()[1]
    async with trio.open_nursery() as nursery:
        await nursery.start(trio.serve_listeners, connected, listeners)
        yield ScriptedServer(f"http://{host}:{actual_port}", log, batches)
        nursery.cancel_scope.cancel()


async def _converse(
    wire: Wire, script: Script, log: CallLog, cache: PromptCache, batches: Batches
) -> None:
    """Answer the requests of one connection until either side closes it."""
    alive, connection = True, log.connected()
    while alive and (request := await wire.next_request()) is not None:
        match request.method, request.path:
            case "POST", "/v1/messages":
                alive = await _answer_call(
                    wire, request, connection, script=script, log=log, cache=cache
                )
            case "POST", "/v1/messages/count_tokens":
                await _count_tokens(wire, request)
            case _, path if path.partition("?")[0].startswith(BATCHES):
                alive = await batches.serve(wire, request)
            case "GET", "/calls":
                await wire.answer(200, _JSON, orjson.dumps(log.as_json()))
            case "GET", "/calls/open":
                await wire.answer(200, _JSON, orjson.dumps(log.open_as_json()))
            case _:
                await _refuse(wire, Refusal(status=404, error_type="not_found_error"))


async def _answer_call(
    wire: Wire,
    request: HttpRequest,
    connection: int,
    *,
    script: Script,
    log: CallLog,
    cache: PromptCache,
) -> bool:
    """Answer one POST /v1/messages; False when the connection must be closed."""
    if not request.headers.keys() & {"authorization", "x-api-key"}:
        await _refuse(wire, Refusal(status=401, error_type="authentication_error"))
        return True
    parsed = _parsed(request.body)
    if isinstance(parsed, Refusal):
        await _refuse(wire, parsed)
        return True
    call = log.number(parsed)
    visit = cache.visit(call.model, call.places, call.at_s)
    call = evolve(call, cached=visit.tokens)
    entry = log.open(call, connection)
    play = partial(_play, wire, call, opened=partial(cache.keep, visit))
    outcome = await _play_until_client_leaves(wire, call, play, script=script, entry=entry)
    log.close(entry, outcome)
    return entry.outcome in ("answered", "refused")


def _result(script: Script, log: CallLog, params: Mapping[str, Any]) -> dict[str, Any]:
    """Return what becomes of one request of a batch."""
    answer: Reply | Refusal
    parsed = _parsed(orjson.dumps(params))
    if isinstance(parsed, Refusal):
        return _errored(parsed)
    if parsed.stream:
        return _errored(Refusal(status=400, message="stream: is not permitted in a batch"))
    call = log.number(parsed)
    entry = log.open(call, connection=0)
    answer = _answer(script, call)
    entry.rule = answer.rule
    if isinstance(answer, Refusal):
        log.close(entry, "refused")
        return _errored(answer)
    log.close(entry, "answered")
    whole = message(call, answer, _message_id(call))
    return {
        "type": "succeeded",
        "message": {**whole, "usage": {**whole["usage"], "service_tier": "batch"}},
    }


def _errored(refusal: Refusal) -> dict[str, Any]:
    if refusal.error_type in ("expired", "canceled"):
        return {"type": refusal.error_type}
    problem = {"type": refusal.error_type, "message": refusal.message}
    return {"type": "errored", "error": {"type": "error", "error": problem, "request_id": None}}


async def _count_tokens(wire: Wire, request: HttpRequest) -> None:
    """Answer POST /v1/messages/count_tokens, which has no max_tokens."""
    parsed = _parsed(request.body, counted=True)
    if isinstance(parsed, Refusal):
        await _refuse(wire, parsed)
        return
    await wire.answer(200, _JSON, orjson.dumps({"input_tokens": parsed.input_tokens}))


def _parsed(body: bytes, *, counted: bool = False) -> Call | Refusal:
    try:
        return parse_call(body, counted=counted)
    except RefusedRequestError as error:
        return Refusal(status=400, message=str(error))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        return Refusal(status=400, message=f"not a Messages request: {error!r}")


async def _play_until_client_leaves(
    wire: Wire, call: Call, plays: Play, *, script: Script, entry: Entry
) -> str:
    """Send the script's answer, and stop at once when the client closes. Returns the outcome."""
    outcome = "disconnected"

    async def play(scope: trio.CancelScope) -> None:
        nonlocal outcome
        try:
            outcome = await plays(_answer(script, call), entry)
        except trio.BrokenResourceError:
            outcome = "disconnected"
        scope.cancel()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(play, nursery.cancel_scope)
        await wire.until_client_leaves()
        nursery.cancel_scope.cancel()
    return outcome


def _answer(script: Script, call: Call) -> Reply | Refusal:
    try:
        return script(call)
    except Exception as error:  # noqa: BLE001 - sent to the client: one call must not end all others
        return Refusal(status=500, error_type="api_error", message=f"script failed: {error!r}")


async def _play(
    wire: Wire,
    call: Call,
    answer: Reply | Refusal,
    entry: Entry,
    *,
    opened: Callable[[], None],
) -> str:
    """Send an answer as its script describes it, faults included. Returns the outcome.

    `opened` is called when its first bytes are sent.
    """
    entry.rule = answer.rule
    if isinstance(answer, Refusal):
        await trio.sleep(answer.first_delay_s)
        entry.status = answer.status
        await _refuse(wire, answer)
        return "refused"
    if answer.fault is Fault.HANG:
        await trio.sleep(answer.fault_s)
    if answer.fault in (Fault.HANG, Fault.DROP):
        await wire.reset()
        return "broken"
    entry.status = 200
    if answer.fault is Fault.HTML:
        await wire.answer(200, "text/html; charset=utf-8", _WEB_PAGE)
    elif call.stream:
        await _stream(wire, call, answer, entry, opened=opened)
    else:
        await trio.sleep(answer.first_delay_s)
        opened()
        await wire.answer(200, _JSON, orjson.dumps(message(call, answer, _message_id(call))))
    return "answered" if answer.fault in (None, Fault.STRANGE_EVENTS) else "broken"


async def _stream(
    wire: Wire, call: Call, reply: Reply, entry: Entry, *, opened: Callable[[], None]
) -> None:
    """Send a reply as an event stream, each piece at its time, and end it as its fault requires."""
    await wire.open_answer(200, "text/event-stream; charset=utf-8")
    if reply.fault is Fault.EMPTY:
        await wire.end_answer()
        return
    due = trio.current_time()
    for piece in pieces(call, reply, _message_id(call)):
        if piece.delay_s:
            due += piece.delay_s
            await trio.sleep_until(due)
        await wire.send(piece.data)
        if not entry.chunk_count:
            opened()
        entry.chunk_count += 1
    match reply.fault:
        case Fault.STALL:
            with trio.move_on_after(reply.fault_s):
                await _ping(wire, reply.ping_s)
            await wire.reset()
        case Fault.SILENCE:
            await trio.sleep(reply.fault_s)
            await wire.reset()
        case Fault.CUT:
            await wire.reset()
        case _:
            await wire.end_answer()


async def _ping(wire: Wire, pause_s: float) -> None:
    while True:
        await trio.sleep(pause_s)
        await wire.send(PING)


async def _refuse(wire: Wire, refusal: Refusal) -> None:
    error: dict[str, Any] = {"type": refusal.error_type, "message": refusal.message}
    if refusal.error_code is not None:
        error["details"] = {"error_code": refusal.error_code}
    body = {"type": "error", "error": error, "request_id": "req_scripted"}
    raw = orjson.dumps(body) if refusal.body is None else refusal.body.encode()
    await wire.answer(refusal.status, _JSON, raw, extra=tuple(_retry_after(refusal)))


def _retry_after(refusal: Refusal) -> Iterator[tuple[str, str]]:
    if refusal.retry_after is not None:
        yield "retry-after", refusal.retry_after
    elif refusal.retry_after_date_s is not None:
        now_s = system_chance().unix_ms() // 1000
        yield "date", formatdate(now_s, usegmt=True)
        yield "retry-after", formatdate(now_s + refusal.retry_after_date_s, usegmt=True)


def parse_call(body: bytes, *, counted: bool = False) -> Call:
    """Return the call in a request body; one that is only `counted` has no limit of its answer.

    Raises `RefusedRequestError` for a request that the API refuses, ValueError and the like for
    JSON that is none.
    """
    fields = orjson.loads(body)
    if counted:
        fields = {"max_tokens": 1, **fields}
    if (refusal := refusal_of(fields)) is not None:
        raise RefusedRequestError(refusal)
    system = fields.get("system", "")
    places = places_of(fields)
    return Call(
        model=fields["model"],
        system=system if isinstance(system, str) else text_of({"content": system}),
        messages=fields["messages"],
        tools=fields.get("tools", []),
        max_tokens=fields["max_tokens"],
        stream=bool(fields.get("stream", False)),
        input_tokens=tokens_of(places),
        temperature=fields.get("temperature"),
        places=places,
    )


def _message_id(call: Call) -> str:
    seed = f"{call.conversation}:{call.turn}:{call.number}".encode()
    return f"msg_{sha256(seed).hexdigest()[:24]}"


async def serve_until_stopped(script: Script, host: str, port: int) -> None:
    """Run a server until SIGTERM or SIGINT; write its base_url to stdout when it is ready."""
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async with serve(script, host=host, port=port) as server:
            ready: dict[str, Any] = {"base_url": server.base_url}
            sys.stdout.write(orjson.dumps(ready).decode() + "\n")
            sys.stdout.flush()
            async for _ in signals:
                return


def _script(name: str) -> Script:
    """Return the script of a name, or a function of a module."""
    module, colon, function = name.partition(":")
    if not colon:
        if name not in SCRIPTS:
            raise click.UsageError(f"no script is called {name!r}: {', '.join(sorted(SCRIPTS))}")
        return SCRIPTS[name]
    try:
        script: Script = getattr(import_module(module), function)
    except (ImportError, AttributeError) as error:
        raise click.UsageError(f"script {name!r} cannot be loaded: {error}") from error
    return script


@click.command()
@click.option(
    "--script",
    metavar="NAME|MODULE:FUNCTION",
    default="inspect",
    show_default=True,
    help=f"One of {', '.join(sorted(SCRIPTS))}, or a script of your own.",
)
@click.option("--host", default="127.0.0.1", show_default=True)
@click.option("--port", type=int, default=0, help="0 takes any free port.")
@click.option("--pace", type=float, default=1.0, help="Multiplies all delays; 0 is no delay.")
@click.option(
    "--script-file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Rules (YAML or JSON) that say which calls go wrong, and how.",
)
def main(script: str, host: str, port: int, pace: float, script_file: Path | None) -> None:
    """Serve a scripted Messages API until SIGTERM."""
    answers = _script(script)
    if script_file is not None:
        try:
            answers = Faults(read_rules(script_file), answers)
        except UsageError as error:
            raise click.UsageError(error.message) from error
    trio.run(serve_until_stopped, at_pace(pace, answers), host, port)


if __name__ == "__main__":
    main()
