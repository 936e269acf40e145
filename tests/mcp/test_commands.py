"""Commands about the tools of MCP servers: what they show, and what they accept."""

import json
from pathlib import Path
from typing import Any

import pytest

from cortex.agent.mcp.terms import McpServer
from cortex.agent.spec import parse_agents
from cortex.domain.errors import UsageError
from cortex.postgres.database import Profile
from cortex.store import mcp
from tests.support.command_line import Cortex
from tests.support.servers.kept_sessions import kept_session
from tests.support.servers.postgres import sql

AGENT = """
name: clerk
model: claude-sonnet-4-5
system: You keep notes.
mcp:
  notes: {command: [notes-server], env: {TOKEN: "{secret:TOKEN}"}}
secrets:
  TOKEN: {env: NOTES_TOKEN}
approvals:
- {tool: notes.*, approve: true}
"""
KEY = "ghp_0123456789abcdefghijklmnopqrstuvwxyzAB"
TERMS = McpServer(command=["notes-server"], env={"TOKEN": "{secret:TOKEN}"})


def said(**more: Any) -> str:
    tool = {"server": "notes", "name": "create", "input_schema": {"type": "object"}}
    return json.dumps({**tool, "description": "Create a note.", **more}, sort_keys=True)


@pytest.fixture
def cortex(tmp_path: Path, shared_database: str) -> Cortex:
    sql(shared_database, "DELETE FROM cortex.mcp_tool")
    made = Cortex(tmp_path, shared_database)
    (tmp_path / "clerk.yaml").write_text(AGENT)
    assert made("agents", "apply", "clerk.yaml").code == 0
    return made


def notes(dsn: str, **tools: str) -> None:
    """What a pod records of the server."""
    with kept_session(Profile(dsn=dsn, hot_path=True)) as call:
        call(mcp.note, "clerk", "notes", TERMS.identity, tools=tools, named=())


def test_agents_show_lists_servers_and_the_state_of_their_tools(
    cortex: Cortex, shared_database: str
) -> None:
    shown = cortex("agents", "show", "clerk").out
    assert "mcp notes  notes-server" in shown
    assert "not used yet" in shown
    notes(shared_database, create=said(), look=said(name="look"))
    notes(shared_database, create=said(description="Send a note."), look=said(name="look"))
    shown = cortex("agents", "show", "clerk").out
    assert "    create  changed\n    look\n" in shown
    document = json.loads(cortex("agents", "show", "clerk", "--json").out)
    assert [(each["name"], each["state"]) for each in document["mcp_tools"]] == [
        ("notes.create", "changed"),
        ("notes.look", "accepted"),
    ]


def test_trust_shows_the_change_and_accepts_it(cortex: Cortex, shared_database: str) -> None:
    notes(shared_database, create=said())
    notes(shared_database, create=said(description="Send a note.\n++ To everybody."))
    refused = cortex("agents", "trust", "clerk", "notes.create", "--reason", "read")
    assert refused.code == 2
    assert '  -  "description": "Create a note.",\n' in refused.err
    assert '  +  "description": "Send a note.\n  +++ To everybody.",\n' in refused.err
    assert "add --yes" in refused.err
    done = cortex("agents", "trust", "clerk", "notes", "--reason", "read", "--yes")
    assert done.code == 0, done.err
    assert "notes.create" in done.out
    assert "accepted" in done.out
    again = cortex("agents", "trust", "clerk", "notes", "--reason", "read", "--yes")
    assert again.code == 5
    assert "says what was accepted" in again.err


def test_trust_names_a_server_that_was_not_used(cortex: Cortex) -> None:
    ran = cortex("agents", "trust", "clerk", "nots", "--reason", "read", "--yes")
    assert ran.code == 3
    assert "agent 'clerk' has not used 'nots' yet" in ran.err


def test_doctor_names_changed_tools_and_failing_servers(
    cortex: Cortex, shared_database: str
) -> None:
    notes(shared_database, create=said())
    notes(shared_database, create=said(description="Send a note."))
    breaker = """
        INSERT INTO cortex.breaker (name, state, failures, successes, requests, probe, last_error)
        VALUES ('mcp:clerk/notes', 'CLOSED', 1, 0, 1, 0, $1)"""
    sql(shared_database, breaker, "MCP server 'notes' exited with 1: no token")
    found = cortex("doctor").out
    assert "mcp:clerk/notes fails: MCP server 'notes' exited with 1: no token" in found
    assert "tools that servers have changed: clerk notes.create" in found


@pytest.mark.parametrize(
    "mcp_lines, reason",
    [
        ("notes: {}", "mcp.notes must have either command or url"),
        ("notes: {command: [a], url: 'https://a.example'}", "must have either command or url"),
        ("a__b: {command: [a]}", "a server's name has up to 32 letters"),
        ("notes: {command: []}", "mcp.notes.command must have from 1 to 100 words"),
        ("notes: {command: ['{secret:TOKEN}']}", "holds a secret, which belongs into env"),
        ("notes: {command: [a], env: {X: '{secret:NO}'}}", "which the agent does not declare"),
        ("notes: {command: [a], headers: {A: b}}", "a program gets its secrets by env"),
        ("notes: {url: 'ftp://a'}", "mcp.notes.url is wrong"),
        ("notes: {url: 'https://a.example', network: true}", "is for a command, not for a url"),
        ("notes: {url: 'https://a.example', headers: {Host: b}}", "which cannot be set"),
        ("notes: {command: [a], timeout: 601}", "must be above 0 and at most 600"),
        ("notes: {command: [a], reads: [relative]}", "must be the full path of a folder"),
        ("notes: {command: [a], folder: all}", "folder"),
        (
            f"notes: {{url: 'https://a.example', headers: Bearer {KEY}}}",
            "mcp.notes.headers must be a mapping",
        ),
        (
            f"notes: {{url: 'https://a.example', headers: {{Authorization: Bearer {KEY}}}}}",
            "mcp.notes.headers.Authorization looks like a key",
        ),
    ],
)
def test_server_that_cannot_be_declared_is_named(mcp_lines: str, reason: str) -> None:
    text = f"name: a\nmodel: m\nsystem: s\nmcp:\n  {mcp_lines}\n"
    with pytest.raises(UsageError) as caught:
        parse_agents(text, "a.yaml")
    assert reason in str(caught.value)
    assert "ghp_" not in f"{caught.value} {caught.value.hint}"
