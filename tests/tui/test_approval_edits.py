"""Arguments that an operator edits before agreeing to them."""

import json
import subprocess

from cortex.domain.canonical import canonical
from tests.support.hostile import HOSTILE
from tests.support.terminal.inbox_keys import enter, keys
from tests.support.terminal.tui import Seat, on_asyncio
from tests.support.terminal.tui_approvals import FakeApprovals
from tests.tui.conftest import OpenSession


def error_text(seat: Seat) -> str:
    """The message above the text in the editor."""
    return seat.text.partition("✗ edited arguments do not fit")[2].partition("{")[0]


@on_asyncio
async def test_edited_arguments_are_shown_beside_the_originals(
    inbox: FakeApprovals, sit: OpenSession
) -> None:
    seen = inbox.rows[inbox.add(1)].digest
    async with sit() as seat:
        await enter(seat)
        await keys(seat, "E")
        assert '"amount": 12.4' in seat.text
        footer = seat.lines[-1]
        assert "ctrl+s review changes" in footer
        assert "esc discard changes" in footer
        assert "approve" not in footer, "what the keys of the inbox do, they do not do now"
        seat.app.screen.query_one("_Area").load_text(  # type: ignore[attr-defined]
            '{"customer": "cus_88", "amount": "much"}'
        )
        await keys(seat, "ctrl+s")
        await seat.pass_time()
        assert "✗ edited arguments do not fit: amount must be" in seat.text
        seat.app.screen.query_one("_Area").load_text(  # type: ignore[attr-defined]
            json.dumps({f"unknown{number}": 1 for number in range(4)})
        )
        await keys(seat, "ctrl+s")
        await seat.pass_time()
        assert all(f"unknown{number}" in error_text(seat) for number in range(4)), "all of it"
        seat.app.screen.query_one("_Area").load_text(  # type: ignore[attr-defined]
            '{"customer": "cus_88", "amount": 9}'
        )
        await keys(seat, "ctrl+s")
        await seat.pass_time()
        assert "- 12.4" in seat.text
        assert "+ 9" in seat.text
        assert (
            'approve …000001 refund(amount=9, customer="cus_88"), as edited, cannot be undone?'
            in seat.lines[-2]
        )
        assert "a approve" in seat.lines[-1]
        await keys(seat, "y")
        (verdict,) = inbox.decisions
        assert verdict.edited == canonical({"customer": "cus_88", "amount": 9})
        assert verdict.seen == seen


@on_asyncio
async def test_logged_command_repeats_an_edit_in_a_shell(
    inbox: FakeApprovals, sit: OpenSession
) -> None:
    request = inbox.add(1, arguments={"customer": "cus_88", "amount": 12.4})
    customer = f"it's $(exit 3) `exit 4` \\n {HOSTILE}"
    async with sit() as seat:
        await enter(seat)
        await keys(seat, "E")
        seat.app.screen.query_one("_Area").load_text(  # type: ignore[attr-defined]
            json.dumps({"customer": customer, "amount": 9})
        )
        await keys(seat, "ctrl+s")
        await seat.pass_time()
        await keys(seat, "a", "y")
        (verdict,) = inbox.decisions
        await keys(seat, "at", "c", "c")
        command, stdin = in_a_shell(seat.app.clipboard)
    assert command == f"approvals approve {request} --edit - --yes --as ana"
    assert stdin.removesuffix("\n") == verdict.edited
    assert json.loads(stdin)["customer"] == customer


def in_a_shell(line: str) -> tuple[str, str]:
    """Let a shell read a command; return which arguments `cortex` gets there, and on stdin."""
    output = ["bash", "-c", f"cortex() {{ printf '%s\\n' \"$*\"; cat; }}; {line}"]
    command, _, stdin = subprocess.check_output(output, text=True).partition("\n")
    return command, stdin


@on_asyncio
async def test_esc_leaves_the_arguments_as_they_are(inbox: FakeApprovals, sit: OpenSession) -> None:
    inbox.add(1)
    async with sit() as seat:
        await enter(seat)
        await keys(seat, "E", "x", "y", "a", "escape")
        assert "the arguments stay as they are" in seat.lines[-2]
        await keys(seat, "a", "y")
        assert [each.edited for each in inbox.decisions] == [None]


@on_asyncio
async def test_request_without_a_schema_cannot_be_edited(
    inbox: FakeApprovals, sit: OpenSession
) -> None:
    inbox.add(1, schema=None)
    async with sit() as seat:
        await enter(seat)
        await keys(seat, "E")
        assert "its arguments cannot be edited" in seat.text
