"""What people approve of a command is all of it: the folder and the environment, too."""

import json
from pathlib import Path
from typing import Any
from uuid import UUID

import attrs
import orjson
import pytest

from cortex.agent.loop import run_agent
from cortex.agent.spec import AgentSpec, parse_agents
from cortex.agent.tools.run_command import run_command
from cortex.agent.tools.toolbox import Toolbox
from cortex.domain.approvals.approval import ApprovalRequest, ApprovalStatus, Decided
from cortex.domain.argument_check import misfits
from cortex.domain.canonical import canonical, digest
from cortex.domain.control_flow import Suspended
from tests.support.agent_turns import Script, calls, says
from tests.support.pod_place import open_up
from tests.support.records.factories import LedgerDesk, Record, a_claim, a_context
from tests.support.records.rows import new_id

AGENT = """
name: a
model: m
system: s
tools: [run_command]
approvals: [{tool: run_command, approve: true, risk: HIGH}]
"""
ARGV = ["sh", "-c", "echo $LC_ALL > said; pwd"]


@attrs.frozen
class Stored:
    spec_json: dict[str, Any]

    async def agent(self, agent_id: UUID, version: int) -> dict[str, Any]:  # noqa: ARG002
        return self.spec_json


@attrs.frozen
class Job:
    """One job with one call of a command, whose attempts share a record."""

    workspaces: Path
    folder: Path
    spec: AgentSpec = attrs.Factory(lambda: parse_agents(AGENT, source="test")[0])
    gateway: LedgerDesk = attrs.Factory(LedgerDesk)
    record: Record = attrs.Factory(Record)
    claim: Any = attrs.Factory(lambda: a_claim(agent_id=new_id(), agent_version=1))

    async def run(self, arguments: dict[str, Any], folder: Path | None = None) -> list[str]:
        asks = [] if self.record.steps else [calls(("run_command", arguments))]
        script = Script([*asks, says("done")])
        ctx = a_context(
            self.record,
            self.claim,
            models=script,
            tools=Toolbox({"run_command": run_command}),
            gateway=self.gateway,
            specs=Stored(orjson.loads(orjson.dumps(self.spec.to_json()))),
            workspaces=self.workspaces,
        )
        await run_agent(ctx, self.spec, prompt="do it", folder=folder or self.folder)
        return script.last_results

    async def asked(self, arguments: dict[str, Any]) -> ApprovalRequest:
        with pytest.raises(Suspended) as caught:
            await self.run(arguments)
        (request,) = caught.value.requests
        return request

    def approve(self, request: ApprovalRequest, **edited: Any) -> None:
        text = canonical({**json.loads(request.arguments), **edited})
        self.gateway.decided[request.key] = Decided(
            id=new_id(),
            job_id=self.claim.lease.job_id,
            status=ApprovalStatus.APPROVED,
            arguments=text,
            digest=digest(text),
            asked_digest=request.digest,
            risk=request.risk,
            people=request.people,
            by="ana",
            reason=None,
            at=None,
            waited_s=None,
        )


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Job:
    monkeypatch.setenv("LC_ALL", "C.UTF-8")
    folder = tmp_path / "folder"
    folder.mkdir(mode=0o755)
    open_up(folder)
    return Job(tmp_path / "workspaces", folder)


async def test_the_request_names_the_folder_and_the_environment(job: Job) -> None:
    request = await job.asked({"argv": ARGV})
    arguments = json.loads(request.arguments)
    assert arguments["folder"] == str(job.folder)
    assert arguments["environment"]["LC_ALL"] == "C.UTF-8"
    assert arguments["environment"].keys() >= {"PATH", "TERM"}
    assert request.digest == digest(request.arguments)


async def test_an_approval_is_for_its_folder_and_environment_only(
    job: Job, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    job.approve(await job.asked({"argv": ARGV}))
    (tmp_path / "other").mkdir()
    with pytest.raises(Suspended) as caught:
        await job.run({"argv": ARGV}, tmp_path / "other")
    assert len(caught.value.requests) == 1
    monkeypatch.setenv("LC_ALL", "C")
    with pytest.raises(Suspended) as caught:
        await job.run({"argv": ARGV})
    assert len(caught.value.requests) == 1
    assert job.gateway.intents == []
    monkeypatch.setenv("LC_ALL", "C.UTF-8")
    (result,) = await job.run({"argv": ARGV})
    assert json.loads(result)["exit_code"] == 0, result
    assert json.loads(result)["stdout"] == f"{job.folder}\n"
    assert (job.folder / "said").read_text() == "C.UTF-8\n"


@pytest.mark.parametrize(
    "more", [{"folder": "/etc"}, {"environment": {}}, {"environment": {"LD_PRELOAD": "x.so"}}]
)
async def test_neither_the_model_nor_an_edit_changes_them(job: Job, more: dict[str, Any]) -> None:
    (result,) = await job.run({"argv": ARGV, **more})
    assert f"{next(iter(more))} is unknown" in result
    job.record.steps.clear()
    request = await job.asked({"argv": ARGV})
    assert request.schema is not None
    edited = {**json.loads(request.arguments), **more}
    assert misfits(request.schema, edited)
    assert not misfits(request.schema, json.loads(request.arguments))
    job.approve(request, **more)
    (result,) = await job.run({"argv": ARGV})
    assert f"{next(iter(more))} is unknown, or not the one that people saw" in result
    assert job.gateway.intents == []
    assert not (job.folder / "said").exists()


async def test_an_edit_of_the_program_runs_where_it_was_asked_for(job: Job) -> None:
    request = await job.asked({"argv": ARGV})
    job.approve(request, argv=["pwd"])
    (result,) = await job.run({"argv": ARGV})
    assert json.loads(result.partition("\n\n")[0])["stdout"] == f"{job.folder}\n"
    assert list(job.folder.iterdir()) == []
