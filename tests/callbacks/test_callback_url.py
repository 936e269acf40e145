"""`ctx.callback_url`: the same URL on every attempt, in no record, and not without settings."""

import re
from pathlib import Path
from typing import Any, TypedDict, cast

import pytest
from attrs import frozen

from cortex import Context
from cortex.domain.callbacks import Signer
from cortex.domain.errors import CortexError, DivergedError, UsageError
from cortex.durable.body_schema import body_schema
from cortex.durable.dry_run import DryCallbacks, DryJournal
from cortex.testing import Cortex
from cortex.testing.services import InMemoryCallbacks
from tests.support.apps.callback_app import sells
from tests.support.records.factories import Record, TrioClock, a_claim, a_context

OLD, NEW = "an old secret of this test, long", "a new secret of this test, longer"
CLAIM = a_claim()
URL = re.compile(
    r"https://cortex\.test/callbacks/[0-9a-f-]{36}\?t=cortex_callback_[0-9a-f]{64}", re.ASCII
)


def signed_by(*secrets: str, base_url: str | None = "https://cortex.test") -> InMemoryCallbacks:
    return InMemoryCallbacks(TrioClock(), Signer(base_url, secrets))


def of_job(record: Record, **lent: Any) -> Context:
    """The context of a new attempt of the one job."""
    return a_context(record, CLAIM, **lent)


async def test_an_attempt_that_replays_gets_the_same_url() -> None:
    record = Record()
    first = await of_job(record).callback_url("paid", expires=60)
    assert URL.fullmatch(first)
    again = await of_job(record).callback_url("paid", expires=3600)
    assert again == first, "a new expiry is for jobs that come here later"
    context = of_job(record)
    both = [await context.callback_url("paid"), await context.callback_url("paid")]
    assert both[0] == first != both[1]


async def test_the_record_holds_no_token() -> None:
    record = Record()
    url = await of_job(record).callback_url("paid")
    token = url.partition("?t=")[2]
    (step,) = record.steps
    assert step.key == "paid callback"
    kept = f"{step.output}{await record.recall(step.key)}"
    assert "/callbacks/" in kept
    assert token not in kept
    assert token.removeprefix("cortex_callback_") not in kept


async def test_urls_of_a_former_secret_stay_as_they_are() -> None:
    record = Record()
    url = await of_job(record, callbacks=signed_by(OLD)).callback_url("paid")
    rotated = of_job(record, callbacks=signed_by(NEW, OLD))
    assert await rotated.callback_url("paid") == url
    assert await rotated.callback_url("refund") != url
    moved = of_job(record, callbacks=signed_by(OLD, base_url="https://new.test"))
    assert await moved.callback_url("paid") == url, "of a job that has it already"
    with pytest.raises(UsageError, match="callback_secret lacks secret") as caught:
        await of_job(record, callbacks=signed_by(NEW)).callback_url("paid")
    assert caught.value.hint == (
        "list former secrets after the new one, with a comma between, on every pod"
    )
    assert OLD not in str(caught.value)


async def test_urls_of_other_secrets_jobs_and_steps_differ() -> None:
    contexts = [
        a_context(claim=CLAIM, callbacks=signed_by(OLD)),
        a_context(claim=CLAIM, callbacks=signed_by(NEW)),
        a_context(callbacks=signed_by(OLD)),
    ]
    urls = [await each.callback_url("paid") for each in contexts]
    assert len({*urls, await contexts[0].callback_url("paid")}) == 4


LACKING: list[tuple[InMemoryCallbacks, str, str]] = [
    (signed_by(OLD, base_url=None), "needs setting public_url", "set CORTEX_PUBLIC_URL=https://"),
    (signed_by(), "needs setting callback_secret", "set CORTEX_CALLBACK_SECRET on every pod"),
]


@pytest.mark.parametrize("callbacks, message, hint", LACKING)
async def test_a_missing_setting_is_named_and_nothing_is_recorded(
    callbacks: InMemoryCallbacks, message: str, hint: str
) -> None:
    record = Record()
    with pytest.raises(UsageError, match=message) as caught:
        await a_context(record, callbacks=callbacks).callback_url("paid")
    assert hint in str(caught.value.hint)
    assert record.steps == []


async def test_a_job_that_names_the_callback_of_another_gets_no_token_of_it() -> None:
    callbacks = signed_by(OLD)
    opened = await callbacks.open(
        CLAIM, key="paid callback", name="paid", expires_s=60.0, schema=None
    )
    stolen = await callbacks.url(a_claim(), opened)
    assert stolen != await callbacks.url(CLAIM, opened)


@frozen
class Paid:
    euros: float
    note: str = ""


class Order(TypedDict):
    number: int


SCHEMAS: list[tuple[Any, Any]] = [
    (None, None),
    ({"type": "object"}, {"type": "object"}),
    (
        {"$schema": "x", "title": "Paid", "type": ["string", "null"]},
        {"anyOf": [{"type": "string"}, {"type": "null"}]},
    ),
    (list[int], {"type": "array", "items": {"type": "integer"}}),
    (
        Order,
        {"type": "object", "properties": {"number": {"type": "integer"}}, "required": ["number"]},
    ),
]


@pytest.mark.parametrize("given, expected", SCHEMAS)
def test_a_schema_is_read(given: Any, expected: Any) -> None:
    assert body_schema(given, what="callback") == expected


def test_the_schema_of_a_class_lets_senders_add_fields() -> None:
    schema = body_schema(Paid, what="callback")
    assert schema is not None
    assert (schema["required"], "additionalProperties" in schema) == (["euros"], False)


UNFIT: list[tuple[dict[str, Any], str]] = [
    ({"expires": 0}, "callback 'paid': expires 0 s is not from 1 to 31622400 s"),
    ({"expires": float("nan")}, "callback 'paid': expires nan s is not from 1"),
    ({"expires": 10**400}, "callback 'paid': expires inf s is not from 1"),
    ({"expires": "1h"}, "callback 'paid': expires is '1h', not seconds or a timedelta"),
    ({"expires": True}, "callback 'paid': expires is True, not seconds or a timedelta"),
    ({"schema": {"type": "text"}}, "callback 'paid': schema at type is 'text'"),
    ({"schema": {"type": {}}}, "callback 'paid': schema at type is {}"),
    ({"schema": {"minimum": 1}}, "callback 'paid': schema has keyword 'minimum'"),
    (
        {"schema": {"properties": {"a": {"pattern": "x"}}}},
        "callback 'paid': schema at properties.a has keyword 'pattern', which is not checked",
    ),
    ({"schema": {"items": 3}}, "callback 'paid': schema at items is not an object, got 3"),
    ({"schema": {"required": "a"}}, "callback 'paid': schema at required is not a list"),
    ({"schema": {"enum": [object()]}}, "callback 'paid': schema is not JSON"),
    ({"schema": {"enum": ["x" * 70_000]}}, "callback 'paid': schema is 70,013 bytes, more than"),
    ({"schema": Context}, "is no type with a JSON form"),
    ({"schema": []}, "callback 'paid': schema [] is no type with a JSON form"),
]


@pytest.mark.parametrize("given, message", UNFIT)
async def test_unfit_terms_are_refused_in_one_line(given: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        await a_context().callback_url("paid", **given)
    assert message in caught.value.message
    assert "\n" not in caught.value.message


@pytest.mark.parametrize("name", ["", "x" * 101, "a\0b", 7])
async def test_an_unfit_name_is_refused(name: Any) -> None:
    record = Record()
    with pytest.raises(CortexError, match="name"):
        await a_context(record).callback_url(name)
    assert record.steps == []


async def test_a_step_of_another_kind_under_its_key_diverges() -> None:
    record = Record()
    await a_context(record).step("paid callback", lambda: "https://evil.test/")
    with pytest.raises(DivergedError):
        await a_context(record).callback_url("paid")


def test_a_job_in_memory_hands_out_a_url_and_receives(cortex: Cortex, tmp_path: Path) -> None:
    file = str(tmp_path / "urls")
    cortex.signal("paid", {"euros": 48}, after_s=60)
    run = cortex.run_sync(sells, file=file)
    assert run.result == {"euros": 48}
    assert run.steps == ["paid callback", "publish", "paid"]
    run.replays()
    assert cortex.crash_everywhere_sync(sells, file=file) > 4
    urls = Path(file).read_text().split()
    assert all(URL.fullmatch(each) for each in urls)


class Parked(Exception):
    """What a replay has asked for and will not get."""


class DryRun:
    """Stands for the journal of a replay."""

    async def park(self, key: str) -> None:
        raise Parked(key)


async def test_a_replay_against_new_code_gets_the_url_or_waits() -> None:
    opened = await signed_by(OLD).open(
        CLAIM, key="paid callback", name="paid", expires_s=60.0, schema=None
    )
    url = await signed_by(OLD).url(CLAIM, opened)
    known = DryCallbacks(signed_by(NEW, OLD).signer, cast("DryJournal", DryRun()))
    assert await known.url(CLAIM, opened) == url
    unknown = DryCallbacks(signed_by(NEW).signer, cast("DryJournal", DryRun()))
    with pytest.raises(Parked, match=r"callbacks\.url"):
        await unknown.url(CLAIM, opened)
