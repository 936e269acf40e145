"""What may be asked of a model beside its prompt, and what is refused before the first call."""

from typing import Any

import attrs
import pytest

from cortex.agent.spec import AgentSpec, parse_agents
from cortex.domain.errors import InvalidValueError, UsageError
from cortex.domain.model import ModelOptions
from cortex.domain.model_options import check_options, provider_of
from cortex.flows.spec import parse_flows

AGENT = "name: a\nmodel: {model}\nsystem: s\ntools: [add]\nmax_tokens: 4096\n"
FLOW = (
    "name: f\nsteps:\n- name: ask\n  uses: llm\n  with: {{model: m, prompt: p, options: {{{}}}}}\n"
)
SET = """\
temperature: 1
stop_sequences: [END]
tool_choice: auto
parallel_calls: false
thinking: 2048
effort: high
server_tools: [{type: web_search_20250305, name: web_search, max_uses: 5}]
metadata: {user_id: u-1}
extra: {service_tier: auto}
"""
EXPECTED = ModelOptions(
    temperature=1.0,
    stop_sequences=("END",),
    tool_choice="auto",
    parallel_calls=False,
    thinking=2048,
    effort="high",
    server_tools=({"type": "web_search_20250305", "name": "web_search", "max_uses": 5},),
    metadata={"user_id": "u-1"},
    extra={"service_tier": "auto"},
)

REFUSED = {
    "temperature: 3": "temperature must be from 0 to 2, got 3",
    "temperature: 1.5": "temperature must be from 0 to 1 for this model, got 1.5",
    "temperature: warm": 'temperature must be a number, got "warm"',
    "thinking: 100": "thinking must be at least 1024 tokens, got 100",
    "thinking: 4096": "thinking must be less than max_tokens, which is 4096, got 4096: "
    "raise max_tokens",
    "thinking: -1": "thinking must be from 1 to 1000000 tokens, got -1",
    "thinking: deep": 'thinking must be one of int, "adaptive", "off", false, got "deep"',
    "effort: huge": 'effort must be one of "low", "medium", "high", "xhigh", "max", got "huge"',
    "{thinking: adaptive, temperature: 0.5}": "temperature does not go with thinking: "
    "leave one of them out",
    "{thinking: 2048, tool_choice: any}": "tool_choice forces a call, which does not go with "
    "thinking: use auto, or thinking: off",
    "tool_choice: subtract": "tool_choice names no tool, got 'subtract'; "
    "known: auto, any, none, add",
    "stop_sequences: [' ']": "stop_sequences[0] must have more than blanks in it",
    f"stop_sequences: [{'x' * 1001}]": "stop_sequences[0] has 1001 characters, at most 1000",
    "server_tools: [{}]": "server_tools[0] is empty: write the tool as the provider defines it",
    "server_tools: [{name: add}]": "server_tools[0].name 'add' is taken by another tool",
    "server_tools: [{type: x, at: 2025-01-01}]": "server_tools is not JSON: "
    "date 2025-01-01 must be written as text",
    "metadata: {team: a}": "metadata.team is unknown to this model's API, which takes user_id only",
    "metadata: {user_id: 7}": "metadata.user_id must be text, got 7",
    "extra: {model: other}": "extra.model may not be changed: extra is for fields that Cortex "
    "lacks",
    "extra: {X-Api-Key: k}": "extra.X-Api-Key may not be changed: extra is for fields that Cortex "
    "lacks",
    "extra: {stream: false}": "extra.stream may not be changed: extra is for fields that Cortex "
    "lacks",
    "extra: {max_output_tokens: 5}": "extra.max_output_tokens is no extra field: use max_tokens",
    "extra: {systemInstruction: x}": "extra.systemInstruction is no extra field: use system",
    "extra: {generationConfig: {maxOutputTokens: 5}}": "extra.generationConfig.maxOutputTokens is "
    "no extra field: use max_tokens",
    "extra: {generation_config: {candidateCount: 5}}": "extra.generation_config.candidateCount may "
    "not be changed: extra is for fields that Cortex lacks",
    "extra: {n: 5}": "extra.n may not be changed: extra is for fields that Cortex lacks",
    "extra: {text: {format: x}}": "extra.text.format is no extra field: use output",
}


def test_agent_passes_its_options() -> None:
    (spec,) = parse_agents(AGENT.format(model="m") + SET, "agents.yaml")
    assert spec.options == EXPECTED
    assert AgentSpec.from_json(spec.to_json()) == spec


def test_agent_without_options_is_stored_without_them() -> None:
    (spec,) = parse_agents(AGENT.format(model="m"), "agents.yaml")
    names = {each.name for each in attrs.fields(ModelOptions)}
    assert not names & spec.to_json().keys()
    assert spec.options.to_json() == {}


def test_thinking_takes_the_word_off() -> None:
    (spec,) = parse_agents(AGENT.format(model="m") + "thinking: off\ntemperature: 0", "agents.yaml")
    assert spec.options == ModelOptions(thinking="off", temperature=0.0)


@pytest.mark.parametrize("text", REFUSED)
def test_apply_names_the_option_that_is_refused(text: str) -> None:
    lines = text.strip("{}").split(", ") if text.startswith("{") else [text]
    with pytest.raises(UsageError) as caught:
        parse_agents(AGENT.format(model="m") + "\n".join(lines), "agents.yaml")
    place, message = caught.value.message.split(": ", 1)
    assert message == REFUSED[text]
    field = message.partition(" ")[0].partition(".")[0].partition("[")[0]
    assert place == f"agents.yaml:{6 + [each.startswith(field) for each in lines].index(True)}"


def test_rules_of_one_provider_are_not_those_of_another() -> None:
    options = "temperature: 1.5\nthinking: 128\ntool_choice: any\nmetadata: {team: a}"
    (spec,) = parse_agents(AGENT.format(model="google:gemini-3-pro") + options, "agents.yaml")
    assert spec.options.metadata == {"team": "a"}


@pytest.mark.parametrize(
    "model, provider",
    [("claude-sonnet-5", "anthropic"), ("openai:gpt-6", "openai"), ("qwen3:8b", "qwen3")],
)
def test_model_without_a_prefix_is_of_anthropic(model: str, provider: str) -> None:
    assert provider_of(model) == provider


def test_flow_names_the_option_that_is_refused() -> None:
    (flow,) = parse_flows(FLOW.format("thinking: off, temperature: 0"), "flows.yaml")
    assert flow.steps[0].with_["options"] == {"thinking": False, "temperature": 0}
    with pytest.raises(UsageError) as caught:
        parse_flows(FLOW.format("temperature: 7"), "flows.yaml")
    assert caught.value.message == (
        "flows.yaml:5: steps[0].with.options.temperature must be from 0 to 2, got 7"
    )


@pytest.mark.parametrize(
    "fields, message",
    [
        ({"tool_choice": "any"}, "call 'x': options.tool_choice is any, but there is no tool"),
        ({"stop_sequences": ("a", "")}, "call 'x': options.stop_sequences[1] must have more"),
    ],
)
def test_call_names_the_option_that_is_refused(fields: dict[str, Any], message: str) -> None:
    options = ModelOptions(**fields)
    with pytest.raises(InvalidValueError) as caught:
        check_options(options, model="m", max_tokens=9, what="call 'x'")
    assert caught.value.message.startswith(message)
