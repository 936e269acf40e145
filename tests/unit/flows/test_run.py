"""Runs of flows on a record that survives their attempts: order, conditions, failures, replay."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from uuid import UUID

import attrs
import pytest
import trio

from cortex.agent.tools.tool import tool as flow_tool
from cortex.agent.tools.toolbox import Toolbox
from cortex.domain.approvals.approval import ApprovalStatus
from cortex.domain.classification import failure_of
from cortex.domain.control_flow import LeaseLost, Suspended, Unfit
from cortex.domain.effect import Invocation
from cortex.domain.errors import (
    CortexError,
    DeniedError,
    InvalidValueError,
    RejectedError,
    TimedOutError,
    TransientError,
    UnavailableError,
)
from cortex.domain.failure import FailureClass
from cortex.domain.job import StepDone, StepKind
from cortex.durable.attempt import Attempt, EffectTerms, ToolCall, ToolPlan
from cortex.flows.run import ITEMS_MAX, FlowResult, FlowRun
from cortex.flows.spec import FlowSpec
from cortex.testing.people import decided_on
from tests.support.records.factories import (
    EchoModel,
    EchoTools,
    FactList,
    LedgerDesk,
    Record,
    a_claim,
    a_context,
)

Step = dict[str, Any]


@attrs.define
class ScriptedTools(EchoTools):
    """Raises the next error of a tool's list, or returns its arguments."""

    errors: dict[str, list[Exception]] = attrs.field(factory=dict)
    running: int = 0
    most_running: int = 0
    seen: list[tuple[str, Any]] = attrs.field(factory=list)

    async def plan(self, attempt: Attempt, call: ToolCall) -> ToolPlan:
        plan = await super().plan(attempt, call)

        async def run(invocation: Invocation | None) -> Any:
            self.seen.append((call.key, None if invocation is None else invocation.id))
            self.running += 1
            self.most_running = max(self.most_running, self.running)
            await trio.lowlevel.checkpoint()
            self.running -= 1
            if self.errors.get(call.tool):
                raise self.errors[call.tool].pop(0)
            return await plan.run(invocation)

        return attrs.evolve(plan, run=run)


@attrs.define
class Run:
    """One job of a flow over its attempts."""

    steps: list[Step]
    inputs: Mapping[str, Any] = attrs.field(factory=dict)
    more: Mapping[str, Any] = attrs.field(factory=dict)
    tools: Any = attrs.field(factory=ScriptedTools)
    model: EchoModel = attrs.field(factory=EchoModel)
    record: Record = attrs.field(factory=Record)
    gateway: LedgerDesk = attrs.field(factory=LedgerDesk)
    facts: FactList = attrs.field(factory=FactList)
    claim: Any = attrs.field(factory=lambda: a_claim(type="run_flow"))
    workspaces: Path = Path("workspaces")

    async def attempt(self) -> FlowResult:
        spec = FlowSpec.from_json({"name": "f", "steps": self.steps, **self.more})
        lent = {
            "tools": self.tools,
            "models": self.model,
            "gateway": self.gateway,
            "facts": self.facts,
            "workspaces": self.workspaces,
        }
        context = a_context(self.record, self.claim, **lent)
        return await FlowRun(context, spec, version=3, inputs=self.inputs).run()

    async def error(self) -> CortexError:
        with pytest.raises(CortexError) as caught:
            await self.attempt()
        return caught.value

    async def waits(self) -> Suspended:
        with pytest.raises(Suspended) as caught:
            await self.attempt()
        return caught.value


def tool(name: str, **fields: Any) -> Step:
    arguments = fields.pop("arguments", {"is": name})
    return {
        "name": name,
        "uses": "tool",
        "with": {"tool": fields.pop("tool", name), "arguments": arguments},
        **fields,
    }


def result_of(name: str) -> str:
    return "${{ steps.%s.result }}" % name  # noqa: UP031 -- braces are the flow's


async def test_results_go_from_step_to_step_and_are_recorded() -> None:
    run = Run(
        [
            tool("a", arguments={"day": "${{ inputs.day }}", "v": "${{ flow.version }}"}),
            tool("b", arguments={"of": "${{ steps.a.result.day }}"}),
            {
                "name": "c",
                "uses": "llm",
                "with": {"model": "m", "prompt": "say ${{ steps.b.result.of }}"},
            },
        ],
        inputs={"day": 7},
        more={"inputs": {"day": {"required": True}, "x": {"default": 1}}},
    )
    first, again = await run.attempt(), await run.attempt()
    assert first == again
    assert first.steps == {"a": "completed", "b": "completed", "c": "completed"}
    assert (first.result["text"], first.version) == ("say 7", 3)
    assert run.record.keys == ["a", "b", "c"]
    assert ([each for each, _ in run.tools.seen], len(run.model.asked)) == (["a", "b"], 1)


@pytest.mark.parametrize("inputs, message", [({}, "lacks input 'day'"), ({"x": 1}, "no input")])
async def test_inputs_are_checked(inputs: dict[str, Any], message: str) -> None:
    run = Run([tool("a")], inputs=inputs, more={"inputs": {"day": {"required": True}}})
    assert message in (await run.error()).message


async def test_flow_step_begins_when_its_needs_have_ended() -> None:
    run = Run(
        [
            tool("a", needs=[]),
            tool("b", needs=[]),
            tool("c", needs=["a"]),
            tool("d", needs=["b", "c"]),
            tool("e", needs=["d"]),
        ]
    )
    await run.attempt()
    keys = [key for key, _ in run.tools.seen]
    assert set(keys[:2]) == {"a", "b"}
    assert keys[2:] == ["c", "d", "e"]
    assert run.tools.most_running == 2


async def test_a_long_chain_needs_no_deep_stack() -> None:
    run = Run([tool(f"s{number}", tool="t") for number in range(200)])
    await run.attempt()
    run.record.steps.pop()
    await run.attempt()
    assert [key for key, _ in run.tools.seen][-2:] == ["s199", "s199"]


async def test_step_with_a_false_condition_is_skipped() -> None:
    run = Run(
        [
            tool("a"),
            tool("b", when="${{ steps.a.result.is == 'x' }}"),
            tool(
                "c", when="${{ steps.b.status == 'skipped' and default(steps.b.result.y, true) }}"
            ),
        ],
        more={"result": result_of("b")},
    )
    result = await run.attempt()
    assert result.steps == {"a": "completed", "b": "skipped", "c": "completed"}
    assert result.result is None


async def test_an_expression_that_fails_names_its_place() -> None:
    run = Run([tool("a"), tool("b", when="${{ steps.a.result.nope.deeper }}")])
    error = await run.error()
    assert isinstance(error, InvalidValueError)
    assert error.message == "flow 'f': step 'b': when: steps.a.result has no 'nope'"


async def test_filled_values_that_do_not_fit_name_the_step() -> None:
    run = Run([tool("a", arguments="${{ inputs }}"), tool("b", arguments="${{ steps.a.status }}")])
    assert "step 'b': with" in (await run.error()).message


# --- for_each


def each(**fields: Any) -> list[Step]:
    arguments = {"i": "${{ index }}", "of": "${{ item }}"}
    return [
        tool("a", for_each=list("xyz"), arguments=arguments, **fields),
        tool("b", arguments={"all": result_of("a")}),
    ]


async def test_a_step_for_each_item_has_a_list_of_results() -> None:
    run = Run(each(when="${{ item != 'y' }}"), more={"result": result_of("b")})
    result = await run.attempt()
    assert result.result == {"all": [{"i": 0, "of": "x"}, None, {"i": 2, "of": "z"}]}
    assert result.steps["a"] == "completed"
    assert sorted(run.record.keys) == ["a[0]", "a[2]", "b"]


async def test_no_more_items_run_at_a_time_than_allowed() -> None:
    items = list(range(50))
    run = Run([tool("a", for_each=items, concurrency=4, arguments={"of": "${{ item }}"})])
    assert len((await run.attempt()).result) == 50
    assert run.tools.most_running == 4


async def test_an_empty_list_is_done_at_once() -> None:
    assert (await Run([tool("a", for_each=[])]).attempt()).result == []


async def test_too_many_items_are_refused_before_anything_runs() -> None:
    steps = [tool("a", for_each="${{ inputs.all }}")]
    run = Run(steps, {"all": list(range(ITEMS_MAX + 1))}, {"inputs": {"all": {}}})
    assert "10,001 items, at most 10,000" in (await run.error()).message
    assert run.tools.seen == []


async def test_results_that_would_fill_the_memory_end_the_flow(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("cortex.flows.run.RESULTS_MAX_BYTES", 1000)
    arguments = {"text": "x" * 100}
    run = Run([tool("a", for_each=list(range(20)), arguments=arguments, concurrency=1)])
    assert "step 'a': the results of its items are more than" in (await run.error()).message
    assert 5 < len(run.tools.seen) < 15


async def test_a_list_of_skipped_items_does_not_block_the_pod() -> None:
    run = Run([tool("a", for_each=list(range(3000)), when=False)])
    passes = 0

    async def other() -> None:
        nonlocal passes
        while True:
            await trio.lowlevel.checkpoint()
            passes += 1

    async with trio.open_nursery() as nursery:
        nursery.start_soon(other)
        await run.attempt()
        nursery.cancel_scope.cancel()
    assert passes > 100


async def test_for_each_over_no_list_is_refused() -> None:
    run = Run([tool("a", for_each="${{ inputs }}")])
    assert "for_each is no list" in (await run.error()).message


async def test_a_killed_run_repeats_no_item_that_is_recorded() -> None:
    run = Run(each(concurrency=1))
    run.tools.errors["a"] = [UnavailableError("gone")]
    await run.error()
    await run.attempt()
    assert [key for key, _ in run.tools.seen] == ["a[0]", "a[0]", "a[1]", "a[2]", "b"]


# --- people


def approve(**fields: Any) -> Step:
    return {"name": "agree", "uses": "approve", "with": {"detail": {"n": 1}}, **fields}


async def decide(run: Run, status: ApprovalStatus) -> None:
    for request in (await run.waits()).requests:
        decided = decided_on(request, status, job_id=run.claim.lease.job_id)
        run.gateway.decided[request.key] = decided


async def test_approved_gate_lets_the_flow_continue() -> None:
    run = Run([tool("a"), approve(), tool("b", arguments={"by": "${{ steps.agree.result.by }}"})])
    await decide(run, ApprovalStatus.APPROVED)
    assert (await run.attempt()).result == {"by": "test"}
    assert [key for key, _ in run.tools.seen] == ["a", "b"]


async def test_a_denied_gate_ends_the_flow_or_is_its_steps_outcome() -> None:
    run = Run([approve(), tool("b")])
    await decide(run, ApprovalStatus.DENIED)
    assert isinstance(await run.error(), DeniedError)
    lax = Run(
        [approve(on_error="continue"), tool("b", when="${{ steps.agree.status == 'failed' }}")]
    )
    await decide(lax, ApprovalStatus.DENIED)
    first, again = await lax.attempt(), await lax.attempt()
    assert first == again
    assert first.steps == {"agree": "failed", "b": "completed"}


async def test_gates_of_a_list_ask_at_once_while_other_branches_run() -> None:
    gates = approve(for_each=list(range(5)), concurrency=2)
    run = Run([gates, tool("b", needs=[])])
    assert len((await run.waits()).requests) == 5
    assert [key for key, _ in run.tools.seen] == ["b"]


# --- failures


async def test_failed_step_ends_the_flow_unless_on_error_is_continue() -> None:
    run = Run([tool("a"), tool("b")])
    run.tools.errors["a"] = [RejectedError("no")]
    assert (await run.error()).message == "no"
    lax = Run(
        [tool("a", on_error="continue"), tool("b", when="${{ steps.a.error.code == 'rejected' }}")]
    )
    lax.tools.errors["a"] = [RejectedError("no")]
    first, again = await lax.attempt(), await lax.attempt()
    assert first == again, "the failure is on record: the second attempt does not try again"
    assert first.steps == {"a": "failed", "b": "completed"}
    assert [key for key, _ in lax.tools.seen] == ["a call", "b"]
    assert [resolution for _, _, resolution in lax.facts.failures] == ["the flow goes on"]


async def test_step_with_spent_retries_has_the_code_of_its_last_failure() -> None:
    run = Run([tool("a", retry={"max": 1}, on_error="continue")])
    run.tools.errors["a"] = [TransientError("1"), UnavailableError("2")]
    await run.waits()
    await run.attempt()
    (outcome,) = [step for step in run.record.steps if step.key == "a"]
    error = json.loads(outcome.output or "")["error"]
    assert error == {"code": "unavailable", "message": "step 'a call' failed 2 times: 2"}
    alone = Run([tool("a", retry={"max": 1})])
    alone.tools.errors["a"] = [TransientError("1"), UnavailableError("2")]
    await alone.waits()
    failure = failure_of(await alone.error())
    assert (failure.code, failure.cls) == ("unavailable", FailureClass.TRANSIENT_INFRA)
    assert failure.is_spent


async def test_a_retry_leaves_the_pod_and_keeps_the_key() -> None:
    run = Run([tool("a", retry={"max": 2, "base_ms": 2000}), tool("b")])
    run.tools.errors["a"] = [TransientError("1", retry_after_s=40.0), TransientError("2")]
    first, second = await run.waits(), await run.waits()
    assert (first.waiting_on, first.reason) == ("sleep", "a is tried again (1 of 2)")
    assert first.delay_s == pytest.approx(40, abs=0.5)
    assert second.delay_s is not None
    assert 0 < second.delay_s <= 4
    assert (await run.attempt()).steps == {"a": "completed", "b": "completed"}
    assert run.record.keys == ["a failure 1", "a failure 2", "a", "b"]
    assert (await run.attempt()).steps == {"a": "completed", "b": "completed"}
    assert [key for key, _ in run.tools.seen] == ["a", "a", "a", "b"]


async def test_flow_fails_when_all_retries_are_spent() -> None:
    run = Run([tool("a", retry={"max": 1})])
    run.tools.errors["a"] = [TransientError("1"), TransientError("2")]
    await run.waits()
    error = await run.error()
    assert isinstance(error, RejectedError)
    assert error.message == "step 'a' failed 2 times: 2"


async def test_a_permanent_failure_is_not_tried_again() -> None:
    run = Run([tool("a", retry={"max": 5}, on_error="continue")])
    run.tools.errors["a"] = [TransientError("1"), RejectedError("2")]
    await run.waits()
    assert (await run.attempt()).steps == {"a": "failed"}
    assert len(run.tools.seen) == 2


async def test_an_effect_is_tried_again_under_its_invocation_id(autojump_clock: object) -> None:
    tools = ScriptedTools(effect=EffectTerms(is_idempotent=True, reconcile=None))
    tools.errors["a"] = [UnavailableError("cut")] * 6
    run = Run([tool("a", retry={"max": 3})], tools=tools)
    await run.waits()
    await run.attempt()
    assert len({invocation_id for _, invocation_id in tools.seen}) == 1


async def test_a_run_that_waits_for_a_person_lets_the_rest_finish_once() -> None:
    run = Run([approve(needs=[]), tool("b", needs=[]), tool("c", needs=["agree", "b"])])
    await decide(run, ApprovalStatus.APPROVED)
    await run.attempt()
    assert [key for key, _ in run.tools.seen] == ["b", "c"]


# --- kills


KILLED = [
    tool("a", needs=[], tool="first"),
    {"name": "agree", "uses": "approve", "needs": ["a"]},
    tool("b", needs=["a"], for_each="${{ range(3) }}", arguments={"n": "${{ item }}"}),
    tool("c", needs=[], tool="bad", on_error="continue"),
    {"name": "say", "uses": "llm", "needs": ["b", "c"], "with": {"model": "m", "prompt": "x"}},
    tool("d", needs=["say", "agree"], arguments={"all": "${{ steps.b.result }}"}),
]
STEPS_RECORDED = 8


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("number", range(STEPS_RECORDED))
async def test_a_run_killed_around_any_commit_ends_as_if_it_was_not(
    number: int, after: bool
) -> None:
    class Mortal(Record):
        count = 0

        async def record(self, operation: StepDone) -> None:
            is_last = self.count == number
            self.count += 1
            if not is_last or after:
                await super().record(operation)
            if is_last:
                raise LeaseLost("killed")

    run = Run(KILLED, tools=ScriptedTools(effect=EffectTerms(is_idempotent=True, reconcile=None)))
    run.tools.errors["bad"] = [RejectedError("no")] * 3
    run.record = Mortal()
    for _ in range(3):
        try:
            result = await run.attempt()
            break
        except LeaseLost:
            continue
        except Suspended as wish:
            for request in wish.requests:
                decided = decided_on(
                    request, ApprovalStatus.APPROVED, job_id=run.claim.lease.job_id
                )
                run.gateway.decided[request.key] = decided
    else:
        pytest.fail("not ended in three attempts")
    assert run.record.count > number, "it was killed"
    assert result.steps == {
        **dict.fromkeys(("a", "agree", "b", "say", "d"), "completed"),
        "c": "failed",
    }
    assert result.result == {"all": [{"n": 0}, {"n": 1}, {"n": 2}]}
    keys = run.record.keys
    assert len(keys) == len(set(keys)) == STEPS_RECORDED, keys
    seen = [key for key, _ in run.tools.seen]
    assert all(seen.count(key) <= 2 for key in seen), "only what was cut off is called again"


# --- time-outs


async def test_limits_that_fire_are_lines_of_the_run(tmp_path: Path) -> None:
    run = Run(
        [
            tool("a", retry={"max": 1}, timeout_ms=5000),
            tool("b", on_error="continue", tool="slow"),
        ],
        workspaces=tmp_path,
    )
    late = TimedOutError("late", scope="call", limit_s=5.0)
    run.tools.errors = {"a": [late], "slow": [late]}
    await run.waits()
    assert (await run.attempt()).steps == {"a": "completed", "b": "failed"}
    lines = lines_of(tmp_path / str(run.claim.lease.job_id))
    assert {(each["flow"], each["scope"], each["limit_ms"]) for each in lines} == {
        ("f v3", "call", 5000)
    }
    assert [(each["step"], each["recovery"], each["final_action"]) for each in lines] == [
        ("a", "retry_step", "retry"),
        ("b call", "step_failed", "continued"),
    ]
    assert all(each["elapsed_ms"] >= 0 and each["at"] for each in lines)


def lines_of(workspace: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (workspace / "timeouts.jsonl").read_text().splitlines()]


async def test_a_link_in_place_of_the_file_is_not_followed(tmp_path: Path) -> None:
    run = Run([tool("a", on_error="continue")], workspaces=tmp_path)
    run.tools.errors["a"] = [TimedOutError("late", scope="call", limit_s=5.0)]
    folder = tmp_path / str(run.claim.lease.job_id)
    folder.mkdir()
    (folder / "timeouts.jsonl").symlink_to(tmp_path / "elsewhere")
    assert (await run.attempt()).steps == {"a": "failed"}
    assert not (tmp_path / "elsewhere").exists()


# --- tools of another release


@flow_tool(name="look", local=True)
def look_of_next_release(city: str, days: int) -> str:
    """Look at the weather."""
    return f"{city} {days}"


FROM_A_STEP = {"city": "Rome", "days": result_of("before")}


@pytest.mark.parametrize(
    "arguments, is_handed_back",
    [
        ({"city": "Rome"}, True),
        ({"city": "Rome", "days": "one"}, True),
        ({"city": "Rome", "days": "${{ inputs.days }}"}, True),
        ({**FROM_A_STEP, "hours": result_of("before")}, True),
        ({"city": 3, "days": result_of("before")}, True),
        ("${{ inputs }}", True),
        (FROM_A_STEP, False),
        ({"city": "Rome", "days": "in ${{ json(steps.before.result) }}"}, False),
        (result_of("before"), False),
    ],
)
async def test_stored_arguments_that_a_tool_no_longer_takes_wait_for_code(
    arguments: Any, *, is_handed_back: bool
) -> None:
    """What the run itself computed is an error of the flow, which no other code takes."""
    steps = [
        {"name": "before", "uses": "publish", "with": {"topic": "t", "payload": {}}},
        tool("look", arguments=arguments, on_error="continue"),
    ]
    run = Run(steps, inputs={"days": "one"}, more={"inputs": {"days": {"required": True}}})
    run.tools = Toolbox({"look": look_of_next_release})
    if not is_handed_back:
        assert (await run.attempt()).steps["look"] == "failed"
        return
    waits = await run.waits()
    assert isinstance(waits, Unfit)
    assert "this pod's tool 'look':" in waits.reason
    assert run.record.keys == ["before"]


# --- agents


async def test_agents_work_side_by_side_with_rules_of_their_own() -> None:
    ids = {"one": UUID(int=1), "two": UUID(int=2)}
    asked: list[UUID] = []

    class Specs:
        async def newest_agent(self, name: str) -> tuple[UUID, int]:
            return ids[name], 4

        async def agent(self, agent_id: UUID, version: int) -> dict[str, Any]:
            asked.append(agent_id)
            assert version == 4
            return {"name": "n", "model": "m", "system": "s"}

    run = Run(
        [
            {"name": name, "uses": "agent", "needs": [], "with": {"agent": name, "prompt": name}}
            for name in ids
        ]
    )
    lent = {"models": run.model, "specs": Specs()}
    spec = FlowSpec.from_json({"name": "f", "steps": run.steps})
    for _ in range(2):
        context = a_context(run.record, run.claim, **lent)
        result = await FlowRun(context, spec, version=1, inputs={}).run()
        assert result.result == {"text": "two", "steps": 1, "output": None}
    assert sorted(run.record.keys) == ["one agent", "one: 1 model", "two agent", "two: 1 model"]
    assert set(asked) == set(ids.values())
    assert len(run.model.asked) == 2


async def test_a_message_is_recorded_once_under_the_name_of_its_step() -> None:
    """The database writes the message with this record: see `step_publishes`."""
    given = {"topic": "order.paid", "payload": {"n": "${{ item }}"}, "key": "k"}
    step = {"name": "say", "uses": "publish", "for_each": [1, 2], "with": given}
    run = Run([step, tool("after", needs=["say"])])
    run.tools.errors["after"] = [TransientError("late")]
    with pytest.raises(TransientError):
        await run.attempt()
    assert (await run.attempt()).steps == {"say": "completed", "after": "completed"}
    messages = {s.key: str(s.output) for s in run.record.steps if s.kind is StepKind.MESSAGE}
    assert {key: json.loads(text)["payload"] for key, text in messages.items()} == {
        "say[0]": {"n": 1},
        "say[1]": {"n": 2},
    }
    assert json.loads(messages["say[0]"]) == {**given, "payload": {"n": 1}}
