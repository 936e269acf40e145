"""Which model answers in the place of another one, and what is recorded and paid."""

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from attrs import define, evolve, field
from trio.testing import MockClock

from cortex.agent.models.calls import ModelCalls
from cortex.agent.models.client import DEFAULT_LIMITS, CallLimits
from cortex.agent.models.errors import (
    ModelNotSetUpError,
    ModelRejectedError,
    ModelUnavailableError,
)
from cortex.agent.spec import parse_agents
from cortex.domain.control_flow import Suspended
from cortex.domain.errors import CortexError, UsageError
from cortex.domain.failure import CallFailure, Failure
from cortex.domain.model import Capabilities, ModelRequest, ModelResponse
from cortex.domain.model_endpoints import check_tools, model_endpoints
from cortex.domain.usage import Usage
from cortex.durable.step_outcome import StepOutcome
from cortex.runtime.isolation.wire import plain, shaped
from tests.support.pods import run_cli
from tests.support.records.factories import ClosedBreakers, FactList, FreeAdmission
from tests.unit.agent.test_model_calls import Book, a_caller

FIRST, SECOND, THIRD = "claude-sonnet-5", "openai:gpt-5.2", "local:llama3"
USAGE = Usage(input_tokens=1000, output_tokens=100)
IMAGE = {"type": "image", "source": {"type": "url", "url": "http://h/i.png"}}


def rejected(code: str, model: str = FIRST) -> ModelRejectedError:
    return ModelRejectedError(CallFailure(model=model, host="h", type=code, code=code), code)


def passing(model: str = FIRST) -> ModelUnavailableError:
    facts = CallFailure(model=model, host="h", type="overloaded_error", status=529)
    return ModelUnavailableError(facts, "busy")


Answer = str | BaseException


@define
class Client:
    """Answers as its table says: a stop reason, or an error to raise."""

    answers: dict[str, Answer]
    lacks: dict[str, Capabilities] = field(factory=dict)
    usage: Usage = USAGE
    asked: list[str] = field(factory=list)

    def provider_of(self, model: str) -> str:
        return model.partition(":")[0]

    def capabilities(self, model: str) -> Capabilities:
        return self.lacks.get(model, Capabilities())

    async def respond(
        self,
        request: ModelRequest,
        *,
        on_text: Any = None,  # noqa: ARG002
        on_open: Any = None,  # noqa: ARG002
        on_usage: Any = None,  # noqa: ARG002
        limits: CallLimits = DEFAULT_LIMITS,  # noqa: ARG002
    ) -> ModelResponse:
        self.asked.append(request.model)
        answer = self.answers[request.model]
        if isinstance(answer, BaseException):
            raise answer
        return ModelResponse(
            model="a-release",
            content=({"type": "text", "text": f"from {request.model}"},),
            stop_reason=answer,
            usage=self.usage,
            message_id="m",
        )


@define
class OpenBreakers(ClosedBreakers):
    """The breakers of some models are open."""

    is_open: frozenset[str] = frozenset()

    def admit(self, name: str) -> Any:
        if name.removeprefix("llm:") in self.is_open:
            raise Suspended(name, f"breaker {name} is open", delay_s=30)
        return super().admit(name)


@define
class Bench:
    answers: dict[str, Answer]
    is_open: frozenset[str] = frozenset()
    lacks: dict[str, Capabilities] = field(factory=dict)
    breakers: type[Any] = OpenBreakers
    usage: Usage = USAGE
    book: Book = field(factory=Book)
    facts: FactList = field(factory=FactList)
    client: Client = field(init=False)

    async def respond(self, **fields: Any) -> StepOutcome:
        self.client = Client(self.answers, self.lacks, self.usage)
        calls = ModelCalls(
            client=self.client,
            breakers=self.breakers(is_open=self.is_open),
            budget_guard=self.book,
            facts=self.facts,
            rng=random.Random(1),
        )
        request = ModelRequest(
            model=FIRST,
            messages=[{"role": "user", "content": "hi"}],
            max_tokens=10,
            fallback=(SECOND, THIRD),
        )
        return await calls.respond(evolve(request, **fields), a_caller())

    @property
    def notes(self) -> list[tuple[str, str]]:
        return [(each.code, how) for _, each, how in self.facts.failures]


async def test_the_first_model_answers_while_it_can() -> None:
    bench = Bench({FIRST: "end_turn"})
    outcome = await bench.respond()
    assert "substitution" not in outcome.value
    assert bench.client.asked == [FIRST]
    assert bench.notes == []


async def test_an_answer_without_counts_is_not_booked_as_free() -> None:
    """Some servers that resemble OpenAI's report no usage; budgets must count the call."""
    bench = Bench({FIRST: "end_turn"}, usage=Usage())
    outcome = await bench.respond()
    ((_, usage, cost),) = bench.book.lines
    assert usage.is_estimated
    assert min(usage.input_tokens, usage.output_tokens) > 0
    assert cost is not None
    assert cost > 0
    assert (outcome.usage, outcome.cost_usd) == (usage, cost)
    assert ModelResponse.from_json(outcome.value).usage == usage


async def test_an_open_breaker_hands_the_call_to_the_next_model() -> None:
    bench = Bench({SECOND: "end_turn"}, is_open=frozenset({FIRST}))
    outcome = await bench.respond()
    response = ModelResponse.from_json(outcome.value)
    assert response.text == f"from {SECOND}"
    assert response.substitution is not None
    assert response.substitution.model == SECOND
    assert response.substitution.reason == f"breaker llm:{FIRST} is open"
    # Ten thousand jobs during an outage write no fact for each call: the step has the reason.
    assert bench.notes == []
    assert bench.facts.resolved_count == 0
    # Budget and price are those of the one that answers.
    assert [each.model for each in bench.book.reserved] == [SECOND]
    assert outcome.cost_usd == Decimal("0.00315")


@pytest.mark.parametrize(
    "code", ["authentication", "permission", "billing", "account_suspended", "not_found"]
)
async def test_a_rejection_that_is_no_mistake_of_the_caller_goes_on(code: str) -> None:
    bench = Bench({FIRST: rejected(code), SECOND: "end_turn"})
    outcome = await bench.respond()
    assert outcome.value["substitution"]["model"] == SECOND
    assert bench.notes == [(code, f"{SECOND} is asked instead")]


async def test_a_pod_without_the_key_of_a_model_asks_the_next_one() -> None:
    """As after a key that was revoked; the note names the variable."""
    no_key = ModelNotSetUpError("there is no API key for the model", hint="set A_KEY")
    bench = Bench({FIRST: no_key.with_way_out(), SECOND: "end_turn"})
    outcome = await bench.respond()
    assert outcome.value["substitution"] == {
        "model": SECOND,
        "reason": "there is no API key for the model: set A_KEY",
    }
    assert bench.notes == [("model_not_set_up", f"{SECOND} is asked instead")]


@pytest.mark.parametrize("code", ["invalid_request", "prompt_too_long", "request_too_large"])
async def test_a_mistake_of_the_caller_is_the_same_with_any_model(code: str) -> None:
    bench = Bench({FIRST: rejected(code)})
    with pytest.raises(ModelRejectedError):
        await bench.respond()
    assert bench.client.asked == [FIRST]
    assert bench.notes == []


async def test_a_spent_budget_asks_nobody_else() -> None:
    bench = Bench({SECOND: "end_turn"})
    bench.book.refusal = Suspended("budget:agent", "spent", delay_s=None)
    with pytest.raises(Suspended, match="spent"):
        await bench.respond()


async def test_a_passing_failure_is_left_to_the_breaker(autojump_clock: MockClock) -> None:
    """One overload is no outage: the job tries again, and asks another one once it is one."""
    bench = Bench({FIRST: passing()})
    with pytest.raises(ModelUnavailableError):
        await bench.respond()
    assert set(bench.client.asked) == {FIRST}


async def test_a_refusal_is_paid_for_and_answered_by_the_next_model() -> None:
    bench = Bench({FIRST: "refusal", SECOND: "end_turn"})
    outcome = await bench.respond()
    assert outcome.value["substitution"] == {
        "model": SECOND,
        "reason": f"model {FIRST!r} refused to answer",
    }
    assert outcome.usage == USAGE + USAGE
    assert outcome.cost_usd == Decimal("0.003") + Decimal("0.00315")
    assert bench.notes == [("model_refused", f"{SECOND} is asked instead")]


async def test_the_first_refusal_stands_if_all_refuse() -> None:
    bench = Bench(dict.fromkeys((FIRST, SECOND, THIRD), "refusal"))
    outcome = await bench.respond()
    assert outcome.value["stop_reason"] == "refusal"
    assert "substitution" not in outcome.value
    assert bench.notes[-1] == ("model_refused", "no other model is left")


async def test_a_model_without_images_is_passed_over_and_named() -> None:
    bench = Bench(
        {THIRD: "end_turn"},
        is_open=frozenset({FIRST}),
        lacks={SECOND: Capabilities(images=False, tools=False)},
    )
    outcome = await bench.respond(
        tools=({"name": "t", "input_schema": {}},),
        messages=[{"role": "user", "content": [IMAGE]}],
    )
    assert outcome.value["substitution"]["model"] == THIRD
    failures = [each.message for _, each, _ in bench.facts.failures]
    assert failures[1].startswith(
        f"model {SECOND!r} takes no tools and no images, which this request has"
    )
    assert bench.notes[1] == ("unfit_fallback", f"{THIRD} is asked instead")


async def test_the_first_model_must_fit_the_request() -> None:
    bench = Bench({}, lacks={FIRST: Capabilities(images=False)})
    with pytest.raises(UsageError, match=f"model '{FIRST}' takes no images"):
        await bench.respond(messages=[{"role": "user", "content": [IMAGE]}])


async def test_a_job_waits_for_its_own_model_if_no_other_one_answers() -> None:
    bench = Bench(
        {SECOND: rejected("authentication", SECOND), THIRD: rejected("not_found", THIRD)},
        is_open=frozenset({FIRST}),
    )
    with pytest.raises(Suspended) as caught:
        await bench.respond()
    assert caught.value.waiting_on == f"llm:{FIRST}"
    assert [how for _, how in bench.notes][-1] == "no other model is left"


async def test_a_job_tries_again_if_a_fallback_may_answer_later(autojump_clock: MockClock) -> None:
    bench = Bench({FIRST: rejected("authentication"), SECOND: passing(SECOND), THIRD: passing()})
    with pytest.raises(ModelUnavailableError):
        await bench.respond()


def agent(text: str) -> Any:
    (spec,) = parse_agents(f"name: a\nmodel: {FIRST}\nsystem: s\n{text}", "agents.yaml")
    return spec


def test_the_fallback_is_part_of_the_agent_only_if_there_is_one() -> None:
    spec = agent(f"fallback: ['{SECOND}']\n")
    assert spec.fallback == (SECOND,)
    assert spec.to_json()["fallback"] == [SECOND]
    assert type(spec).from_json(spec.to_json()) == spec
    assert "fallback" not in agent("").to_json()


@pytest.mark.parametrize(
    "text, message",
    [
        (f"fallback: [{FIRST}]", f'fallback[0] names "{FIRST}" twice'),
        ("fallback: ['']", "fallback[0] must not be empty"),
        (f"fallback: [{', '.join(f'm{n}' for n in range(9))}]", "fallback has 9 models, at most 8"),
        ("fallback: [m]\nmetadata: {team: a}", "metadata"),
    ],
)
def test_a_wrong_fallback_is_refused_with_its_line(text: str, message: str) -> None:
    with pytest.raises(CortexError, match=r"agents\.yaml:\d") as caught:
        agent(text)
    assert message in caught.value.message


def test_an_agent_with_tools_needs_models_that_take_them() -> None:
    endpoints = model_endpoints(
        'local = {kind = "openai", base_url = "http://h", api = "chat", lacks = ["tools"]}'
    )
    check_tools(SECOND, ["t"], endpoints, what="agent 'a'")
    check_tools(THIRD, [], endpoints, what="agent 'a'")
    with pytest.raises(UsageError, match=f"agent 'a' has tools, and model '{THIRD}' takes none"):
        check_tools(THIRD, ["t"], endpoints, what="agent 'a'")


@pytest.mark.parametrize(
    "tools", ["mcp: {git: {command: [git-server]}}", "server_tools: [{type: web_search}]"]
)
def test_tools_of_servers_need_models_that_take_them(tools: str, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(
        f"name: a\nmodel: {FIRST}\nsystem: s\nfallback: ['{THIRD}']\n{tools}\n"
    )
    tables = 'local = {kind = "openai", base_url = "http://h", lacks = ["tools"]}'
    environ = {"CORTEX_MODELS": tables}
    ran = run_cli("agents", "apply", "a.yaml", dsn=None, folder=tmp_path, extra=environ)
    assert ran.exit_code == 2
    assert f"agent 'a' has tools, and model '{THIRD}' takes none" in ran.stderr


@define
class OpeningAdmission(FreeAdmission):
    name: str = ""

    async def failed(self, failure: Failure) -> None:
        raise Suspended(self.name, f"breaker {self.name} is open", delay_s=30, failure=failure)


@define
class OpeningBreakers(OpenBreakers):
    """The first failure of a model opens its breaker."""

    @asynccontextmanager
    async def admit(self, name: str) -> AsyncIterator[FreeAdmission]:
        yield OpeningAdmission(name=name)


async def test_the_failure_that_opens_the_breaker_hands_the_call_on() -> None:
    bench = Bench({FIRST: passing(), SECOND: "end_turn"}, breakers=OpeningBreakers)
    outcome = await bench.respond()
    assert bench.client.asked == [FIRST, SECOND]
    assert "busy" in outcome.value["substitution"]["reason"]
    assert bench.notes == [("overloaded", f"{SECOND} is asked instead")]
    assert bench.facts.resolved_count == 1


def test_a_request_and_its_answer_cross_to_a_process_of_its_own() -> None:
    request = ModelRequest(model=FIRST, messages=[], max_tokens=1, fallback=(SECOND,))
    assert shaped(plain(request, ModelRequest), ModelRequest).fallback == (SECOND,)
