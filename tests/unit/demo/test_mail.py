"""The demo's mail, and the agent that sends it."""

from email import message_from_bytes, policy
from pathlib import Path
from typing import Any
from uuid import UUID

import attrs
import pytest
import trio

from cortex.agent.tools import BUILT_IN
from cortex.agent.tools.tool import ToolContext
from cortex.demo.job import LIVE, SCRIPTED, demo_agent
from cortex.demo.mail import SEND_MAIL, Sent, send_mail
from cortex.demo.script import Call, Reply
from cortex.demo.script_inspect import MAILED_TO, inspect
from cortex.domain.effect import Invocation
from cortex.domain.errors import CortexError

MAIL: dict[str, Any] = {
    "to": ["team@example.org"],
    "subject": "Lighthouse",
    "text": "All is well.\n",
    "with_file": "report.md",
}


@pytest.fixture
def context(tmp_path: Path) -> ToolContext:
    (tmp_path / "report.md").write_text("# Report\n")
    invocation = Invocation(
        id=UUID(int=7), job_id=UUID(int=1), attempt=1, tool=SEND_MAIL, arguments=MAIL
    )
    return ToolContext(
        job_id=UUID(int=1), attempt=1, call_id="c", workspace=tmp_path, invocation=invocation
    )


async def send(context: ToolContext, **changes: Any) -> Sent:
    given = MAIL | changes
    return await trio.to_thread.run_sync(lambda: send_mail.run(context, **given))


async def test_a_mail_is_a_file_with_the_report(context: ToolContext, tmp_path: Path) -> None:
    sent = await send(context)
    mail = message_from_bytes((tmp_path / sent.file).read_bytes(), policy=policy.default)
    assert (mail["To"], mail["Subject"]) == ("team@example.org", "Lighthouse")
    (attached,) = mail.iter_attachments()
    assert attached.get_filename() == "report.md"
    assert attached.get_content().split() == ["#", "Report"]


async def test_the_same_invocation_is_one_mail(context: ToolContext, tmp_path: Path) -> None:
    again = attrs.evolve(context, invocation=attrs.evolve(context.invocation, attempt=2))
    assert await send(context) == await send(again)
    assert len(list((tmp_path / "outbox").iterdir())) == 1


@pytest.mark.parametrize(
    "changes",
    [
        {"to": []},
        {"to": ["team@example.org\nBcc: all@example.org"]},
        {"subject": "one\nBcc: all@example.org"},
        {"with_file": "../secret"},
        {"with_file": "missing.md"},
    ],
    ids=str,
)
async def test_invalid_mail_is_refused(
    context: ToolContext, tmp_path: Path, changes: dict[str, Any]
) -> None:
    with pytest.raises(CortexError):
        await send(context, **changes)
    assert not (tmp_path / "outbox").exists()


def test_only_the_agent_that_asks_has_the_tool_and_a_no_ends_its_job() -> None:
    for job_type in (SCRIPTED, LIVE):
        plain, asking = demo_agent(job_type, "m"), demo_agent(job_type, "m", asks=True)
        assert plain.name != asking.name
        assert SEND_MAIL not in plain.tools
        assert not plain.approvals
        (rule,) = asking.approvals
        arguments = send_mail.parse(MAIL)
        gate = send_mail.gate(arguments, asking.approvals)
        assert gate is not None
        assert (gate.risk, gate.on_deny, gate.on_expiry) == ("MED", "fail", "fail")
        assert {rule.names_one_of([name]) for name in asking.tools} == {True, False}


def conversation(result: str) -> list[dict[str, Any]]:
    """The conversation up to the mail, and its outcome."""
    asked = [
        ("write_file", {"path": "report.md", "content": ""}, '{"path":"report.md","bytes":0}'),
        (SEND_MAIL, MAIL, result),
    ]
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Inspect."}]
    for name, given, output in asked:
        use = {"type": "tool_use", "id": name, "name": name, "input": given}
        block = {"type": "tool_result", "tool_use_id": name, "content": output}
        messages += [
            {"role": "assistant", "content": [use]},
            {"role": "user", "content": [{**block, "content": [{"type": "text", "text": output}]}]},
        ]
    return messages


def call_with(messages: list[dict[str, Any]]) -> Call:
    tools = [{"name": name} for name in ("write_file", SEND_MAIL)]
    return Call(
        model="scripted",
        system="",
        messages=messages,
        tools=tools,
        max_tokens=4_000,
        stream=True,
        input_tokens=1,
    )


def test_model_mails_the_report_to_more_recipients_than_asked() -> None:
    reply = inspect(call_with(conversation("")[:3]))
    assert isinstance(reply, Reply)
    use = reply.content[1]
    assert (use["name"], tuple(use["input"]["to"])) == (SEND_MAIL, MAILED_TO)
    send_mail.parse(use["input"])
    assert SEND_MAIL not in BUILT_IN


@pytest.mark.parametrize(
    "note", ["", "\n\n[ana changed the arguments before the call]"], ids=["as asked", "edited"]
)
def test_closing_message_names_the_recipients(note: str) -> None:
    result = '{"to":["one@example.org"],"file":"outbox/1.eml"}' + note
    reply = inspect(call_with(conversation(result)))
    assert isinstance(reply, Reply)
    (said,) = reply.content
    assert said["text"].endswith("I have mailed it to one@example.org.")
