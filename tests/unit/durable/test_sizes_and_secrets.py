"""Limits of a step's record: its size, and no secret in output or name."""

from typing import Any

import pytest

from cortex.domain import redaction
from cortex.domain.errors import InvalidValueError
from cortex.domain.job import StepKind
from cortex.domain.limits import CHECKPOINT, MIB, MODEL_RESPONSE, PAYLOAD, TOOL_OUTPUT
from cortex.durable.codec import StepInput, parse_payload
from cortex.durable.journal import Journal, Recorded
from cortex.durable.step_outcome import StepOutcome
from tests.support.knowing import forget_secrets
from tests.support.records.factories import Record, a_lease, a_step

GIVEN = StepInput(b"given", b"[]")
VALUE = "sk-0f9e8d7c6b"


@pytest.fixture(autouse=True)
def _forget(monkeypatch: pytest.MonkeyPatch) -> None:
    forget_secrets(monkeypatch)


def a_journal(record: Record) -> Journal:
    return Journal(a_lease(), record, Recorded(steps=list(record.steps)))


async def once(journal: Journal, kind: StepKind, name: str, value: Any) -> Any:
    async def run() -> StepOutcome:
        return StepOutcome(value=value)

    return await journal.once(kind, journal.key(name), given=GIVEN, run=run)


def test_size_limits_are_fixed() -> None:
    sizes = [each.bytes_max for each in (PAYLOAD, CHECKPOINT, TOOL_OUTPUT, MODEL_RESPONSE)]
    assert sizes == [262_144, 1_048_576, 67_108_864, 4_194_304]


@pytest.mark.parametrize(
    "kind, bytes_max",
    [
        (StepKind.STEP, MIB),
        (StepKind.TOOL, MIB),
        (StepKind.EFFECT, MIB),
        (StepKind.MODEL, 4 * MIB),  # it is paid for
    ],
)
async def test_step_output_over_its_limit_is_refused_with_a_hint(
    kind: StepKind, bytes_max: int
) -> None:
    record = Record()
    text = "x" * (bytes_max - 2)
    assert await once(a_journal(record), kind, "fits", text) == text
    with pytest.raises(InvalidValueError) as caught:
        await once(a_journal(record), kind, "say", text + "y")
    size = f"{bytes_max + 1:,} bytes of JSON, more than {bytes_max:,}"
    assert caught.value.message == f"output of step 'say' is {size}"
    assert caught.value.hint is not None
    assert (kind is StepKind.MODEL) or "return its path" in caught.value.hint
    assert record.keys == ["fits"]


def test_payload_over_its_limit_is_refused_with_a_hint() -> None:
    with pytest.raises(
        InvalidValueError, match=r"payload is 262,145 bytes of JSON, more"
    ) as caught:
        parse_payload('{"a": "' + "x" * (PAYLOAD.bytes_max - 8) + '"}')
    assert caught.value.hint == "keep large data in a file and pass its path"


async def test_live_output_equals_its_redacted_replay() -> None:
    redaction.register("TOKEN", VALUE)
    record = Record()
    live = await once(a_journal(record), StepKind.STEP, "say", {"said": f"it is {VALUE}"})
    assert live == {"said": "it is [secret TOKEN, 13 characters]"}
    forget = a_journal(record)
    assert await once(forget, StepKind.STEP, "say", "is not run") == live


async def test_a_name_with_a_secret_in_it_is_refused() -> None:
    """Redacted it would not be found again, and what it did would be done twice."""
    journal = a_journal(Record([a_step(f"old {VALUE}")]))
    redaction.register("TOKEN", VALUE)
    with pytest.raises(InvalidValueError, match="the name of a step holds secret TOKEN") as caught:
        journal.key(f"fetch {VALUE}")
    assert VALUE not in caught.value.message
    # What was recorded before anybody knew of the secret is found all the same.
    assert journal.key(f"old {VALUE}") == f"old {VALUE}"
