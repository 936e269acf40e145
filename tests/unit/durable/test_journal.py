"""The record of a job's steps: recorded steps never run again, and nothing else is recorded."""

from decimal import Decimal
from typing import Any

import attrs
import orjson
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from cortex.domain.control_flow import LeaseLost
from cortex.domain.errors import DivergedError, InvalidValueError, RejectedError
from cortex.domain.job import Step, StepDone, StepKind
from cortex.domain.usage import Usage
from cortex.durable.codec import StepInput, input_of
from cortex.durable.journal import KEY_CHARS_MAX, Journal, Recorded
from cortex.durable.step_outcome import StepOutcome
from tests.support.records.factories import Record, a_lease, a_step

GIVEN = input_of({"number": 1}, what="input")


def a_given_step(key: str, *, seq: int = 1, output: str = "null") -> Step:
    """A committed step that was given the same as those of `once`."""
    return attrs.evolve(a_step(key, seq=seq, output=output), digest=GIVEN.digest)


def a_journal(record: Record) -> Journal:
    """The journal of a new attempt, on the steps that earlier ones recorded."""
    return Journal(a_lease(), record, Recorded(steps=list(record.steps)))


async def once(journal: Journal, name: str, outcome: StepOutcome) -> Any:
    async def run() -> StepOutcome:
        return outcome

    return await journal.once(StepKind.STEP, journal.key(name), given=GIVEN, run=run)


async def never() -> StepOutcome:
    raise AssertionError("a recorded step was run again")


async def replay(record: Record, name: str) -> Any:
    journal = a_journal(record)
    return await journal.once(StepKind.STEP, journal.key(name), given=GIVEN, run=never)


async def test_a_recorded_step_returns_its_output_and_is_not_run() -> None:
    record = Record()
    live = await once(a_journal(record), "a", StepOutcome(value={"n": (1, {2})}))
    assert live == {"n": [1, [2]]}
    assert await replay(record, "a") == live
    assert record.keys == ["a"]


async def test_another_input_under_a_recorded_key_diverges_and_names_both() -> None:
    record = Record([attrs.evolve(a_step("fetch"), digest=bytes.fromhex("aa" * 16))])
    journal = a_journal(record)
    with pytest.raises(DivergedError) as caught:
        await journal.once(
            StepKind.STEP,
            journal.key("fetch"),
            given=StepInput(bytes.fromhex("bb" * 16), b"[]"),
            run=never,
        )
    message = caught.value.message
    assert all(part in message for part in ("'fetch'", "aa" * 6, "bb" * 6)), message


async def test_a_step_that_raises_is_not_recorded() -> None:
    record = Record()
    journal = a_journal(record)

    async def fails() -> StepOutcome:
        raise KeyError("gone")

    with pytest.raises(KeyError, match="gone"):
        await journal.once(StepKind.STEP, journal.key("a"), given=GIVEN, run=fails)
    assert record.steps == []
    await once(journal, "b", StepOutcome(value=1))
    assert [step.seq for step in record.steps] == [1]


async def test_an_output_that_is_no_json_is_not_recorded_and_names_the_step() -> None:
    record = Record()
    with pytest.raises(InvalidValueError, match="output of step 'a'"):
        await once(a_journal(record), "a", StepOutcome(value=object()))
    assert record.steps == []


async def test_a_lost_lease_passes_through_job_code_that_swallows_exceptions() -> None:
    record = Record(refuse=LeaseLost("gone"))

    async def job_code() -> Any:
        try:
            return await once(a_journal(record), "a", StepOutcome(value=1))
        except Exception:  # noqa: BLE001
            return "swallowed"

    with pytest.raises(LeaseLost):
        await job_code()
    assert record.steps == []


@pytest.mark.parametrize("refused_at", [0, 1, 2])
async def test_a_refused_step_leaves_no_gap_and_no_cost(refused_at: int) -> None:
    """Else the next attempt would number its steps over those that are there."""
    record = Record()
    journal = a_journal(record)
    priced = StepOutcome(value=1, usage=Usage(input_tokens=5), cost_usd=Decimal("0.5"))
    for number in range(3):
        if number == refused_at:
            record.refuse = RejectedError("no")
            with pytest.raises(RejectedError):
                await once(journal, f"{number}", priced)
        else:
            await once(journal, f"{number}", priced)
    assert [step.seq for step in record.steps] == [1, 2]
    assert (journal.usage.input_tokens, journal.cost_usd) == (10, Decimal("1.0"))
    assert orjson.loads(record.heads[-1] or "")["input_tokens"] == 10


async def test_next_attempt_numbers_steps_after_the_last_recorded() -> None:
    for second in (2, 3):  # a gap
        record = Record([a_given_step("a", seq=1), a_given_step("b", seq=second)])
        journal = a_journal(record)
        for name in ("a", "b", "c"):
            await once(journal, name, StepOutcome(value=1))
        assert [step.seq for step in record.steps] == [1, second, second + 1]


async def test_a_new_step_is_committed_once_the_replay_has_settled() -> None:
    record = Record([a_given_step("a", seq=1, output="1")])
    journal = a_journal(record)
    assert await once(journal, "new", StepOutcome(value=2)) == 2
    assert [step.key for step in record.steps] == ["a"]
    assert await once(journal, "a", StepOutcome(value=3)) == 1
    assert await once(journal, "b", StepOutcome(value=4)) == 4
    assert [step.key for step in record.steps] == ["a", "new", "b"]


async def test_an_effect_waits_for_the_new_steps_before_it() -> None:
    record = Record([a_given_step("a", seq=1, output="1")])
    journal = a_journal(record)
    await once(journal, "new", StepOutcome(value=2))
    await once(journal, "a", StepOutcome(value=3))
    await journal.settled("pay")
    assert [step.key for step in record.steps] == ["a", "new"]


class SlowRecord(Record):
    """A record that takes a step some time after it was sent."""

    async def record(self, operation: StepDone) -> None:
        with trio.move_on_after(1):
            await trio.Event().wait()
        await super().record(operation)


async def test_a_cancelled_branch_takes_no_deferred_step_with_it(autojump_clock: object) -> None:
    record = SlowRecord([a_given_step("a", seq=1)])
    journal = a_journal(record)
    for name in ("b", "c"):
        await once(journal, name, StepOutcome(value=1))
    await once(journal, "a", StepOutcome(value=1))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(journal.settled, "other")
        with trio.move_on_after(0.5):
            await journal.settled("pay")
    await journal.settled("pay")
    assert record.keys == ["a", "b", "c"]


async def test_concurrent_steps_send_a_decision_once(autojump_clock: object) -> None:
    record = SlowRecord()
    journal = a_journal(record)
    assert journal.patched("new way")
    async with trio.open_nursery() as nursery:
        for name in ("a", "b"):
            nursery.start_soon(once, journal, name, StepOutcome(value=1))
    assert [record.keys[0], *sorted(record.keys[1:])] == ["patched: new way", "a", "b"]


async def test_a_divergence_before_any_new_step_is_clean() -> None:
    record = Record([a_given_step("a", seq=1)])
    journal = a_journal(record)
    await once(journal, "renamed", StepOutcome(value=2))
    with pytest.raises(DivergedError, match=r"has not requested .* 'a'") as caught:
        await journal.settled("pay")
    assert caught.value.is_clean
    assert [step.key for step in record.steps] == ["a"]
    with pytest.raises(DivergedError):
        await once(journal, "compensate", StepOutcome(value=3))


@pytest.mark.parametrize("bound", ["steps", "size"])
async def test_new_steps_before_one_on_record_are_kept_up_to_a_bound(
    monkeypatch: pytest.MonkeyPatch, bound: str
) -> None:
    """Code without a recorded step does not run on for good without any progress on record."""
    monkeypatch.setattr("cortex.durable.journal.DEFERRED_MAX", 5 if bound == "steps" else 99)
    monkeypatch.setattr("cortex.durable.journal.DEFERRED_BYTES_MAX", 750)
    value = StepOutcome(value="x" * (90 if bound == "size" else 1))
    for is_removed in (False, True):
        record = Record([a_given_step("removed", seq=1)])
        journal = a_journal(record)
        for _ in range(5):
            await once(journal, "new", value)
        assert record.keys == ["removed"]
        if is_removed:
            with pytest.raises(DivergedError, match=r"has not requested .* 'removed'") as caught:
                await once(journal, "new", value)
            assert caught.value.is_clean, "other code can take the job"
            assert record.keys == ["removed"]
        else:
            await once(journal, "removed", value)
            await once(journal, "new", value)
            assert len(record.keys) == 7


async def test_a_divergence_after_a_new_step_is_not_clean() -> None:
    journal = a_journal(Record([a_given_step("a", seq=1)]))
    await once(journal, "a", StepOutcome(value=1))
    await once(journal, "b", StepOutcome(value=1))
    other = StepInput(b"other", b"{}")
    with pytest.raises(DivergedError) as caught:
        await journal.once(StepKind.STEP, "a", given=other, run=never)
    assert not caught.value.is_clean


async def test_usage_and_cost_count_all_attempts() -> None:
    usage = Usage(input_tokens=10, output_tokens=2)
    earlier = attrs.evolve(a_given_step("a"), usage=usage, cost_usd=Decimal("0.25"))
    record = Record([earlier, a_given_step("free", seq=2)])
    journal = a_journal(record)
    assert (journal.usage, journal.cost_usd) == (usage, Decimal("0.25"))
    for name in ("a", "free"):
        await once(journal, name, StepOutcome(value=1))
    await once(journal, "b", StepOutcome(value=1, usage=usage, cost_usd=Decimal("0.5")))
    assert (journal.usage, journal.cost_usd) == (usage + usage, Decimal("0.75"))
    assert orjson.loads(record.heads[-1] or "") == {
        "seq": 3,
        "kind": "step",
        "key": "b",
        "input_tokens": 20,
        "output_tokens": 4,
        "cost_usd": "0.75",
    }


async def test_head_without_model_calls_has_no_tokens() -> None:
    record = Record()
    await once(a_journal(record), "a", StepOutcome(value=1))
    assert record.heads == [None]  # the database makes it of the step


# --- keys


NAMES = st.lists(st.sampled_from(["a", "b", "a#2", "a#3", "a#2#2", "b#2"]), max_size=12)


@given(NAMES)
def test_steps_never_share_a_key_whatever_their_names(names: list[str]) -> None:
    journal = a_journal(Record())
    keys = [journal.key(name) for name in names]
    assert len(set(keys)) == len(keys)
    again = a_journal(Record())
    assert [again.key(name) for name in names] == keys


def test_a_name_used_again_is_numbered() -> None:
    journal = a_journal(Record())
    assert [journal.key(name) for name in "aaba"] == ["a", "a#2", "b", "a#3"]


@pytest.mark.parametrize(
    "name",
    ["", "x" * (KEY_CHARS_MAX + 1), "a\0b", "a\ud800b", 90],
    ids=["empty", "long", "NUL", "half", "number"],
)
def test_a_name_that_the_record_cannot_hold_is_refused_before_the_step_runs(name: str) -> None:
    with pytest.raises(InvalidValueError, match="the name of a step"):
        a_journal(Record()).key(name)
    assert a_journal(Record()).key("x" * KEY_CHARS_MAX)
