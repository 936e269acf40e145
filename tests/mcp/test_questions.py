"""Servers that ask during a call: a person answers between two calls, whoever dies meanwhile."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from cortex.domain.approvals.approval import ApprovalRequest, ApprovalStatus, Decided, Risk
from cortex.domain.canonical import digest
from cortex.domain.control_flow import Suspended
from tests.mcp.conftest import AgentJob, scripted
from tests.support.agent_turns import Script, calls, says
from tests.support.records.rows import new_id

ASK = calls(("notes__ask", {}))


async def asked(job: AgentJob) -> ApprovalRequest:
    """Run the attempt in which the server asks; return the request to people."""
    with pytest.raises(Suspended) as caught:
        await job.run(Script([ASK]))
    (request,) = caught.value.requests
    return request


def decided(
    job: AgentJob, request: ApprovalRequest, text: str = '{"title":""}', *, is_denied: bool = False
) -> None:
    """Have a person answer."""
    job.gateway.decided[request.key] = Decided(
        id=new_id(),
        job_id=job.claim.lease.job_id,
        status=ApprovalStatus.DENIED if is_denied else ApprovalStatus.APPROVED,
        arguments=text,
        digest=digest(text),
        asked_digest=request.digest,
        risk=Risk.HIGH,
        people=1,
        by="ana",
        reason=None,
        at=datetime(2026, 1, 2, tzinfo=UTC),
        waited_s=1.0,
    )


def a_job(folder: Path, **terms: Any) -> AgentJob:
    return AgentJob(folder, {"notes": scripted("ask", folder="write", **terms)})


async def test_question_of_a_server_becomes_a_request_for_approval(folder: Path) -> None:
    job = a_job(folder)
    request = await asked(job)
    assert request.policy == "notes asks: Which title?"
    assert request.effect == "answers MCP server notes"
    assert request.arguments == '{"title":""}'
    assert request.schema is not None
    assert request.schema["required"] == ["title"]
    (reason,) = job.record.outcomes
    assert "tool 'notes.ask' asks: Which title?" in str(reason)
    assert job.files("marks") == []


async def test_answer_of_a_person_is_given_when_the_server_asks_again(folder: Path) -> None:
    job = a_job(folder)
    request = await asked(job)
    decided(job, request, '{"title":"Rust"}')
    script = Script([says("done")])
    await job.run(script)
    assert script.last_results == ["created Rust"]
    assert job.marks == ["Rust"]
    assert len(job.record.outcomes) == 2
    replay = Script([says("done")])
    await job.run(replay)  # without a call: all is on record
    assert job.marks == ["Rust"]


async def test_model_learns_that_a_question_was_denied(folder: Path) -> None:
    job = a_job(folder)
    request = await asked(job)
    decided(job, request, is_denied=True)
    script = Script([says("done")])
    await job.run(script)
    assert "nobody answered 'Which title?'" in script.last_results[0]
    assert job.files("marks") == []


async def test_model_learns_that_an_answer_does_not_fit(folder: Path) -> None:
    job = a_job(folder)
    request = await asked(job)
    decided(job, request, '{"title":5}')
    script = Script([says("done")])
    await job.run(script)
    assert "the answer to 'Which title?': does not fit" in script.last_results[0]
