"""Jobs killed at each point: the same end, each effect once, nothing stuck."""

from itertools import count
from typing import Any
from uuid import UUID

import attrs
import pytest
import trio

from cortex import Applied, Context, Invocation, NotApplied, job
from cortex.domain.job import IntentReply
from cortex.durable import effects
from cortex.durable.registry import JobType
from cortex.testing import Cortex, PromiseBrokenError


@attrs.define
class Mail:
    """The other side of an effect."""

    sent: dict[UUID, int] = attrs.field(factory=dict)

    async def send(self, call: Invocation, text: str) -> int:
        self.sent[call.id] = self.sent.get(call.id, 0) + 1
        return len(text)

    async def find(self, call: Invocation) -> Applied | NotApplied:
        return Applied(len(call.arguments["text"])) if call.id in self.sent else NotApplied()

    async def find_nothing(self, _: Invocation) -> NotApplied:
        return NotApplied()

    async def find_another(self, _: Invocation) -> Applied:
        return Applied(1)

    async def find_badly(self, call: Invocation, text: str) -> Applied:
        return Applied(len(text) + len(call.arguments))

    async def find_no_answer(self, _: Invocation) -> None:
        return None

    def job(self, *, reconcile: str | None = None, idempotent: bool = False) -> JobType[..., int]:
        found = None if reconcile is None else getattr(self, reconcile)

        @job("report")
        async def report(ctx: Context, text: str) -> int:
            message = {"role": "user", "content": text}
            answer = await ctx.llm("ask", model="m", messages=[message])
            await ctx.sleep("cool off", days=2)
            await ctx.approve("ready")
            return await ctx.effect(
                "send", self.send, answer.text, reconcile=found, idempotent=idempotent
            )

        return report


@pytest.fixture
def mail(harness: Cortex) -> Mail:
    harness.model.script(["short"])
    harness.approve_all()
    return Mail()


@pytest.mark.parametrize("reconcile", ["find", None])
async def test_effect_is_applied_once_wherever_the_pod_dies(
    harness: Cortex, mail: Mail, reconcile: str | None
) -> None:
    report = mail.job(reconcile=reconcile)
    points = await harness.crash_everywhere(report, text="long")
    assert points > 12, "two for each step, and those of the effect"
    assert set(mail.sent.values()) == {1}
    assert len(mail.sent) == points + 1, "each of the runs sends it"


def test_idempotent_effect_may_be_called_again(harness: Cortex, mail: Mail) -> None:
    assert harness.crash_everywhere_sync(mail.job(idempotent=True), text="long") > 12
    assert set(mail.sent.values()) == {1, 2}


@pytest.mark.parametrize(
    "reconcile, message",
    [
        (
            "find_nothing",
            r"killed after effect 'send' ran, before it was recorded: effect 'send' was called",
        ),
        (
            "find_another",
            r"killed after the intent of effect 'send': effect 'send' is recorded as applied",
        ),
        (
            "find_no_answer",
            r"killed after the intent of effect 'send': .* \(reconcile returned NoneType",
        ),
    ],
)
def test_wrong_reconcile_is_named_with_the_crash(
    harness: Cortex, mail: Mail, reconcile: str, message: str
) -> None:
    with pytest.raises(PromiseBrokenError, match=f"^job 'report', {message}") as info:
        harness.crash_everywhere_sync(mail.job(reconcile=reconcile), text="long")
    assert "\n" not in str(info.value)


def test_call_that_the_ledger_does_not_permit_is_seen(
    harness: Cortex, mail: Mail, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave = effects._leave

    async def careless(*args: Any, **fields: Any) -> Any:
        reply = await leave(*args, **fields)
        return attrs.evolve(reply, verdict="go") if isinstance(reply, IntentReply) else reply

    monkeypatch.setattr(effects, "_leave", careless)
    with pytest.raises(PromiseBrokenError, match="effect 'send' was called again"):
        harness.crash_everywhere_sync(mail.job(reconcile="find"), text="long")


def test_other_result_after_a_crash_is_named(harness: Cortex) -> None:
    attempts = count(1)

    async def number() -> int:
        return 1

    @job
    async def counts(ctx: Context) -> int:
        await ctx.step("one", number)
        return next(attempts) if ctx.attempt == 2 else 0

    with pytest.raises(
        PromiseBrokenError,
        match=r"^job 'counts', killed before its first step: it returns 1; without a crash it "
        r"returns 0$",
    ):
        harness.crash_everywhere_sync(counts)


def test_divergence_after_a_crash_is_named(harness: Cortex) -> None:
    async def number() -> int:
        return 1

    @job
    async def hasty(ctx: Context) -> int:
        first = await ctx.step(f"of attempt {ctx.attempt}", number)
        return first + await ctx.step("second", number)

    with pytest.raises(
        PromiseBrokenError,
        match=r"^job 'hasty', killed after step 'of attempt 1' was recorded: it does not fit its "
        r"own record: .*; without a crash it returns 2$",
    ):
        harness.crash_everywhere_sync(hasty)


def test_concurrent_steps_survive_crashes(harness: Cortex) -> None:
    async def pause(number: int) -> int:
        with trio.move_on_after(number):
            await trio.sleep_forever()
        return number

    @job
    async def fans_out(ctx: Context) -> list[int]:
        return await ctx.gather(*(ctx.step("pause", pause, number) for number in range(5)))

    assert harness.crash_everywhere_sync(fans_out) == 12


def test_job_that_fails_without_a_crash_is_no_proof(harness: Cortex, mail: Mail) -> None:
    message = "^job 'report' fails: .*reconcile of effect 'send' cannot be called: .*, also without"
    with pytest.raises(PromiseBrokenError, match=message) as info:
        harness.crash_everywhere_sync(mail.job(reconcile="find_badly"), text="long")
    assert "\n" not in str(info.value)
