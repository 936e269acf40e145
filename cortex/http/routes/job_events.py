"""`GET /v1/jobs/{job_id}/events`: what happens to a job, as server-sent events.

`state`    it went to another state
`attempt`  a pod took it over, or an attempt ended before the job did
`step`     a step was committed
`token`    a model says this just now; its place in the answer is `offset`
`gap`      so many characters of an answer never came; the committed step will have them
`end`      it has ended: there is nothing more

What stands in the record comes complete and in order, and has an id: who comes back with the last
one as `Last-Event-ID` gets what followed. Text of models comes only as far as it arrives.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import orjson
import trio
from starlette.responses import Response

from cortex.domain.answer_text import AnswerPiece
from cortex.domain.job_feed import START, EventKind, JobEvent, Position
from cortex.domain.token import Role
from cortex.http.framework.api import Api, CheckedRequest, Feed
from cortex.http.framework.route import Method, Route
from cortex.http.framework.streaming import Streamed, Write
from cortex.http.routes.jobs import JOB, JOB_PARAMS
from cortex.store import feed as feeds

KEEP_ALIVE_S: Final = 15.0
"""Below the half minute after which many proxies think a silent connection dead."""
COME_BACK_MS: Final = 1_000
MEDIA: Final = "text/event-stream"
HEADERS: Final = {"Cache-Control": "no-cache, no-store", "X-Accel-Buffering": "no"}

FeedEvent = JobEvent | AnswerPiece

_HELLO: Final = f"retry: {COME_BACK_MS}\n\n".encode()
_STILL_HERE: Final = b": still here\n\n"
_NAMES: Final = {
    EventKind.MOVED: "state",
    EventKind.CLAIMED: "attempt",
    EventKind.ATTEMPT_ENDED: "attempt",
    EventKind.STEP: "step",
}


async def events_of_job(asked: CheckedRequest[None, None], api: Api) -> Response:
    """Follow a job until it has ended, its reader has left, or the pod drains."""
    job_id = asked.path["job_id"]
    seen = asked.request.headers.get("last-event-id", "")
    after = Position.parse(seen) if seen else START
    if seen and await _knows_all(asked, api, after):
        return Response(status_code=204)  # an EventSource comes back until it is told this

    async def write_events(write: Write) -> None:
        with api.streams.entered(asked.principal):
            async with api.pod.follow(job_id, after=after) as feed:
                await write(_HELLO)
                await _pass_on(feed, write, asked, api)

    return Streamed(write_events, turns=api.turns, media_type=MEDIA, headers=HEADERS)


async def _knows_all(asked: CheckedRequest[None, None], api: Api, after: Position) -> bool:
    """Whether the job has ended, and nothing happened after this position."""
    place = (asked.path["job_id"], after)
    happened = (await api.port(feeds.since, [place])).get(place)
    if happened is None:
        return False
    return happened.is_over and not (happened.history or happened.attempts or happened.steps)


async def _pass_on(feed: Feed, write: Write, asked: CheckedRequest[None, None], api: Api) -> None:
    """Write what comes until it ends; a reader that does not take it holds up the feed.

    Who asked is looked at again before each piece of news: a stream outlives many a token.
    """
    token = asked.request.headers.get("authorization")
    draining = api.pod.draining
    waiting = trio.CancelScope()

    async def end_when_draining() -> None:
        await draining.wait()
        waiting.cancel(reason="the pod drains")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(end_when_draining)
        while not draining.is_set():
            news: Sequence[FeedEvent] = ()
            with trio.move_on_after(KEEP_ALIVE_S) as waiting:
                try:
                    news = await feed.receive()
                except trio.EndOfChannel:
                    break
            if news:
                await api.auth.by_token(token, address=asked.address, is_read_only=True)
            elif draining.is_set():
                break
            await write(b"".join(_lines(news)) or _STILL_HERE)
        nursery.cancel_scope.cancel(reason="there will be no more here")


def _lines(news: Sequence[FeedEvent]) -> Iterator[bytes]:
    for each in news:
        match each:
            case JobEvent():
                yield _event(_NAMES[each.kind], {**each.data, "at": each.at}, each.position)
                if each.is_ending:
                    yield _event("end", {"status": each.data["new"], "at": each.at})
            case AnswerPiece():
                place = {"attempt": each.attempt, "key": each.key, "call": each.call}
                if each.missing:
                    at = each.offset - each.missing
                    yield _event("gap", {**place, "offset": at, "missing": each.missing})
                yield _event("token", {**place, "offset": each.offset, "text": each.text})


def _event(name: str, data: Mapping[str, Any], position: Position | None = None) -> bytes:
    """Return one event; JSON text has no line ends of its own."""
    id_ = "" if position is None else f"id: {position}\n"
    return f"{id_}event: {name}\ndata: ".encode() + orjson.dumps(data) + b"\n\n"


ROUTES: Final = (
    Route(
        method=Method.GET,
        path=f"{JOB}/events",
        handle=events_of_job,
        role=Role.VIEWER,
        summary="Follow what happens to a job, as server-sent events.",
        params=JOB_PARAMS,
        answers={200: None, 204: None},
        media=MEDIA,
        refuses=(400, 404),
        bound_s=None,
    ),
)
