"""The accounting around a model call: each is booked once, however it ends, few are repeated."""

import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from decimal import Decimal
from itertools import pairwise
from typing import Any, NoReturn

import pytest
import trio
from attrs import define, field, frozen
from trio.testing import MockClock

from cortex.agent.models.calls import ModelCalls
from cortex.agent.models.client import DEFAULT_LIMITS, CallLimits
from cortex.agent.models.errors import ModelRejectedError, ModelUnavailableError
from cortex.domain.budget import Estimate
from cortex.domain.classification import failure_of
from cortex.domain.control_flow import LeaseLost, Suspended
from cortex.domain.errors import RejectedError
from cortex.domain.failure import CallFailure, Failure, FailureClass
from cortex.domain.model import Capabilities, ModelRequest, ModelResponse
from cortex.domain.prices import LIST_PRICES, PriceTable
from cortex.domain.retry import CALL_RETRIES, CallRetry
from cortex.domain.usage import Usage
from cortex.durable.calls import Caller, Reservation
from cortex.durable.step_outcome import StepOutcome
from tests.support.records.factories import ClosedBreakers, FactList, FreeAdmission, a_lease
from tests.support.records.rows import new_id

MODEL = "scripted"
BREAKER = f"llm:{MODEL}"
OPENED = Usage(input_tokens=1_000_000)
"""What is known as soon as the answer begins: a dollar's worth."""
WHOLE = Usage(input_tokens=1_000_000, output_tokens=200_000)
REQUEST = ModelRequest(model=MODEL, messages=({"role": "user", "content": "hello"},), max_tokens=9)
ANSWER = ModelResponse(
    model=MODEL,
    content=({"type": "text", "text": "hello"},),
    stop_reason="end_turn",
    usage=WHOLE,
    message_id="m1",
)


def overloaded(retry_after_s: float | None = None, *, type_: str = "overloaded_error") -> Exception:
    failure = CallFailure(
        model=MODEL, host="h", type=type_, status=529, retry_after_s=retry_after_s
    )
    return ModelUnavailableError(failure, "busy")


def refused() -> Exception:
    failure = CallFailure(model=MODEL, host="h", type="invalid_request_error", status=400)
    return ModelRejectedError(failure, "no")


@frozen(kw_only=True)
class Play:
    """How one call goes: whether its answer begins, and how it ends; None: it hangs."""

    ending: ModelResponse | Exception | None = ANSWER
    opens: bool = True


@define
class PlayedClient:
    """A model client that plays one play per call, and keeps the times and requests."""

    plays: list[Play]
    asked: list[tuple[float, ModelRequest, CallLimits]] = field(factory=list)

    def provider_of(self, model: str) -> str:  # noqa: ARG002
        return "scripted"

    def capabilities(self, model: str) -> Capabilities:  # noqa: ARG002
        return Capabilities()

    async def respond(
        self,
        request: ModelRequest,
        *,
        on_text: Callable[[str], None] | None = None,  # noqa: ARG002
        on_open: Callable[[], None] | None = None,
        on_usage: Callable[[Usage], None] | None = None,
        limits: CallLimits = DEFAULT_LIMITS,
    ) -> ModelResponse:
        self.asked.append((trio.current_time(), request, limits))
        play = self.plays.pop(0)
        await trio.lowlevel.checkpoint()
        if play.opens:
            assert on_open is not None
            assert on_usage is not None
            on_open()
            on_usage(OPENED)
        if play.ending is None:
            await trio.sleep_forever()
        if isinstance(play.ending, ModelResponse):
            return play.ending
        assert play.ending is not None
        raise play.ending


@define
class Book:
    """A budget guard that keeps its bookings; `refusal` is raised by the next reservation."""

    reserved: list[Reservation] = field(factory=list)
    settled: list[tuple[Reservation, Usage, Decimal | None, str, Failure | None]] = field(
        factory=list
    )
    refusal: BaseException | None = None

    async def reserve(self, caller: Caller, *, model: str, estimate: Estimate) -> Reservation:
        await trio.lowlevel.checkpoint()
        if self.refusal is not None:
            raise self.refusal
        reservation = Reservation(id=new_id(), caller=caller, model=model, estimate=estimate)
        self.reserved.append(reservation)
        return reservation

    async def settle(
        self,
        reservation: Reservation,
        *,
        usage: Usage,
        cost_usd: Decimal | None,
        outcome: str,
        took_s: float,
        failure: Failure | None = None,
    ) -> None:
        await trio.lowlevel.checkpoint()  # an unshielded write is lost here
        assert 0 <= took_s <= trio.current_time()
        self.settled.append((reservation, usage, cost_usd, outcome, failure))

    @property
    def lines(self) -> list[tuple[str, Usage, Decimal | None]]:
        """(outcome, usage, cost) of each booked call; checks that each one is booked once."""
        assert [each[0].id for each in self.settled] == [each.id for each in self.reserved]
        return [(outcome, usage, cost) for _, usage, cost, outcome, _ in self.settled]


@define
class OpeningAdmission(FreeAdmission):
    """The first failure opens the breaker."""

    async def failed(self, failure: Failure) -> None:
        self.reports.append(failure)
        raise Suspended(BREAKER, f"breaker {BREAKER} is open", delay_s=30)


@define
class OpeningBreakers(ClosedBreakers):
    """Lets calls through until one fails."""

    @asynccontextmanager
    async def admit(self, name: str) -> AsyncIterator[FreeAdmission]:
        admission = OpeningAdmission()
        self.admissions.setdefault(name, []).append(admission)
        yield admission


@define
class CallBench:
    """The calls under test with everything around them."""

    plays: list[Play]
    breakers: ClosedBreakers = field(factory=ClosedBreakers)
    retry: CallRetry = CALL_RETRIES["default"]
    book: Book = field(factory=Book)
    facts: FactList = field(factory=FactList)
    client: PlayedClient = field(init=False)
    calls: ModelCalls = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.client = PlayedClient(list(self.plays))
        self.calls = ModelCalls(
            client=self.client,
            breakers=self.breakers,
            budget_guard=self.book,
            facts=self.facts,
            rng=random.Random(1),
        )

    async def respond(self, **fields: Any) -> StepOutcome:
        return await self.calls.respond(REQUEST, a_caller(**{"retry": self.retry, **fields}))

    @property
    def reports(self) -> list[Failure | None]:
        """The results reported to each admission, without calls that reported none."""
        return [report for each in self.breakers.admissions[BREAKER] for report in each.reports]

    @property
    def pauses_s(self) -> list[float]:
        times = [at for at, _, _ in self.client.asked]
        return [after - before for before, after in pairwise(times)]


def a_caller(**fields: Any) -> Caller:
    lease = a_lease()
    defaults: dict[str, Any] = {
        "lease": lease,
        "lineage_id": lease.job_id,
        "tenant": "default",
        "agent_id": None,
        "agent_version": None,
        "config_id": None,
        "key": "turn-1",
        "prices": LIST_PRICES,
        "call_s": 60.0,
        "idle_s": 7.0,
        "connect_s": 3.0,
    }
    return Caller(**defaults | fields)


async def test_a_kept_answer_is_booked_with_all_that_it_used() -> None:
    gateway = CallBench([Play()])
    outcome = await gateway.respond()
    assert outcome == StepOutcome(value=ANSWER.to_json(), usage=WHOLE, cost_usd=Decimal(2))
    assert gateway.book.lines == [("kept", WHOLE, Decimal(2))]
    assert gateway.reports == [None]
    ((_, request, limits),) = gateway.client.asked
    assert request is REQUEST
    assert limits == CallLimits(total_s=60, idle_s=7, connect_s=3)


async def test_without_a_price_the_tokens_are_booked() -> None:
    gateway = CallBench([Play()])
    outcome = await gateway.respond(prices=PriceTable({}))
    assert outcome.cost_usd is None
    assert gateway.book.lines == [("kept", WHOLE, None)]
    assert gateway.book.reserved[0].estimate.cost_usd is None


async def test_a_call_that_fails_is_made_again_in_its_step(autojump_clock: MockClock) -> None:
    gateway = CallBench([Play(ending=overloaded()), Play(ending=overloaded(), opens=False), Play()])
    outcome = await gateway.respond()
    assert outcome.usage == WHOLE, "the step used what its answer did; the rest is in the facts"
    assert gateway.book.lines == [
        ("failed", OPENED, Decimal(1)),
        ("failed", Usage(), Decimal(0)),
        ("kept", WHOLE, Decimal(2)),
    ]
    output = [(key, failure.code, failure.source) for key, failure, _ in gateway.facts.failures]
    assert output == [("turn-1", "overloaded", BREAKER)] * 2
    assert all(each.startswith("called again in ") for _, _, each in gateway.facts.failures)
    assert [each and each.code for each in gateway.reports] == ["overloaded", "overloaded", None]
    first_s, second_s = gateway.pauses_s
    assert 1 <= first_s <= 1.5
    assert 2 <= second_s <= 3
    codes = [each[4] and each[4].code for each in gateway.book.settled]
    assert codes == ["overloaded", "overloaded", None]


async def test_the_last_failure_is_raised_and_not_recorded_twice(
    autojump_clock: MockClock,
) -> None:
    retry = CallRetry(base_s=1, cap_s=60, attempts=3)
    gateway = CallBench([Play(ending=overloaded())] * 3, retry=retry)
    with pytest.raises(ModelUnavailableError):
        await gateway.respond()
    assert [line[0] for line in gateway.book.lines] == ["failed"] * 3
    assert len(gateway.facts.failures) == 2, "the third one ends the attempt, which records it"


async def test_permanent_failure_is_not_repeated() -> None:
    gateway = CallBench([Play(ending=refused(), opens=False)])
    with pytest.raises(ModelRejectedError):
        await gateway.respond()
    assert gateway.book.lines == [("failed", Usage(), Decimal(0))]
    assert gateway.facts.failures == []
    assert [each and each.source for each in gateway.reports] == [BREAKER]


@pytest.mark.parametrize("type_", ["malformed_answer", "not_a_stream"])
async def test_server_of_another_protocol_is_asked_twice(
    autojump_clock: MockClock, type_: str
) -> None:
    facts = CallFailure(
        model=MODEL, host="h:1", type=type_, protocol="the Messages API", address="THE_URL"
    )
    unreadable = ModelUnavailableError(facts, "a page")
    gateway = CallBench([Play(ending=unreadable, opens=False)] * 3)
    with pytest.raises(
        ModelRejectedError, match=r"h:1.* does not speak the Messages API"
    ) as caught:
        await gateway.respond()
    failure = failure_of(caught.value)
    assert (failure.code, failure.cls) == ("not_messages_api", FailureClass.PERMANENT)
    assert caught.value.hint == "check THE_URL: it must be the address of the Messages API"
    assert failure.call_id == str(gateway.book.reserved[-1].id)
    assert len(gateway.client.asked) == 2
    assert all(each and not each.cls.is_transient for each in gateway.reports), "the breaker stays"


async def test_slow_import_is_repeated_and_no_failure_of_the_model(
    autojump_clock: MockClock,
) -> None:
    slow = CallFailure(model=MODEL, host="its API", type="client_not_loaded", limit_s=5.0)
    plays = [Play(ending=ModelUnavailableError(slow, "imported"), opens=False)] * 4
    gateway = CallBench([*plays, Play()])
    assert (await gateway.respond()).usage == WHOLE
    assert not any(each and each.cls.is_transient for each in gateway.reports)


async def test_one_answer_that_cannot_be_read_is_asked_for_again(autojump_clock: MockClock) -> None:
    unreadable = CallFailure(model=MODEL, host="h", type="malformed_answer")
    plays = [overloaded(), ModelUnavailableError(unreadable, "cut"), overloaded()]
    gateway = CallBench([*(Play(ending=each) for each in plays), Play()])
    assert (await gateway.respond()).usage == WHOLE


async def test_a_server_that_asks_for_a_pause_gets_it(autojump_clock: MockClock) -> None:
    gateway = CallBench([Play(ending=overloaded(25.0)), Play()])
    await gateway.respond()
    assert gateway.pauses_s == [25.0]


@pytest.mark.parametrize("asked_s, call_count", [(25.0, 2), (31.0, 1)])
async def test_requested_pause_must_fit_into_the_steps_time(
    autojump_clock: MockClock, asked_s: float, call_count: int
) -> None:
    gateway = CallBench([Play(ending=overloaded(asked_s)), Play()])
    with trio.fail_after(30):
        if call_count == 1:
            with pytest.raises(ModelUnavailableError):
                await gateway.respond()
            assert trio.current_effective_deadline() - trio.current_time() > 29
        else:
            await gateway.respond()
    assert len(gateway.book.lines) == call_count


async def test_a_failure_that_opens_the_breaker_suspends_the_job_and_is_recorded() -> None:
    gateway = CallBench([Play(ending=overloaded())], breakers=OpeningBreakers())
    with pytest.raises(Suspended) as suspended:
        await gateway.respond()
    assert suspended.value.waiting_on == BREAKER
    assert gateway.book.lines == [("failed", OPENED, Decimal(1))]
    ((key, failure, output),) = gateway.facts.failures
    assert (key, failure.code, output) == ("turn-1", "overloaded", f"the job waits for {BREAKER}")


async def test_open_breaker_prevents_the_call() -> None:
    closed = ClosedBreakers(suspended=Suspended(BREAKER, "it is open", delay_s=30))
    gateway = CallBench([Play()], breakers=closed)
    with pytest.raises(Suspended):
        await gateway.respond()
    assert (gateway.client.asked, gateway.book.lines, gateway.facts.failures) == ([], [], [])


@pytest.mark.parametrize(
    "refusal",
    [
        Suspended("budget:tenant:default:usd:run", "it is spent", delay_s=None),
        LeaseLost("the job is owned by another attempt"),
        RejectedError("the price is not known"),
    ],
    ids=lambda refusal: type(refusal).__name__,
)
async def test_refused_reservation_prevents_the_call_without_a_breaker_report(
    refusal: BaseException,
) -> None:
    gateway = CallBench([Play()])
    gateway.book.refusal = refusal
    with pytest.raises(type(refusal)):
        await gateway.respond()
    assert (gateway.client.asked, gateway.book.lines, gateway.reports) == ([], [], [])


async def test_cancelled_call_is_booked_with_its_usage_so_far(
    autojump_clock: MockClock,
) -> None:
    gateway = CallBench([Play(ending=None)])
    with trio.move_on_after(5) as scope:
        await gateway.respond()
    assert scope.cancelled_caught
    assert gateway.book.lines == [("cancelled", OPENED, Decimal(1))]
    assert (gateway.reports, gateway.facts.failures) == ([], [])


async def test_call_cancelled_before_it_began_is_booked_at_zero(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gateway = CallBench([Play()])

    async def cancelled_at_once(*_: object, **__: object) -> NoReturn:
        scope.cancel()
        await trio.lowlevel.checkpoint()
        raise AssertionError("not cancelled")

    monkeypatch.setattr(PlayedClient, "respond", cancelled_at_once)
    with trio.CancelScope() as scope:
        await gateway.respond()
    assert gateway.book.lines == [("cancelled", Usage(), Decimal(0))]


async def test_a_booking_that_hangs_does_not_hold_a_cancelled_job_for_ever(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    gateway = CallBench([Play(ending=None)])

    async def hang(*_: object, **__: object) -> None:
        await trio.sleep_forever()

    monkeypatch.setattr(Book, "settle", hang)
    with trio.move_on_after(5):
        await gateway.respond()
    assert trio.current_time() < 60
