"""The job type `http_request`: requests sent, recorded, repeated and refused."""

from collections.abc import Mapping
from typing import Any

import attrs
import pytest
import trio

from cortex.domain.classification import failure_of
from cortex.domain.control_flow import Suspended
from cortex.domain.errors import (
    CortexError,
    ForbiddenError,
    InvalidOutputError,
    InvalidValueError,
    UsageError,
)
from cortex.domain.failure import FailureClass
from cortex.durable.http_calls import HttpResult
from cortex.jobs.http_request import http_request
from tests.support.eventually import WITHIN_S
from tests.support.knowing import forget_secrets
from tests.support.records.factories import ClosedBreakers, LedgerDesk, Record, a_claim, a_context
from tests.support.servers.web_server import WebServer, open_server


@pytest.fixture
async def server(nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch) -> WebServer:
    forget_secrets(monkeypatch)
    server = await open_server(nursery)
    monkeypatch.setenv("CORTEX_HTTP_ALLOW", f"127.0.0.1:{server.port}")
    return server


def answer(status: int, body: bytes = b"no", *headers: str) -> bytes:
    lines = "".join(f"{line}\r\n" for line in headers)
    head = f"HTTP/1.1 {status} X\r\n{lines}Content-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


@attrs.define
class Job:
    """One job over its attempts, on one ledger."""

    server: WebServer
    record: Record = attrs.field(factory=Record)
    gateway: LedgerDesk = attrs.field(factory=LedgerDesk)
    breakers: ClosedBreakers = attrs.field(factory=ClosedBreakers)
    claim: Any = attrs.field(factory=lambda: a_claim(type="http_request"))

    async def run(self, **given: Any) -> HttpResult:
        context = a_context(self.record, self.claim, gateway=self.gateway, breakers=self.breakers)
        with trio.fail_after(WITHIN_S):
            result: HttpResult = await http_request(context, **{"url": self.server.url(), **given})
        return result

    async def error(self, **given: Any) -> CortexError:
        with pytest.raises(CortexError) as caught:
            await self.run(**given)
        return caught.value


async def test_an_answer_is_recorded_and_asked_for_once(server: WebServer) -> None:
    job = Job(server)
    results = [await job.run() for _ in range(2)]
    assert results[0] == results[1]
    assert (results[0].status, results[0].body, results[0].json) == (200, "ok", None)
    assert (results[0].size_bytes, results[0].is_truncated) == (2, False)
    assert (len(server.asked), job.record.keys, job.gateway.intents) == (1, ["GET"], [])
    assert list(job.breakers.admissions) == ["http:127.0.0.1"]


async def test_json_is_sent_and_received(server: WebServer) -> None:
    server.reply = answer(201, b'{"id": 7}', "Content-Type: application/problem+json")
    result = await Job(server).run(method="POST", json={"a": "ü"})
    assert (result.json, result.body) == ({"id": 7}, None)
    asked = "".join(server.asked).lower()
    assert "content-type: application/json" in asked
    assert "accept-encoding: identity" in asked


@pytest.mark.parametrize("method", ["POST", "PATCH"])
async def test_a_change_is_an_effect_with_its_key(server: WebServer, method: str) -> None:
    job = Job(server)
    await job.run(method=method, body="x")
    (intent,) = job.gateway.intents
    assert (intent.tool, intent.key) == ("http_request", method)
    assert f"idempotency-key: {intent.id}" in "".join(server.asked).lower()


async def test_a_change_that_a_death_cut_off_waits_for_a_person(server: WebServer) -> None:
    job = Job(server)
    job.gateway.verdicts = ["recheck"]  # its pod died between intent and outcome
    with pytest.raises(Suspended) as caught:
        await job.run(method="POST", body="x")
    assert caught.value.unknown
    assert server.asked == []


@pytest.mark.parametrize(
    "given", [{"method": "POST", "idempotent": True}, {"method": "PUT"}, {"method": "DELETE"}]
)
async def test_an_idempotent_one_is_sent_again_under_its_key(
    server: WebServer, given: dict[str, Any]
) -> None:
    job = Job(server)
    job.gateway.verdicts = ["recheck"]
    await job.run(**given)
    assert f"idempotency-key: {job.gateway.intents[0].id}" in server.asked[0].lower()


@pytest.mark.parametrize(
    "status, cls",
    [
        (404, FailureClass.PERMANENT),
        (402, FailureClass.BUDGET),
        (429, FailureClass.TRANSIENT_APP),
        (503, FailureClass.TRANSIENT_APP),
        (502, FailureClass.TRANSIENT_INFRA),
    ],
)
async def test_a_status_is_classified_as_everywhere(
    server: WebServer, status: int, cls: FailureClass
) -> None:
    server.reply = answer(status, b"no", "Retry-After: 17")
    job = Job(server)
    failure = failure_of(await job.error())
    assert (failure.cls, failure.retry_after_s) == (cls, 17)
    assert job.record.keys == [], "it may be asked for again"
    (reports,) = [each.reports for each in job.breakers.admissions["http:127.0.0.1"]]
    assert bool(reports) is cls.is_transient, "the host's breaker counts transient ones"


@pytest.mark.parametrize("status", [400, 404, 409, 422])
async def test_a_refused_change_has_not_happened(server: WebServer, status: int) -> None:
    server.reply = answer(status)
    job = Job(server)
    await job.error(method="POST", body="x")
    (report,) = job.gateway.reports
    assert not report.is_applied


@pytest.mark.parametrize("status", [429, 500, 503])
async def test_an_open_answer_to_a_change_waits_for_a_person(
    server: WebServer, status: int
) -> None:
    server.reply = answer(status)
    with pytest.raises(Suspended) as caught:
        await Job(server).run(method="POST", body="x")
    assert caught.value.unknown


async def test_expected_statuses_are_results(server: WebServer) -> None:
    server.reply = answer(404)
    assert (await Job(server).run(expect=[200, 404])).status == 404
    server.reply = answer(200)
    error = await Job(server).error(expect=[201])
    assert isinstance(error, InvalidOutputError)
    assert "status 200, expected 201" in error.message


async def test_body_that_grows_as_json_is_cut_and_marked(server: WebServer) -> None:
    server.reply = answer(200, b"\x01" * 400_000)
    result = await Job(server).run()
    assert result.is_truncated
    assert result.size_bytes == 400_000
    assert 100_000 < len(result.body or "") < 200_000


async def test_an_endless_body_is_cut(server: WebServer) -> None:
    server.reply = b"HTTP/1.1 200 OK\r\nContent-Length: 99000000\r\n\r\n"
    server.endless = b"a" * 65_536
    result = await Job(server).run()
    assert (result.size_bytes, result.is_truncated) == (99_000_000, True)


@pytest.mark.parametrize(
    "given, message",
    [
        ({"headers": {"X": "a\r\nHost: evil"}}, "line break"),
        ({"headers": {"X\r\nHost": "evil"}}, "line break"),
        ({"headers": {"Host": "evil"}}, "cannot be set"),
        ({"headers": {"Idempotency-Key": "1"}}, "cannot be set"),
        ({"headers": {f"X-{n}": "" for n in range(65)}}, "65 headers"),
        ({"body": "x", "json": 1}, "body and json"),
        ({"url": "ftp://example.org"}, "is not a URL"),
        ({"method": "POST", "expect": [503]}, "expect has 503"),
        ({"expect": [99]}, "expect has 99"),
    ],
)
async def test_invalid_request_is_refused_and_not_sent(
    server: WebServer, given: Mapping[str, Any], message: str
) -> None:
    error = await Job(server).error(**given)
    assert isinstance(error, InvalidValueError)
    assert message in error.message
    assert server.asked == []


async def test_a_time_out_above_the_hard_limit_is_refused(server: WebServer) -> None:
    error = await Job(server).error(timeout_s=181)
    assert isinstance(error, UsageError)
    assert "at most 180" in error.message
    assert "got 181" in error.message


@pytest.mark.parametrize(
    "url",
    ["http://127.0.0.1:1/", "http://169.254.169.254/latest", "http://[::1]/", "http://10.0.0.1/"],
)
async def test_a_private_address_is_refused(server: WebServer, url: str) -> None:
    job = Job(server)
    assert isinstance(await job.error(url=url), ForbiddenError)
    error = await job.error(url=url, method="POST")
    assert isinstance(error, ForbiddenError)
    assert not job.gateway.reports[-1].is_applied, "certainly not sent"


async def test_a_secret_is_sent_but_never_recorded(
    server: WebServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CRM_TOKEN", "sk-live-0f9e8d7c6b")
    monkeypatch.setenv("CORTEX_HTTP_SECRETS", f"env:CRM_TOKEN@http://127.0.0.1:{server.port}")
    job = Job(server)
    await job.run(method="POST", headers={"Authorization": "Bearer env:CRM_TOKEN"}, body="x")
    assert "Bearer sk-live-0f9e8d7c6b" in server.asked[0]
    assert "sk-live" not in str(job.gateway.intents)
    assert "sk-live" not in str(job.record)


async def test_another_variable_of_the_pod_stays_there(
    server: WebServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATABASE_PASSWORD", "sk-live-0f9e8d7c6b")
    error = await Job(server).error(headers={"X": "env:DATABASE_PASSWORD"})
    assert isinstance(error, ForbiddenError)
    assert server.asked == []


async def test_a_failure_that_may_pass_names_its_host_for_the_triage(server: WebServer) -> None:
    server.reply = answer(503, b"busy")
    error = await Job(server).error()
    assert failure_of(error).source == "http:127.0.0.1"
    server.reply = answer(404, b"gone")
    assert failure_of(await Job(server).error()).source is None
