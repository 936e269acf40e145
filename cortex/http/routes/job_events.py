"""`GET /v1/jobs/{job_id}/events`: the events of a job, as server-sent events.

`state`    the job changed its state
`attempt`  a pod claimed the job, or an attempt ended before the job did
`step`     a step was committed
`chunk`    the job has emitted a chunk
`token`    text that a model streams now, at `offset` in its response
`gap`      number of characters that were lost; the committed step will have them
`end`      the job has ended; no more events follow

Recorded events are complete, in order, and have an id: a client that reconnects with the last one
as `Last-Event-ID` gets the following ones. Model text is delivered on a best-effort basis.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import orjson
import trio
from starlette.responses import Response

from cortex.domain.answer_text import AnswerPiece
from cortex.domain.job_feed import START, EventKind, JobEvent, Position
from cortex.http.framework.api import Api, CheckedRequest, Feed
from cortex.http.framework.route import read
from cortex.http.framework.streaming import Streamed, Write
from cortex.http.framework.tenancy import Tenancy
from cortex.http.routes.jobs import JOB_PARAMS, JOB_PATH
from cortex.store import feed as feeds

KEEP_ALIVE_S: Final = 15.0
"""Below the half minute after which many proxies drop a silent connection."""
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
    EventKind.EMITTED: "chunk",
}


async def events_of_job(request: CheckedRequest[None, None], api: Api) -> Response:
    """Follow a job until it has ended, its reader has left, or the pod drains."""
    job_id = request.path["job_id"]
    observed = request.request.headers.get("last-event-id", "")
    after = Position.parse(observed) if observed else START
    if observed and await _knows_all(request, api, after):
        return Response(status_code=204)  # makes an EventSource stop reconnecting

    async def write_events(write: Write) -> None:
        with api.streams.entered(request.principal):
            async with api.pod.follow(job_id, after=after) as feed:
                await write(_HELLO)
                await _pass_on(feed, write, api)

    return Streamed(write_events, turns=api.turns, media_type=MEDIA, headers=HEADERS)


async def _knows_all(request: CheckedRequest[None, None], api: Api, after: Position) -> bool:
    """Whether the job has ended, and nothing happened after this position."""
    place = (request.path["job_id"], after)
    happened = (await api.port(feeds.since, [place])).get(place)
    if happened is None:
        return False
    return happened.is_over and not (happened.history or happened.attempts or happened.steps)


async def _pass_on(feed: Feed, write: Write, api: Api) -> None:
    """Write events until the job ends; a slow reader holds up the feed."""
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
            if not news and draining.is_set():
                break
            await write(b"".join(_lines(news)) or _STILL_HERE)
        nursery.cancel_scope.cancel(reason="the feed is complete")


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
    read(
        f"{JOB_PATH}/events",
        events_of_job,
        "Follow a job's events, as server-sent events.",
        params=JOB_PARAMS,
        answers={200: None, 204: None},
        media=MEDIA,
        refuses=(400, 404),
        bound_s=None,
        tenancy=Tenancy.JOB,
    ),
)
