"""Flows in YAML: valid ones, and errors with file, line, value and limit."""

from textwrap import dedent
from typing import Any

import pytest

from cortex.domain.errors import UnfitCodeError, UsageError
from cortex.flows.spec import STEPS_MAX, FlowSpec, parse_flows

WHOLE = """
name: invoices
description: checks invoices
inputs:
  day: {required: true}
  limit: {default: 10}
limits: {timeout_ms: 2400000}
steps:
- name: fetch
  uses: http
  with: {url: "https://erp.example/?day=${{ inputs.day }}"}
  retry: {max: 3, base_ms: 2000}
  timeout_ms: 5000
- name: check
  uses: llm
  for_each: ${{ steps.fetch.result.json.items }}
  concurrency: 4
  on_error: continue
  with: {model: m, prompt: "${{ index }} ${{ item }}"}
- name: notify
  uses: tool
  needs: []
  with: {tool: say, arguments: {text: hi}}
- name: agree
  uses: approve
  needs: [check, notify]
  when: ${{ steps.check.status == 'completed' and inputs.limit > 1 }}
- name: work
  uses: agent
  with: {agent: helper, prompt: "${{ json(steps.check.result) }}"}
result: {checked: "${{ steps.check.result }}"}
"""


SMALL = "name: x\nsteps: [{name: a, uses: approve}]"


def flow(text: str) -> FlowSpec:
    (found,) = parse_flows(dedent(text), "f.yaml")
    return found


def refused(text: str) -> str:
    with pytest.raises(UsageError) as caught:
        parse_flows(dedent(text), "f.yaml")
    return caught.value.message


def one(step: str) -> str:
    return "name: x\nsteps:\n- name: a\n  uses: tool\n  with: {tool: t}\n" + step


def test_stored_flow_round_trips() -> None:
    spec = flow(WHOLE)
    stored = spec.to_json()
    assert FlowSpec.from_json(stored) == spec
    assert stored["steps"][0] == {
        "name": "fetch",
        "uses": "http",
        "with": {"url": "https://erp.example/?day=${{ inputs.day }}"},
        "retry": {"max": 3, "base_ms": 2000},
        "timeout_ms": 5000,
    }
    assert flow("name: x\nsteps: [{name: a, uses: approve}]").to_json() == {
        "name": "x",
        "steps": [{"name": "a", "uses": "approve"}],
    }


def test_step_needs_the_one_above_or_those_it_names() -> None:
    spec = flow(WHOLE)
    needs = [spec.needs(index) for index in range(len(spec.steps))]
    assert needs == [(), ("fetch",), (), ("check", "notify"), ("agree",)]
    assert spec.before()["work"] == {"fetch", "check", "notify", "agree"}


@pytest.mark.parametrize(
    "text, message",
    [
        ("", "f.yaml: no flow in it"),
        ("name: x", "f.yaml:1: steps is missing"),
        ("name: x\nsteps: []", "f.yaml:2: steps has 0 steps, 1 to 200"),
        ("name: 'a b'\nsteps: [{name: a, uses: approve}]", "f.yaml:1: name must match"),
        (one("- {name: a, uses: approve}"), 'f.yaml:6: steps[1].name "a" is taken'),
        (one("- {name: b-1, uses: cron}"), 'f.yaml:6: steps[1].uses must be one of "tool"'),
        (one("- {name: b, uses: approve, with_: {}}"), "f.yaml:6: steps[1].with_ is unknown"),
        (one("  whith: 1"), "f.yaml:6: steps[0].whith is unknown; did you mean 'with'?"),
        (one("- name: b\n  uses: tool"), "f.yaml:6: steps[1].with lacks tool"),
        (one("- name: b\n  uses: llm\n  with:\n    modle: m"), "did you mean 'model'?"),
        (one("- name: b\n  uses: tool\n  with:\n    tool: 1"), "f.yaml:9: steps[1].with.tool must"),
        (
            one("- name: b\n  uses: http\n  with: {url: ftp://x}"),
            "f.yaml:8: steps[1].with is refused: url 'ftp://x' is not a URL",
        ),
        (
            one(
                "- name: b\n  uses: agent\n"
                "  with: {agent: a, prompt: p, folder: '${{ steps.a.result }}'}"
            ),
            "f.yaml:8: steps[1].with.folder must be written out, without an expression",
        ),
        (one("  timeout_ms: 600001"), "f.yaml:6: steps[0].timeout_ms must be at least 1 and at "),
        (one("  timeout_ms: 0"), "got 0"),
        (
            one("- name: b\n  uses: llm\n  with: {model: m, prompt: p}\n  timeout_ms: 180001"),
            "180000, the hard limit of a model call in a flow in milliseconds, got 180001",
        ),
        (one("- {name: b, uses: approve, timeout_ms: 1}"), "steps that wait for people"),
        (one("- {name: b, uses: publish, with: {topic: x}, timeout_ms: 1}"), "they call nothing"),
        (
            one(
                "- name: b\n  uses: publish\n  with:\n    topic: job.failed\n"
                '    payload: {a: "${{ steps.a.result }}"}'
            ),
            "f.yaml:9: steps[1].with.topic is refused: topic 'job.failed' is one of the runtime's",
        ),
        (one("- name: b\n  uses: publish\n  with: {topic: a, key: ''}"), "with.key is refused:"),
        (
            one(
                "- name: b\n  uses: approve\n"
                "  with:\n    detail: {a: '${{ job.id }}'}\n    expires_s: 20"
            ),
            "f.yaml:10: steps[1].with.expires_s is refused: expires_s is 20, outside 60 to",
        ),
        (one("- {name: b, uses: approve, with: {risk: BIG}}"), "risk is 'BIG'; one of LOW, MED,"),
        (
            one(
                "- name: b\n  uses: approve\n"
                "  with: {risk: CRITICAL, people: 1, detail: {a: '${{ job.id }}'}}"
            ),
            "steps[1].with is refused: people is 1, outside 2 to 10",
        ),
        (
            one("- {name: b, uses: llm, with: {model: '${{ job.id }}'}}"),
            "give either prompt or messages",
        ),
        (
            one("- {name: b, uses: llm, with: {model: m, prompt: p, max_tokens: 0}}"),
            "with.max_tokens is refused: max_tokens must be at least 1, got 0",
        ),
        (
            "name: x\nlimits:\n  timeout_ms: 2700001\nsteps: [{name: a, uses: approve}]",
            "f.yaml:3: limits.timeout_ms must be at least 1 and at most 2700000, the hard limit",
        ),
        (
            "name: x\ntimeouts:\n  step: 900001\nsteps: [{name: a, uses: approve}]",
            "f.yaml:3: timeouts.step must be at least 1 and at most 900000, the hard limit of",
        ),
        (
            "name: x\ntimeouts: {llm_call: 180001}\nsteps: [{name: a, uses: approve}]",
            "timeouts.llm_call must be at least 1 and at most 180000, the hard limit of a model",
        ),
        (
            (
                "name: x\nlimits: {timeout_ms: 60000}\n"
                "steps:\n- {name: a, uses: tool, with: {tool: t}, timeout_ms: 60001}"
            ),
            (
                "f.yaml:4: steps[0].timeout_ms must be at most 60000, the limit of the flow in "
                "milliseconds (limits.timeout_ms), got 60001"
            ),
        ),
        (
            one("- {name: b, uses: agent, with: {agent: a, prompt: p}, timeout_ms: 1800001}"),
            (
                "f.yaml:6: steps[1].timeout_ms must be at most 1800000, the limit of the flow in "
                "milliseconds (limits.timeout_ms raises it), got 1800001"
            ),
        ),
        (
            (
                "name: x\nlimits: {timeout_ms: 60000}\ntimeouts: {step: 60001}\n"
                "steps: [{name: a, uses: approve}]"
            ),
            "f.yaml:3: timeouts.step must be at most 60000, the limit of the flow",
        ),
        (
            "name: x\ntimeouts: {call: 1}\nsteps: [{name: a, uses: approve}]",
            "f.yaml:2: timeouts.call is unknown",
        ),
        (one("  retry: {max: 21}"), "f.yaml:6: steps[0].retry.max must be from 1 to 20, got 21"),
        (one("  needs: [b]"), 'f.yaml:6: steps[0].needs[0] "b" is no step of the flow'),
        (one("  needs: [a]"), "f.yaml:6: steps[0].needs makes a circle: none of a can begin"),
        (
            one("  needs: [b]\n- {name: b, uses: approve}"),
            "f.yaml:6: steps[0].needs makes a circle: none of a, b can begin",
        ),
        (one("  when: ${{ steps.b.result }}"), "f.yaml:6: steps[0].when names the unknown step"),
        (
            one('- {name: b, uses: approve, needs: [], when: "${{ steps.a.result }}"}'),
            "names step 'a', which may not have ended by then: add it to needs",
        ),
        (one("  when: ${{ item }}"), "steps[0].when has the unknown name 'item'"),
        (one("  when: ${{ env.HOME }}"), "has the unknown name 'env'"),
        (one("  when: ${{ inputs.day }}"), "has the unknown input 'day'; none is known"),
        (one("  when: ${{ 1 + 1 }}"), "f.yaml:6: steps[0].when has expression"),
        (one("  when: ${{ 1"), "has '${{' has no '}}' after it"),
        (one("  when: yes please"), "must be true, false or one expression"),
        (one("  for_each: abc"), "must be a list or one expression"),
        (one("  concurrency: 3"), "concurrency is for steps with for_each"),
        (one("  on_error: ignore"), 'must be one of "fail", "continue"'),
        (f"{SMALL}\ninputs: {{'a b': {{}}}}", "inputs.a b must match"),
        (
            f"{SMALL}\ninputs: {{a: {{required: true, default: 1}}}}",
            "f.yaml:3: inputs.a is required and has a default",
        ),
        (f"{SMALL}\n---\n{SMALL}", "is taken by a flow further up"),
    ],
)
def test_invalid_flow_is_refused_with_line_and_limit(text: str, message: str) -> None:
    assert message in refused(text)


def test_an_error_inside_values_has_the_line_of_its_value() -> None:
    text = one(
        "- name: b\n  uses: tool\n  with:\n    tool: t\n    arguments:\n      x: ${{ nope }}"
    )
    assert "f.yaml:11: steps[1].with.arguments.x has the unknown name 'nope'" in refused(text)


def test_a_flow_of_many_steps_is_checked_quickly_and_a_longer_one_refused() -> None:
    def text(count: int) -> dict[str, Any]:
        names = [f"s{number}" for number in range(count)]
        steps = [
            {"name": name, "uses": "approve", "needs": names[:index]}
            for index, name in enumerate(names)
        ]
        return {"name": "x", "steps": steps}

    assert len(FlowSpec.from_json(text(STEPS_MAX)).before()["s199"]) == 199
    with pytest.raises(UnfitCodeError, match="has 201 steps"):
        FlowSpec.from_json(text(STEPS_MAX + 1))


def test_a_stored_flow_that_cannot_be_read_needs_other_code() -> None:
    with pytest.raises(UnfitCodeError, match='stored flow "x"'):
        FlowSpec.from_json({"name": "x", "steps": [{"name": "a", "uses": "later"}]})


def test_a_step_may_take_as_long_as_its_flow() -> None:
    text = """
    name: x
    limits: {timeout_ms: 2700000}
    steps: [{name: a, uses: agent, with: {agent: a, prompt: p}, timeout_ms: 2700000}]
    """
    (flow,) = parse_flows(text, "f.yaml")
    assert flow.timeout_s(flow.steps[0]) == 2700


def test_limits_of_all_steps_hold_for_those_without_their_own() -> None:
    text = """
    name: x
    timeouts: {step: 700000, llm_call: 30000}
    steps:
    - {name: own, uses: tool, with: {tool: t}, timeout_ms: 5000}
    - {name: tool, uses: tool, with: {tool: t}}
    - {name: llm, uses: llm, with: {model: m, prompt: p}}
    - {name: ask, uses: approve}
    """
    (flow,) = parse_flows(text, "f.yaml")
    assert [flow.timeout_s(step) for step in flow.steps] == [5, 600, 30, None]
    assert FlowSpec.from_json(flow.to_json()) == flow
    assert flow.to_json()["timeouts"] == {"step": 700000, "llm_call": 30000}
    (plain,) = parse_flows("name: x\nsteps: [{name: a, uses: tool, with: {tool: t}}]", "f.yaml")
    assert plain.timeout_s(plain.steps[0]) is None
    assert "timeouts" not in plain.to_json()
