"""The world outside of the pods, in this process and on its clock: ledger, receiver, model."""

import json
import random
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

import httpx2
from attrs import define, field

from chaos.cluster.ledger import ATTEMPT_HEADER, KEY_HEADER, Terms
from chaos.cluster.receiver import ID_HEADER
from chaos.evidence import Application, Delivery, LedgerRequest, ModelCall
from chaos.sim.host import Scene
from chaos.workloads.model_script import answer
from chaos.workloads.program import BUSY_MODEL
from chaos.workloads.terms import terms_of
from cortex.agent.models.client import DEFAULT_LIMITS, CallLimits
from cortex.agent.models.errors import ModelRejectedError, ModelUnavailableError
from cortex.demo.validation import refusal_of
from cortex.domain.failure import CallFailure
from cortex.domain.model import Capabilities, ModelRequest, ModelResponse
from cortex.domain.usage import Usage
from cortex.http_client.poster import Answer, Headers, Target

REFUSED: Final = 0.02
"""Probability that a ledger call is refused, which certainly changes nothing."""
LOST_THERE: Final = 0.02
LOST_BACK: Final = 0.04
BUSY_TIMES: Final = 2
MODEL_FAULTS: Final = {"overloaded_error": 0.03, "connection_lost": 0.03, "ended_early": 0.02}
OVERLOADED: Final = 529


@define
class _Account:
    highest: dict[str, int] = field(factory=dict)
    results: dict[str, int] = field(factory=dict)
    """Of the first application of each key."""


class Ledger(httpx2.AsyncBaseTransport):
    """Applies requests by the terms of each account; see `chaos.cluster.ledger`."""

    def __init__(self, world: Scene) -> None:
        self._world = world
        self._dice = random.Random(f"ledger {world.seed}")
        self._accounts: dict[str, _Account] = {}
        self.applied: list[Application] = []
        self.requests: list[LedgerRequest] = []

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Handle one request; it or its reply may be lost."""
        if self._drawn(REFUSED):
            raise httpx2.ConnectError("connection refused") from ConnectionRefusedError(111)
        if self._drawn(LOST_THERE):
            raise httpx2.ReadError("connection reset")
        # A request in flight arrives, whatever happens to its sender.
        status, answer = await self._world.elsewhere(lambda: self._serve(request))
        if self._drawn(LOST_BACK):
            raise httpx2.ReadError("connection reset")
        return httpx2.Response(status, json=answer, request=request)

    async def _serve(self, request: httpx2.Request) -> tuple[int, dict[str, Any]]:
        name, _, key = request.url.path.removeprefix("/").partition("/")
        attempt = int(request.headers[ATTEMPT_HEADER])
        body = json.loads(request.content) if request.content else {}
        half_s = body.get("takes_ms", 0) / 2000 + self._dice.uniform(0.001, 0.05)
        await self._world.sleep(half_s)
        if request.method == "POST":
            status, answer = self._take(name, request.headers[KEY_HEADER], attempt)
        else:
            status, answer = self._look_up(name, key, attempt)
        self._world.transcript.add("ledger", request.method, name, attempt, status, answer)
        await self._world.sleep(half_s)
        return status, answer

    def _drawn(self, chance: float) -> bool:
        return self._world.is_stormy and self._dice.random() < chance

    def _take(self, name: str, key: str, attempt: int) -> tuple[int, dict[str, Any]]:
        terms, book = self._book(name)
        self.requests.append(LedgerRequest(key=key, attempt=attempt))
        highest = book.highest.get(key, 0)
        book.highest[key] = max(highest, attempt)
        if terms.is_fenced and attempt < highest:
            return 412, {"error": f"superseded by attempt {highest}"}
        result = book.results.get(key)
        if result is None or not terms.honours_key:
            result = len(self.applied) + 1
            at_s = self._world.clock.now
            self.applied.append(
                Application(account=name, key=key, attempt=attempt, at_s=at_s, result=result)
            )
            book.results.setdefault(key, result)
        return 200, {"result": result}

    def _look_up(self, name: str, key: str, attempt: int) -> tuple[int, dict[str, Any]]:
        terms, book = self._book(name)
        self.requests.append(LedgerRequest(key=key, attempt=attempt))
        if not terms.is_queryable:
            return 404, {"error": "lookups are not supported"}
        book.highest[key] = max(book.highest.get(key, 0), attempt)
        result = book.results.get(key)
        return 200, {"applied": result is not None, "result": result}

    def _book(self, name: str) -> tuple[Terms, _Account]:
        return terms_of(name), self._accounts.setdefault(name, _Account())


class Receiver(httpx2.AsyncBaseTransport):
    """Takes messages from the handler of the pods, and as a webhook; see `chaos.cluster.receiver`.

    The webhook is away at first, for as long as the plan says.
    """

    def __init__(self, world: Scene) -> None:
        self._world = world
        self._dice = random.Random(f"receiver {world.seed}")
        self._hook_dice = random.Random(f"webhook {world.seed}")
        self.deliveries: list[Delivery] = []

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Take one message; it or its reply may be lost."""
        if self._drawn(LOST_THERE):
            raise httpx2.ConnectError("connection refused") from ConnectionRefusedError(111)
        path, message = request.url.path, request.headers[ID_HEADER]
        await self._world.elsewhere(
            lambda: self._serve(path, message, request.content, dice=self._dice)
        )
        if self._drawn(LOST_BACK):
            raise httpx2.ReadError("connection reset")
        return httpx2.Response(204, request=request)

    async def post(self, target: Target, headers: Headers, content: bytes) -> Answer:
        """Take one message of a webhook; it or its reply may be lost."""
        dice, is_stormy = self._hook_dice, self._world.is_stormy
        if self._world.clock.now < self._world.plan.away_s:
            if dice.random() < 0.5:  # its proxy answers, or nobody does
                return Answer(status=502, beginning=b"", retry_after_s=None)
            raise ConnectionRefusedError(111, "connection refused")
        if is_stormy and dice.random() < LOST_THERE:
            raise ConnectionRefusedError(111, "connection refused")
        message = dict(headers)[ID_HEADER]
        await self._world.elsewhere(lambda: self._serve(target.path, message, content, dice=dice))
        if is_stormy and dice.random() < LOST_BACK:
            raise ConnectionResetError(104, "connection reset")
        return Answer(status=204, beginning=b"", retry_after_s=None)

    async def aclose(self) -> None:
        """Do nothing, as one that keeps no connection: pods close what they post with."""

    async def _serve(self, path: str, message: str, content: bytes, *, dice: random.Random) -> None:
        await self._world.sleep(dice.uniform(0.001, 0.05))
        body = json.loads(content)
        delivery = Delivery(
            subscription=path.removeprefix("/"),
            message=message,
            topic=body["type"],
            payload=body["data"],
            at_s=self._world.clock.now,
            is_accepted=True,
        )
        self.deliveries.append(delivery)
        self._world.transcript.add("receiver", delivery.message, delivery.topic)

    def _drawn(self, chance: float) -> bool:
        return self._world.is_stormy and self._dice.random() < chance


class Model:
    """A model client that answers as `chaos.workloads.model_script` does."""

    def __init__(self, world: Scene) -> None:
        self._world = world
        self._dice = random.Random(f"model {world.seed}")
        self._call_counts: dict[str, int] = {}
        self.calls: list[ModelCall] = []

    def provider_of(self, model: str) -> str:  # noqa: ARG002
        return "scripted"

    def capabilities(self, model: str) -> Capabilities:  # noqa: ARG002
        return Capabilities()

    async def respond(
        self,
        request: ModelRequest,
        *,
        on_text: Callable[[str], None] | None = None,
        on_open: Callable[[], None] | None = None,
        on_usage: Callable[[Usage], None] | None = None,
        limits: CallLimits = DEFAULT_LIMITS,  # noqa: ARG002 -- none of its answers takes so long
    ) -> ModelResponse:
        """Answer after the time that the first message names."""
        message = str(request.messages[0]["content"])
        conversation, _, duration = message.partition(" takes ")
        takes_s = int(duration.split()[0]) / 1000
        async with self._noted(conversation) as number:
            await self._world.sleep(takes_s / 4)
            if request.model.startswith(BUSY_MODEL) and number <= BUSY_TIMES:
                raise _failed(request, "rate_limit_error", status=429, retry_after_s=1.0)
            self._fail(request)
            if on_open is not None:
                on_open()
            if on_usage is not None:
                on_usage(Usage(input_tokens=len(message)))
            if (why := refusal_of(request.to_json())) is not None:
                raise _refused(request, why)
            turn = sum(each["role"] == "assistant" for each in request.messages)
            blocks, stop_reason = answer(conversation, turn)
            text = "".join(block.get("text", "") for block in blocks)
            for piece in text.split(" "):
                await self._world.sleep(takes_s / 16)
                if on_text is not None:
                    on_text(f"{piece} ")
            self._fail(request)
        return ModelResponse(
            model=request.model,
            content=tuple(blocks),
            stop_reason=stop_reason,
            usage=Usage(input_tokens=len(message), output_tokens=len(text)),
            message_id=f"msg_{len(self.calls)}",
        )

    @asynccontextmanager
    async def _noted(self, conversation: str) -> AsyncGenerator[int, None]:
        number = self._call_counts[conversation] = self._call_counts.get(conversation, 0) + 1
        at_s, outcome = self._world.clock.now, "cancelled"
        self._world.transcript.add("model", "asked", conversation, number)
        try:
            yield number
            outcome = "answered"
        except (ModelUnavailableError, ModelRejectedError):
            outcome = "refused"
            raise
        finally:
            self._world.transcript.add("model", outcome, conversation, number)
            call = ModelCall(
                conversation=conversation,
                number=number,
                at_s=at_s,
                outcome=outcome,
                ended_s=self._world.clock.now,
            )
            self.calls.append(call)

    def _fail(self, request: ModelRequest) -> None:
        if not self._world.is_stormy:
            return
        drawn = self._dice.random()
        for type_, chance in MODEL_FAULTS.items():
            if drawn < chance:
                status = OVERLOADED if type_ == "overloaded_error" else None
                raise _failed(request, type_, status=status)
            drawn -= chance


def _refused(request: ModelRequest, why: str) -> ModelRejectedError:
    failure = CallFailure(model=request.model, host="sim", type="invalid_request_error", status=400)
    return ModelRejectedError(failure, why)


def _failed(
    request: ModelRequest, type_: str, *, status: int | None, retry_after_s: float | None = None
) -> ModelUnavailableError:
    failure = CallFailure(
        model=request.model,
        host="sim",
        type=type_,
        status=status,
        retry_after_s=retry_after_s,
        has_content=type_ in ("connection_lost", "ended_early"),
    )
    return ModelUnavailableError(failure, "drawn by the seed")
