"""Message Batches of the scripted server, under /v1/messages/batches.

As strict as the API: custom ids have its form and are unique, results exist only once a batch has
ended and come in another order, and a request that is none is an errored result, not an error. A
script's `Refusal` of the types `expired` and `canceled` is a result of that kind. Lists show no
custom ids.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

import orjson
import trio
from attrs import define, field

from cortex.demo.wire import HttpRequest, Wire
from cortex.domain.clock import system_chance

PATH: Final = "/v1/messages/batches"
CUSTOM_ID: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")
REQUESTS_MAX: Final = 100_000
BYTES_MAX: Final = 268_435_456
LIST_MAX: Final = 1_000
_JSON: Final = "application/json"

Answer = Callable[[Mapping[str, Any]], dict[str, Any]]
"""Returns the result of one request."""


class RefusedBatchError(ValueError):
    """The API refuses this request about batches."""

    def __init__(
        self, message: str, *, status: int = 400, error_type: str = "invalid_request_error"
    ) -> None:
        super().__init__(message)
        self.status = status
        self.error_type = error_type


@define
class _Batch:
    id: str
    created_at: datetime
    ends_at: float
    results: list[dict[str, Any]]
    is_cancelled: bool = False
    ended_at: datetime | None = None


@define
class Batches:
    """All batches of one server. They end `takes_s` seconds after their creation."""

    answer: Answer
    takes_s: float = 0.2
    drops: int = 0
    """How many of the next creations succeed with a connection that breaks before the answer."""
    refusals: list[tuple[int, str]] = field(factory=list)
    """Status and type of errors that the next creations get."""
    _batches: dict[str, _Batch] = field(factory=dict, init=False)

    @property
    def count(self) -> int:
        return len(self._batches)

    async def serve(self, wire: Wire, request: HttpRequest) -> bool:
        """Answer a request; False if the connection is over."""
        try:
            _check(request.headers)
            return await self._serve(wire, request)
        except RefusedBatchError as error:
            problem = {"type": error.error_type, "message": str(error)}
            body = orjson.dumps({"type": "error", "error": problem})
            await wire.answer(error.status, _JSON, body)
            return True

    async def _serve(self, wire: Wire, request: HttpRequest) -> bool:
        url = urlsplit(request.path)
        place = url.path.removeprefix(PATH).strip("/")
        batch_id, _, what = place.partition("/")
        base = f"http://{request.headers.get('host', '')}"
        match request.method, batch_id, what:
            case "POST", "", "":
                batch = self._create(request.body)
                if self.drops:
                    self.drops -= 1
                    await wire.reset()
                    return False
                document: Any = _shown(batch, base)
            case "GET", "", "":
                document = self._list(parse_qs(url.query), base)
            case "GET", _, "":
                document = _shown(self._of(batch_id), base)
            case "POST", _, "cancel":
                batch = self._of(batch_id)
                if batch.ended_at is not None:
                    raise RefusedBatchError("the batch has ended and cannot be canceled")
                batch.is_cancelled = True
                document = _shown(batch, base)
            case "GET", _, "results":
                batch = self._of(batch_id)
                if batch.ended_at is None:
                    raise _missing(f"batch {batch_id} has no results yet")
                lines = b"\n".join(orjson.dumps(each) for each in reversed(batch.results))
                await wire.answer(200, "application/binary", lines + b"\n")
                return True
            case _:
                raise _missing(f"no {request.method} {url.path}")
        await wire.answer(200, _JSON, orjson.dumps(document))
        return True

    def _create(self, body: bytes) -> _Batch:
        if self.refusals:
            status, error_type = self.refusals.pop(0)
            raise RefusedBatchError("scripted refusal", status=status, error_type=error_type)
        if len(body) > BYTES_MAX:
            raise RefusedBatchError(
                "Request exceeds the maximum size", status=413, error_type="request_too_large"
            )
        try:
            document = orjson.loads(body)
        except ValueError as error:
            raise RefusedBatchError(f"not JSON: {error}") from error
        if problem := next(_problems(document), None):
            raise RefusedBatchError(problem)
        number = len(self._batches) + 1
        batch = _Batch(
            id=f"msgbatch_{number:024d}",
            created_at=datetime.fromtimestamp(system_chance().unix_ms() / 1000, UTC),
            ends_at=trio.current_time() + self.takes_s,
            results=[
                {"custom_id": each["custom_id"], "result": self.answer(each["params"])}
                for each in document["requests"]
            ],
        )
        self._batches[batch.id] = batch
        return batch

    def _of(self, batch_id: str) -> _Batch:
        batch = self._batches.get(batch_id)
        if batch is None:
            raise _missing(f"no batch {batch_id}")
        _end(batch)
        return batch

    def _list(self, query: Mapping[str, list[str]], base: str) -> dict[str, Any]:
        if unknown := sorted(query.keys() - {"limit", "after_id", "before_id", "beta"}):
            raise RefusedBatchError(f"{unknown[0]}: extra inputs are not permitted")
        text = query.get("limit", ["20"])[0]
        limit = int(text) if text.isdecimal() else 0
        if not 1 <= limit <= LIST_MAX:
            raise RefusedBatchError(f"limit: {text} is not from 1 to {LIST_MAX}")
        newest = list(reversed(self._batches.values()))
        if after := query.get("after_id"):
            places = [place for place, each in enumerate(newest) if each.id == after[0]]
            if not places:
                raise RefusedBatchError(f"after_id: no batch {after[0]}")
            newest = newest[places[0] + 1 :]
        page = newest[:limit]
        for each in page:
            _end(each)
        return {
            "data": [_shown(each, base) for each in page],
            "has_more": len(newest) > limit,
            "first_id": page[0].id if page else None,
            "last_id": page[-1].id if page else None,
        }


def _check(headers: Mapping[str, str]) -> None:
    if not headers.keys() & {"authorization", "x-api-key"}:
        raise RefusedBatchError("no key", status=401, error_type="authentication_error")
    if "anthropic-version" not in headers:
        raise RefusedBatchError("anthropic-version: header is required")


def _problems(document: Any) -> Iterator[str]:
    if not isinstance(document, dict) or not isinstance(document.get("requests"), list):
        yield "requests: field required"
        return
    if extra := sorted(document.keys() - {"requests"}):
        yield f"{extra[0]}: extra inputs are not permitted"
    requests = document["requests"]
    if not 1 <= len(requests) <= REQUESTS_MAX:
        yield f"requests: {len(requests)} are not from 1 to {REQUESTS_MAX}"
    seen: set[str] = set()
    for place, each in enumerate(requests):
        if not isinstance(each, dict) or each.keys() != {"custom_id", "params"}:
            yield f"requests.{place}: needs custom_id and params, and nothing else"
            continue
        custom_id = each["custom_id"]
        if not isinstance(custom_id, str) or not CUSTOM_ID.fullmatch(custom_id):
            yield f"requests.{place}.custom_id: should match {CUSTOM_ID.pattern}"
        elif custom_id in seen:
            yield f"requests.{place}.custom_id: {custom_id} is not unique"
        else:
            seen.add(custom_id)
        if not isinstance(each["params"], dict):
            yield f"requests.{place}.params: should be an object"


def _end(batch: _Batch) -> None:
    """Let a batch end whose time has come."""
    is_over = batch.is_cancelled or trio.current_time() >= batch.ends_at
    if batch.ended_at is None and is_over:
        batch.ended_at = datetime.fromtimestamp(system_chance().unix_ms() / 1000, UTC)
        if batch.is_cancelled:
            for each in batch.results:
                each["result"] = {"type": "canceled"}


def _shown(batch: _Batch, base: str) -> dict[str, Any]:
    kinds = [each["result"]["type"] for each in batch.results]
    has_ended = batch.ended_at is not None
    names = ("succeeded", "errored", "canceled", "expired")
    counts = {name: kinds.count(name) if has_ended else 0 for name in names}
    counts["processing"] = 0 if has_ended else len(kinds)
    status = "ended" if has_ended else "canceling" if batch.is_cancelled else "in_progress"
    return {
        "id": batch.id,
        "type": "message_batch",
        "processing_status": status,
        "request_counts": counts,
        "created_at": batch.created_at.isoformat(),
        "expires_at": (batch.created_at + timedelta(days=1)).isoformat(),
        "ended_at": None if batch.ended_at is None else batch.ended_at.isoformat(),
        "archived_at": None,
        "cancel_initiated_at": None,
        "results_url": f"{base}{PATH}/{batch.id}/results" if has_ended else None,
    }


def _missing(message: str) -> RefusedBatchError:
    return RefusedBatchError(message, status=404, error_type="not_found_error")
