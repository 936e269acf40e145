"""Agent specs: YAML, the stored form, and errors with their line."""

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cortex.agent.limits import AgentBackoff, AgentBudget, AgentLimits, OnStop
from cortex.agent.spec import AgentSpec, parse_agents
from cortex.agent.yaml_source import DEPTH_MAX, SIZE_MAX_BYTES, VALUES_MAX
from cortex.domain.approvals.approval import Risk
from cortex.domain.approvals.rules import ApprovalRule
from cortex.domain.errors import UnfitCodeError, UsageError

SMALL = "name: a\nmodel: m\nsystem: s\n"

names = st.from_regex(r"[a-zA-Z0-9][a-zA-Z0-9._-]{0,63}", fullmatch=True)
tool_names = st.from_regex(r"[a-zA-Z0-9_-]{1,64}", fullmatch=True)
texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
filled = texts.filter(lambda text: bool(text.strip()))
budgets = st.builds(
    AgentBudget,
    usd=st.floats(0.000001, 1_000_000),
    tokens=st.none() | st.integers(1, 10**12),
    per=st.sampled_from(["run", "day"]),
)
specs = st.builds(
    AgentSpec,
    name=names,
    model=filled,
    system=filled,
    tools=st.lists(tool_names, max_size=5, unique=True).map(tuple),
    max_steps=st.integers(1, 10_000),
    max_tokens=st.integers(1, 1_000_000),
    description=texts,
    limits=st.builds(
        AgentLimits,
        timeout_seconds=st.none() | st.integers(1, 5_400),
        worker_attempts=st.none() | st.integers(1, 25),
        max_retries=st.none() | st.integers(0, 100),
        backoff=st.none() | st.builds(AgentBackoff, cap_seconds=st.none() | st.floats(1, 86_400)),
        step_timeout_seconds=st.none() | st.floats(0.001, 900),
        idle_timeout_seconds=st.none() | st.floats(0.001, 450),
    ),
    budget=st.none() | budgets,
    on_stop=st.builds(OnStop, empty=st.sampled_from(["continue", "fail"])),
)


@given(specs)
def test_stored_spec_round_trips(spec: AgentSpec) -> None:
    assert AgentSpec.from_json(spec.to_json()) == spec


def test_a_file_may_hold_several_agents() -> None:
    text = """\
# Two agents.
name: researcher
model: claude-sonnet-4-5
system: |
  You find things out.
  You say how.
tools: [http_request, write_file]
max_steps: 20
max_tokens: 1000
description: Finds things out.
limits: {timeout_seconds: 5400, worker_attempts: 1, max_retries: 0}
---
---
name: writer
model: m
system: s
"""
    researcher, writer = parse_agents(text, "agents.yaml")
    assert researcher.to_json() == {
        "name": "researcher",
        "model": "claude-sonnet-4-5",
        "system": "You find things out.\nYou say how.\n",
        "tools": ["http_request", "write_file"],
        "max_steps": 20,
        "max_tokens": 1000,
        "description": "Finds things out.",
        "limits": {"timeout_seconds": 5400, "worker_attempts": 1, "max_retries": 0},
    }
    assert writer == AgentSpec(name="writer", model="m", system="s")
    assert writer.to_json()["limits"] == {}


def test_every_override_is_parsed_and_stored() -> None:
    text = (
        SMALL
        + """\
tools: [http_request]
limits:
  backoff: {base_seconds: 2, cap_seconds: 60, multiplier: 1.5}
  step_timeout_seconds: 900
  call_timeout_seconds: 450
  idle_timeout_seconds: 30
  connect_timeout_seconds: 5.5
  tool_timeouts: {http_request: 600}
budget: {usd: 1.00, tokens: 100000, per: day}
on_stop: {max_tokens: fail, empty: fail}
"""
    )
    (agent,) = parse_agents(text, "agents.yaml")
    stored = agent.to_json()
    assert stored["limits"] == {
        "backoff": {"base_seconds": 2.0, "cap_seconds": 60.0, "multiplier": 1.5},
        "step_timeout_seconds": 900.0,
        "call_timeout_seconds": 450.0,
        "idle_timeout_seconds": 30.0,
        "connect_timeout_seconds": 5.5,
        "tool_timeouts": {"http_request": 600.0},
    }
    assert stored["budget"] == {"usd": 1.0, "tokens": 100_000, "per": "day"}
    assert stored["on_stop"] == {"max_tokens": "fail", "refusal": "fail", "empty": "fail"}
    assert AgentSpec.from_json(stored) == agent


@pytest.mark.parametrize(
    "text, output",
    [
        (
            "limits:\n  step_timeout_seconds: 901\n",
            (
                ":5: limits.step_timeout_seconds must be above 0 and at most 900, "
                "the hard limit of a step in seconds, got 901"
            ),
        ),
        (
            "limits:\n  call_timeout_seconds: 451\n",
            ":5: limits.call_timeout_seconds must be above 0 and at most 450, ",
        ),
        (
            "limits:\n  idle_timeout_seconds: 0\n",
            ":5: limits.idle_timeout_seconds must be above 0 and at most 450, ",
        ),
        (
            "limits: {connect_timeout_seconds: 181}\n",
            ":4: limits.connect_timeout_seconds must be above 0 and at most 180, ",
        ),
        (
            "tools: [a]\nlimits:\n  tool_timeouts:\n    a: 601\n",
            (
                ":7: limits.tool_timeouts.a must be above 0 and at most 600, "
                "the hard limit of a tool call in seconds, got 601"
            ),
        ),
        (
            "tools: [a]\nlimits:\n  tool_timeouts:\n    b: 60\n",
            ":7: limits.tool_timeouts.b is none of the agent's tools",
        ),
        (
            "limits:\n  backoff:\n    cap_seconds: 86401\n",
            ":6: limits.backoff.cap_seconds must be from 0.01 to 86400, got 86401.0",
        ),
        (
            "limits:\n  backoff: {base_seconds: 90, cap_seconds: 60}\n",
            ":5: limits.backoff base_seconds 90.0 is above cap_seconds 60.0",
        ),
        ("budget: {per: day}\n", ":4: budget has neither usd nor tokens"),
        ("budget: {usd: 0}\n", ":4: budget.usd must be from 1e-06 to 1000000, got 0"),
        ("budget: {usd: 1, per: week}\n", ':4: budget.per must be one of "run", "day", got "week"'),
        (
            "on_stop: {refusal: continue}\n",
            ':4: on_stop.refusal must be one of "ask", "fail", got "continue"',
        ),
        (
            "on_stop: {empty: stop}\n",
            ':4: on_stop.empty must be one of "continue", "ask", "fail", got "stop"',
        ),
    ],
)
def test_an_override_beyond_its_hard_limit_is_refused_where_it_stands(
    text: str, output: str
) -> None:
    with pytest.raises(UsageError) as caught:
        parse_agents(SMALL + text, "agents.yaml")
    assert caught.value.message.removeprefix("agents.yaml").startswith(output)


APPROVALS = """\
tools: [send_mail, pay]
approvals:
- tool: send_mail
  when: {to: "*@example.com", order.total: {gt: 500}}
  risk_at_least: HIGH
  approve: true
  risk: CRITICAL
  effect: money leaves
  reversible: false
  people: 3
  expires_seconds: 3600
  on_deny: fail
  on_expiry: tell
  reason: refund > 500
- approve: false
"""


def test_rules_for_approvals_come_through() -> None:
    (agent,) = parse_agents(SMALL + APPROVALS + "on_stop: {refusal: ask}\n", "agents.yaml")
    full, plain = agent.approvals
    assert full == ApprovalRule(
        approve=True,
        tool="send_mail",
        when={"to": "*@example.com", "order.total": {"gt": 500}},
        risk_at_least=Risk.HIGH,
        risk=Risk.CRITICAL,
        effect="money leaves",
        reversible=False,
        people=3,
        expires_seconds=3600,
        on_deny="fail",
        on_expiry="tell",
        reason="refund > 500",
    )
    assert plain == ApprovalRule(approve=False)
    assert agent.on_stop == OnStop(refusal="ask")
    stored = agent.to_json()
    assert stored["approvals"][1] == {
        "approve": False,
        "tool": "*",
        "expires_seconds": 86_400,
        "on_deny": "tell",
        "on_expiry": "fail",
    }
    assert AgentSpec.from_json(json.loads(json.dumps(stored))) == agent


def test_spec_without_approval_rules_stores_none() -> None:
    assert "approvals" not in AgentSpec(name="a", model="m", system="s").to_json()


@pytest.mark.parametrize(
    "text, output",
    [
        ("- tool: pay\n", ":6: approvals[0].approve is missing"),
        ("- approve: yes please\n", ':6: approvals[0].approve must be true or false, got "yes pl'),
        (
            "- approve: true\n  tool: mail\n",
            ":7: approvals[0].tool names none of the agent's tools",
        ),
        ("- approve: true\n  risk: high\n", ':7: approvals[0].risk must be one of "LOW", "MED", '),
        ("- approve: true\n  people: 11\n", ":7: approvals[0].people must be from 1 to 10, got 11"),
        (
            "- approve: true\n  on_deny: ask\n",
            ':7: approvals[0].on_deny must be one of "tell", "fail", got "ask"',
        ),
        (
            "- approve: false\n- approve: true\n  when:\n    a: 1\n    b.c: {above: 5}\n",
            ":10: approvals[1].when.b.c has the unknown comparison 'above'; known: gt, ge, lt, le,",
        ),
        (
            "- approve: true\n  when: {day: 2026-01-31}\n",
            ":7: approvals[0].when.day must be text, a number, true, false, null or a comparison, ",
        ),
        (
            "- approve: true\n  wen: {a: 1}\n",
            ":7: approvals[0].wen is unknown; did you mean 'when'?",
        ),
        ("  {approve: true}\n", ":5: approvals must be a list, got "),
        ("- approve: true\n" * 101, ":5: approvals has 101 rules, at most 100"),
    ],
)
def test_a_wrong_rule_for_approvals_is_refused_where_it_stands(text: str, output: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_agents(SMALL + "tools: [send_mail, pay]\napprovals:\n" + text, "agents.yaml")
    assert caught.value.message.removeprefix("agents.yaml").startswith(output)


@pytest.mark.parametrize(
    "text, output",
    [
        ("", ": no agent in it"),
        ("# nothing\n---\n", ": no agent in it"),
        ("name: a\nmodel: m\n", ":1: system is missing"),
        ("---\n" + SMALL + "---\nname: b\nmodel: m\n", ":6: system is missing"),
        (SMALL + "max_step: 3\n", ":4: max_step is unknown; did you mean 'max_steps'?"),
        (
            SMALL + "limits:\n  timeout: 3\n",
            ":5: limits.timeout is unknown; did you mean 'timeout_seconds'?",
        ),
        (SMALL + "max_steps: '3'\n", ':4: max_steps must be a whole number, got "3"'),
        (SMALL + "max_steps: yes\n", ":4: max_steps must be a whole number, got true"),
        (SMALL + "max_steps: 0\n", ":4: max_steps must be from 1 to 10000, got 0"),
        ("name: no\n" + SMALL[8:], ":1: name must be text, got false"),
        ("name: 2026-01-02\n" + SMALL[8:], ":1: name must be text, got datetime.date(2026, 1, 2)"),
        (
            "name: a b\n" + SMALL[8:],
            ':1: name must match [a-zA-Z0-9][a-zA-Z0-9._-]{0,63}, got "a b"',
        ),
        ("name: a\nmodel: ' '\nsystem: s\n", ":2: model must not be empty"),
        (SMALL + "tools:\n- a\n- 3\n", ":6: tools[1] must be text, got 3"),
        (SMALL + "tools: a\n", ':4: tools must be a list, got "a"'),
        (SMALL + "tools: [a b]\n", ':4: tools has "a b", which is no tool name'),
        (SMALL + "tools: [a, b, a]\n", ':4: tools names "a" twice'),
        (
            SMALL + "limits:\n  timeout_seconds: 5401\n",
            ":5: limits.timeout_seconds must be from 1 to 5400, got 5401",
        ),
        (
            SMALL + "limits: {worker_attempts: 26}\n",
            ":4: limits.worker_attempts must be from 1 to 25, got 26",
        ),
        (
            SMALL + "limits: {max_retries: -1}\n",
            ":4: limits.max_retries must be from 0 to 100, got -1",
        ),
        (
            SMALL + "max_steps: 0.5\nlimits: {x: 1}\n",
            ":4: max_steps must be a whole number, got 0.5 (and 1 more)",
        ),
        (SMALL + "name: b\n", ":4: name is given twice, first on line 1"),
        (
            SMALL + "limits:\n  max_retries: 1\n  max_retries: 1\n",
            ":6: max_retries is given twice, first on line 5",
        ),
        (SMALL + "---\n" + SMALL, ":5: name 'a' is taken by an agent further up"),
        ("- a\n", ':1: the agent must be a mapping, got ["a"]'),
        ("text", ':1: the agent must be a mapping, got "text"'),
        ("? [1]\n: 2\n", ":1: a key that is not text"),
    ],
)
def test_invalid_yaml_is_reported_with_line_and_field(text: str, output: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_agents(text, "agents.yaml")
    assert caught.value.message.removeprefix("agents.yaml").startswith(output)
    assert "\n" not in caught.value.message


def _bomb() -> str:
    lines = ["a: &a [1, 1, 1, 1, 1, 1, 1, 1, 1]"]
    for before, name in zip("abcdefghijklmno", "bcdefghijklmnop", strict=True):
        lines.append(f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]")
    return "\n".join(lines)


@pytest.mark.parametrize(
    "text, output",
    [
        (_bomb(), f"more than {VALUES_MAX} values"),
        ("a: &a [*a]", f"nested deeper than {DEPTH_MAX} levels"),
        ("[" * 50_000, f"nested deeper than {DEPTH_MAX} levels"),
        ("a: " * 3 + "\n", "mapping values are not allowed here"),
        ("#" * (SIZE_MAX_BYTES + 1), "262145 bytes, at most 262144"),
        ("ä" * SIZE_MAX_BYTES, "524288 bytes, at most 262144"),
        (SMALL + "x: !!python/object/apply:os.system [ls]\n", "is not allowed"),
        (SMALL + "x: !!python/name:os.system\n", "could not determine a constructor"),
        (SMALL + "tools: !!set {a, b}\n", "is not allowed"),
        (SMALL + "x: *absent\n", ":4: found undefined alias 'absent'"),
        (SMALL + "tools: [\n", ":5: "),
        (SMALL + 'description: "\\0"\n', ":4: description must be text"),
        (SMALL + 'description: "\\ud800"\n', ":4: description must be text"),
        (SMALL + "description: a\0b\n", ":4: a character that YAML forbids"),
        (SMALL + "description: a\ud800b\n", ":4: a character that YAML forbids"),
        (SMALL + "max_steps: 2026-02-30\n", ':4: "2026-02-30": day '),
        (SMALL + "max_steps: " + "9" * 5_000 + "\n", ":4: "),
        (SMALL + "<<: {max_steps: 3}\n", ":4: << is unknown"),
    ],
)
def test_hostile_yaml_is_refused_in_bounds(text: str, output: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_agents(text, "f.yaml")
    assert output in caught.value.message
    assert len(caught.value.message) < 400


@given(st.text(max_size=200) | st.text("-:[]{}&*!|>'\"#%@ab1\n \t,?", max_size=60))
def test_any_text_gives_agents_or_a_usage_error(text: str) -> None:
    with contextlib.suppress(UsageError):
        assert parse_agents(text, "f.yaml")


@pytest.mark.parametrize(
    "stored, output",
    [
        ({"name": "a", "model": "m"}, 'stored agent "a": system is missing'),
        ({"model": "m", "system": "s", "name": "a", "mood": 1}, "mood is unknown"),
    ],
)
def test_stored_spec_is_validated(stored: dict[str, object], output: str) -> None:
    with pytest.raises(UnfitCodeError, match=output):
        AgentSpec.from_json(stored)
