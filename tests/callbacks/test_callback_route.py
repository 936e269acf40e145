"""`POST /callbacks/{callback_id}`: what anybody with the URL may do, and what nobody else may."""

import json

import pytest

from cortex.domain.canonical import parse
from cortex.domain.errors import InvalidValueError
from cortex.domain.job import JobStatus
from cortex.durable.codec import encode
from cortex.http.framework.callback_limits import LOCKED_S, MISSES_MAX, RATE, CallbackLimits
from cortex.http.framework.problem import RateLimitedError
from cortex.store import dead_letters
from cortex.store.dead_letters import Resubmission
from tests.callbacks.conftest import CallbackStage
from tests.support.records.rows import new_id
from tests.support.servers.postgres import sql

PAID = {"type": "object", "required": ["euros"], "properties": {"euros": {"type": "number"}}}


def test_body_arrives_as_a_signal_of_the_job(stage: CallbackStage) -> None:
    claim, path = stage.open()
    answer = stage.post(path, {"euros": 48})
    assert answer.status == 202
    (signal,) = stage.received(claim.lease.job_id)
    assert (str(signal.id), signal.name) == (answer.json["id"], "paid")
    assert (signal.payload, signal.sent_by) == ({"euros": 48}, "callback")
    taken = stage.stage.take(claim, step="paid", name="paid")
    assert taken is not None
    assert json.loads(taken.payload) == {"euros": 48}


def test_any_json_and_an_empty_body_arrive(stage: CallbackStage) -> None:
    claim, path = stage.open()
    for body in (b"", b"3", b'"x"', b'[1, {"a": null}]'):
        assert stage.post(path, body=body).status == 202
    payloads = [each.payload for each in stage.received(claim.lease.job_id)]
    assert payloads == [None, 3, "x", [1, {"a": None}]]


@pytest.mark.parametrize("header", [None, "Idempotency-Key", "webhook-id"])
def test_a_repeated_delivery_is_one_signal(stage: CallbackStage, header: str | None) -> None:
    claim, path = stage.open()
    headers = {} if header is None else {header: "evt_1"}
    first = stage.post(path, {"euros": 48}, headers=headers)
    again = stage.post(path, {"euros": 48}, headers=headers)
    assert (first.status, again.status) == (202, 202)
    assert first.json == again.json
    assert len(stage.received(claim.lease.job_id)) == 1
    if header is not None:
        other = stage.post(path, {"euros": 48}, headers={header: "evt_2"})
        assert other.json != first.json, "another event with the same body"
        changed = stage.post(path, {"euros": 1}, headers=headers)
        assert (changed.status, changed.json["code"]) == (422, "key_reused")
        assert len(stage.received(claim.lease.job_id)) == 2


def test_a_delivery_repeated_after_it_was_received_is_not_received_again(
    stage: CallbackStage,
) -> None:
    claim, path = stage.open()
    first = stage.post(path, {"euros": 48})
    assert stage.stage.take(claim, step="paid", name="paid") is not None
    assert stage.post(path, {"euros": 48}).json == first.json
    assert stage.stage.take(claim, step="paid#2", name="paid") is None
    stage.end(claim)
    late = stage.post(path, {"euros": 48})
    assert (late.status, late.json) == (202, first.json), "its sender has not heard of the first"


REFUSED: list[tuple[str, bytes, dict[str, str], int, str]] = [
    ("text", b"hello", {}, 400, "the body is not JSON: Expecting value: line 1 column 1 (char 0)"),
    ("nan", b"NaN", {}, 400, "the body is not JSON: NaN"),
    ("bytes", b"\xff", {}, 400, "the body is not JSON: 'utf-8' codec can't decode"),
    (
        "form",
        b"a=1",
        {"Content-Type": "application/x-www-form-urlencoded"},
        415,
        "the body is application/x-www-form-urlencoded, not application/json",
    ),
    ("nul", b'"\\u0000"', {}, 422, "body"),
    ("deep", b"[" * 70 + b"]" * 70, {}, 422, "body is "),
    ("deeper", b"[" * 100_000 + b"]" * 100_000, {}, 400, "the body"),
    ("written out", b'{"euros": 1e22}', {}, 422, "the body has a number that does not fit 64 bits"),
    ("endless", b"1e999", {}, 422, "body holds inf, which JSON does not have"),
    ("digits", b"1" * 5_000, {}, 400, "the body"),
    ("twice", b'{"a": 1, "a": 2}', {}, 400, "the body is not JSON"),
    ("large", b'"' + b"x" * 262_144 + b'"', {}, 413, "the body is larger than 262,144 bytes"),
    ("megabyte", b'"' + b"x" * 1_048_574 + b'"', {}, 413, "the body is larger than"),
    ("short", b'{"cents": 4800}', {}, 422, "the body does not fit: euros is missing"),
    ("shape", b'{"euros": "48"}', {}, 422, "the body does not fit: euros must be a finite number"),
    ("key", b'{"euros": 1}', {"Idempotency-Key": "a b"}, 400, "idempotency key 'a b' may hold"),
]


@pytest.mark.parametrize(
    "body, headers, status, message",
    [each[1:] for each in REFUSED],
    ids=[each[0] for each in REFUSED],
)
def test_an_unfit_body_is_refused_in_one_line(
    stage: CallbackStage, body: bytes, headers: dict[str, str], status: int, message: str
) -> None:
    claim, path = stage.open(schema=PAID)
    answer = stage.post(path, body=body, headers=headers)
    assert (answer.status, answer.json["detail"][: len(message)]) == (status, message)
    assert "\n" not in answer.json["detail"]
    assert stage.received(claim.lease.job_id) == []


def forged(path: str) -> list[str]:
    address, _, token = path.partition("?t=")
    return [
        address,
        f"{address}?t=",
        f"{address}?t=x",
        f"{address}?t={token[:-1]}{'0' if token[-1] != '0' else '1'}",
        f"{address}?t={token.upper()}",
        f"{address}?t={token}&t={token}",
        f"/callbacks/{new_id()}?t={token}",
        f"/callbacks/x?t={token}",
    ]


def test_forged_urls_get_one_answer_and_reach_nobody(stage: CallbackStage) -> None:
    claim, path = stage.open()
    _, other = stage.open()
    foreign = f"{path.partition('?')[0]}?{other.partition('?')[2]}"
    answers = [stage.post(each, {"a": 1}) for each in [*forged(path), foreign]]
    assert {each.status for each in answers} == {404}
    known = [each.json["detail"] for each in answers if "callback" in each.json["detail"]]
    assert set(known) == {"there is no such callback"}
    assert len(known) == len(answers) - 1, "the last path is no id at all"
    assert stage.received(claim.lease.job_id) == []
    assert stage.server.get(path).status == 405


def test_an_expired_callback_is_gone(stage: CallbackStage) -> None:
    claim, path = stage.open(expires_s=-1.0)
    answer = stage.post(path, {"a": 1})
    assert (answer.status, answer.json["code"]) == (410, "gone")
    assert answer.json["detail"].startswith("this callback for 'paid' has expired at 20")
    assert stage.received(claim.lease.job_id) == []
    stage.open(claim)
    assert stage.post(path, {"a": 1}).status == 202, "opened again, it is the same URL"


@pytest.mark.parametrize("status", [JobStatus.COMPLETED, JobStatus.FAILED])
def test_an_ended_job_takes_nothing_and_is_not_named(
    stage: CallbackStage, status: JobStatus
) -> None:
    claim, path = stage.open()
    stage.end(claim, status)
    answer = stage.post(path, {"a": 1})
    ended: dict[JobStatus, tuple[int, str, str]] = {
        JobStatus.COMPLETED: (410, "gone", "the job of this callback has ended"),
        JobStatus.FAILED: (409, "conflict", "the job of this callback has failed"),
    }
    assert (answer.status, answer.json["code"], answer.json["detail"]) == ended[status]
    assert str(claim.lease.job_id) not in json.dumps(answer.json)
    assert stage.received(claim.lease.job_id) == []


def test_the_job_that_continues_a_failed_one_receives_what_is_posted(stage: CallbackStage) -> None:
    claim, path = stage.open()
    stage.end(claim, JobStatus.FAILED)
    heir = Resubmission(job_id=claim.lease.job_id, new_id=new_id())
    stage.stage.store(dead_letters.resubmit, [heir], by="ana", reason="x")
    assert stage.post(path, {"a": 1}).status == 202
    continued = stage.stage.claim(heir.new_id)
    assert stage.stage.take(continued, step="paid", name="paid") is not None


def test_retention_deletes_callbacks_with_their_jobs(stage: CallbackStage) -> None:
    claim, path = stage.open()
    stage.end(claim)
    job_id = claim.lease.job_id
    sql(stage.server.dsn, "SELECT cortex.delete_jobs(ARRAY[$1::uuid])", job_id)
    assert sql(stage.server.dsn, "SELECT FROM cortex.callback WHERE lineage_id = $1", job_id) == []
    answer = stage.post(path, {"a": 1})
    assert (answer.status, answer.json["detail"]) == (404, "there is no such callback")


UNREADABLE = ("1e22", "-1e19", '{"a": [1e400]}', "[" * 65 + "1" + "]" * 65)
READABLE = ("1e19", "-9223372036854775808", "1e-400", "0.1", "[" * 63 + "1" + "]" * 63)


def test_signals_that_a_job_could_not_read_are_refused_by_the_database(
    stage: CallbackStage,
) -> None:
    claim = stage.stage.running()
    for number, payload in enumerate(READABLE):
        stage.stage.send(claim.lease.job_id, payload=payload)
        taken = stage.stage.take(claim, f"step {number}")
        assert taken is not None
        encode(parse(taken.payload), what="a step's output")
    for payload in UNREADABLE:
        with pytest.raises(InvalidValueError, match="does not fit 64 bits, or is nested deeper"):
            stage.stage.send(claim.lease.job_id, payload=payload)


def test_an_address_that_sends_or_guesses_too_much_is_refused() -> None:
    now_s = 0.0
    limits = CallbackLimits(now=lambda: now_s)
    for _ in range(RATE.burst):
        limits.admit("192.0.2.1")
    with pytest.raises(RateLimitedError, match="too many callbacks from this address"):
        limits.admit("192.0.2.1")
    limits.admit("192.0.2.2")
    for _ in range(MISSES_MAX):
        limits.missed("2001:db8::1")
    with pytest.raises(RateLimitedError, match="too many unknown callbacks"):
        limits.admit("2001:db8::2")  # the same household
    now_s = LOCKED_S + 1
    limits.admit("2001:db8::2")
    limits.admit("192.0.2.1")


def test_a_draining_pod_sends_the_provider_elsewhere(own_stage: CallbackStage) -> None:
    claim, path = own_stage.open()
    own_stage.server.drain()
    answer = own_stage.post(path, {"a": 1})
    assert (answer.status, answer.headers["retry-after"]) == (503, "1")
    assert own_stage.received(claim.lease.job_id) == []
