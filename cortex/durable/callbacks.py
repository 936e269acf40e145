"""Callback URLs of a job: what their step records, and how the URL is made of it again."""

from collections.abc import Mapping
from datetime import datetime
from uuid import UUID

import orjson

from cortex.domain.callbacks import Callback
from cortex.domain.job import StepKind
from cortex.durable.attempt import Attempt
from cortex.durable.codec import StepInput, input_of
from cortex.durable.json_schema import Schema
from cortex.durable.step_outcome import StepOutcome


def callback_input(name: str) -> StepInput:
    """Return the input of a callback's step: expiry and schema may change in newer code."""
    return input_of({"signal": name}, what=f"input of callback {name!r}")


async def callback_url(
    attempt: Attempt, key: str, name: str, *, expires_s: float, schema: Schema | None
) -> str:
    """Return the URL of a callback: opened once, and the same whenever it is asked for again."""
    callbacks, journal = attempt.services.callbacks, attempt.journal

    async def opened() -> StepOutcome:
        await journal.settled(key)
        made = await callbacks.open(
            attempt.claim, key=key, name=name, expires_s=expires_s, schema=_text(schema)
        )
        return StepOutcome(value=_recorded(made))

    stored = await journal.once(StepKind.STEP, key, given=callback_input(name), run=opened)
    callback = journal.restored(key, lambda: _restored(stored))
    return await callbacks.url(attempt.claim, callback)


def _text(schema: Schema | None) -> str | None:
    return None if schema is None else orjson.dumps(schema).decode()


def _recorded(callback: Callback) -> dict[str, str]:
    return {
        "address": callback.address,
        "callback": str(callback.id),
        "signed_with": callback.signed_with,
        "expires_at": callback.expires_at.isoformat(),
    }


def _restored(stored: Mapping[str, str]) -> Callback:
    return Callback(
        address=stored["address"],
        id=UUID(stored["callback"]),
        signed_with=stored["signed_with"],
        expires_at=datetime.fromisoformat(stored["expires_at"]),
    )
