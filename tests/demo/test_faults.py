"""Fault files: the calls they affect, their results, and errors in a file."""

import re
from pathlib import Path
from typing import Any

import httpx2
import pytest
from click.testing import CliRunner

from cortex.demo import fault_file
from cortex.demo.fault_file import parse_rules, read_rules
from cortex.demo.faults import Faults
from cortex.demo.script import Call, Fault, Refusal, Reply
from cortex.demo.script_echo import echo
from cortex.demo.server import main
from cortex.domain.errors import UsageError
from tests.support.eventually import eventually
from tests.support.servers.scripted_model import API_KEY, MODEL, ScriptedModel, scripted_model


def a_call(ordinal: int = 1, *, at_s: float = 0.0, prompt: str = "hi", model: str = MODEL) -> Call:
    return Call(
        model=model,
        system="",
        messages=[{"role": "user", "content": prompt}],
        tools=[],
        max_tokens=1,
        stream=True,
        input_tokens=1,
        ordinal=ordinal,
        at_s=at_s,
    )


def script(text: str) -> Faults:
    return Faults(parse_rules(text, "faults.yaml"), echo)


def struck(text: str, calls: list[Call]) -> list[int]:
    """The places of the calls that the rules strike."""
    faults = script(text)
    return [index for index, call in enumerate(calls) if faults(call).rule is not None]


# --- when


@pytest.mark.parametrize(
    "calls, expected",
    [("3", [3]), ('"1-3"', [1, 2, 3]), ('"7-"', [7, 8, 9]), ('"2 - 3"', [2, 3]), ("99", [])],
)
def test_by_number(calls: str, expected: list[int]) -> None:
    rules = f"rules: [{{calls: {calls}, status: 500}}]"
    assert struck(rules, [a_call(number) for number in range(10)]) == expected


def test_by_time() -> None:
    rules = "rules: [{after_s: 1, for_s: 2, status: 500}]"
    calls = [a_call(at_s=at_s) for at_s in (0, 0.99, 1, 2.99, 3, 100)]
    assert struck(rules, calls) == [2, 3]
    assert struck("rules: [{after_s: 1, status: 500}]", calls) == [2, 3, 4, 5]


def test_rule_for_s_counts_from_the_first_call_it_struck() -> None:
    rules = "rules: [{for_s: 2, prompt: mine, status: 500}]"
    calls = [a_call(at_s=0), *(a_call(at_s=at_s, prompt="mine") for at_s in (60, 61.9, 62, 70))]
    assert struck(rules, calls) == [1, 2]
    overtaken = [a_call(at_s=5.0, prompt="mine"), a_call(at_s=4.9, prompt="mine")]
    assert struck(rules, overtaken) == [0, 1]


def test_by_model_and_prompt() -> None:
    rules = "rules: [{model: claude-*-5, prompt: mine, status: 500}]"
    calls = [
        a_call(model=model, prompt=prompt)
        for model in ("claude-sonnet-4-5", "claude-3", "Claude-x-5")
        for prompt in ("mine too", "not mine")
    ]
    assert struck(rules, calls) == [0]


def test_rule_applies_its_number_of_times_then_the_next_one() -> None:
    rules = "rules: [{name: first, times: 2, status: 500}, {times: 1, status: 503}]"
    faults = script(rules)
    answers = [faults(a_call(number)) for number in range(1, 5)]
    assert [answer.rule for answer in answers] == ["first", "first", "rule 2", None]
    assert [getattr(answer, "status", 200) for answer in answers] == [500, 500, 503, 200]


def test_a_share_is_the_same_in_each_run() -> None:
    rules = "rules: [{share: 0.2, status: 500}]"
    calls = [a_call(number) for number in range(1, 1001)]
    first = struck(rules, calls)
    assert 150 < len(first) < 250
    assert struck(rules, calls) == first
    assert struck("rules: [{share: 0, status: 500}]", calls) == []


# --- what


def outcome(rule: str) -> Reply | Refusal:
    return script(f"rules: [{{{rule}}}]")(a_call(prompt="one two three"))


@pytest.mark.parametrize(
    "status, type_",
    [
        (400, "invalid_request_error"),
        (401, "authentication_error"),
        (403, "permission_error"),
        (404, "not_found_error"),
        (408, "api_error"),
        (413, "request_too_large"),
        (422, "invalid_request_error"),
        (429, "rate_limit_error"),
        (500, "api_error"),
        (502, "api_error"),
        (503, "api_error"),
        (504, "timeout_error"),
        (529, "overloaded_error"),
    ],
)
def test_a_status_has_the_apis_own_type(status: int, type_: str) -> None:
    refusal = outcome(f"status: {status}, retry_after: 20")
    assert isinstance(refusal, Refusal)
    assert (refusal.status, refusal.error_type, refusal.retry_after) == (status, type_, "20")


def test_refusal_reads_all_its_fields() -> None:
    refusal = outcome(
        "name: x, status: 429, error_type: api_error, error_code: organization_on_hold, "
        "message: told, retry_after_date_s: 5, body: <html>, first_delay_s: 0.5"
    )
    assert refusal == Refusal(
        status=429,
        error_type="api_error",
        error_code="organization_on_hold",
        message="told",
        retry_after_date_s=5,
        body="<html>",
        first_delay_s=0.5,
        rule="x",
    )


@pytest.mark.parametrize("fault", list(Fault))
def test_a_fault_breaks_the_scripts_own_answer(fault: Fault) -> None:
    reply = outcome(f"fault: {fault}, fault_after: 1, ping_s: 0.1, fault_s: 2")
    assert isinstance(reply, Reply)
    output = (reply.fault, reply.fault_after, reply.ping_s, reply.fault_s)
    assert output == (fault, 1, 0.1, 2)
    assert reply.content[0]["text"] == "one two three"


def test_other_answers() -> None:
    def reply(rule: str) -> Reply:
        answer = outcome(rule)
        assert isinstance(answer, Reply)
        return answer

    assert reply('text: ""').content == ()
    assert reply("stop_reason: max_tokens").ends_with == "max_tokens"
    slow = reply("delay_s: 0.5, first_delay_s: 2, chunks: 3")
    assert (slow.delay_s, slow.first_delay_s, slow.chunk_count) == (0.5, 2, 3)
    (asked,) = reply("tools: [{name: now, raw_input: '{'}]").content
    assert (asked["type"], asked["name"], asked["raw_input"]) == ("tool_use", "now", "{")
    event = reply("fault: error_event, error_type: rate_limit_error")
    assert event.error_type == "rate_limit_error"


def test_a_fault_strikes_also_where_the_script_refuses() -> None:
    rules = parse_rules("rules: [{fault: cut}]", "x")
    faults = Faults(rules, lambda _: Refusal(status=400))
    assert isinstance(faults(a_call()), Reply)


# --- how it is written


@pytest.mark.parametrize(
    "text, output",
    [
        ("rules: [{status: x}]", '1: rule 1: status must be a whole number, got "x"'),
        ("rules:\n- {status: 500}\n- name: b\n  status: 99", "4: rule 2 'b': status must be from"),
        ("rules: [{stauts: 500}]", "rule 1: stauts is unknown; did you mean 'status'?"),
        ("rules: [{name: idle}]", "rule 1 'idle': has no outcome"),
        ("rules: [{fault: explode}]", 'rule 1: fault must be one of "stall"'),
        ("rules: [{calls: 3-1, status: 500}]", "rule 1: calls must be like"),
        ("rules: [{calls: 0, status: 500}]", "rule 1: calls must be like"),
        ("rules: [{times: -1, status: 500}]", "rule 1: times must be from 1"),
        ("rules: [{times: 0, status: 500}]", "rule 1: times must be from 1"),
        ("rules: []", "rules holds no rule"),
        ("rules: [{share: 2, status: 500}]", "rule 1: share must be from 0 to 1, got 2"),
        ("rules: [{status: 500, fault: cut}]", "fault cannot be combined with status"),
        ("rules: [{fault: cut, retry_after: 3}]", "retry_after means nothing without status"),
        ("rules: [{text: x, fault_after: 3}]", "fault_after means nothing without fault"),
        ("rules: [{fault: cut, error_type: x}]", "error_type means nothing without"),
        ('rules: [{status: 500, retry_after: "a\\nb"}]', "retry_after must fit into a header"),
        ("rules: [500]", "rule 1: must be a mapping, got 500"),
        ("rules: {}", "rules must be a list"),
        ("{}", "rules is missing"),
        ("[]", "the file must be a mapping"),
        ("rules: [", "1: "),
        ("", "0 documents"),
    ],
)
def test_invalid_fault_file_is_refused_with_its_rule(text: str, output: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_rules(text, "faults.yaml")
    assert caught.value.message.startswith("faults.yaml:")
    assert output in caught.value.message
    assert "\n" not in caught.value.message


def test_unreadable_rules_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read: No such file"):
        read_rules(tmp_path / "none.yaml")
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match="it is not UTF-8"):
        read_rules(tmp_path / "binary.yaml")


def test_the_example_of_the_documentation_is_a_fault_file() -> None:
    text = re.search(r"    # faults\.yaml\n(.*?)\n\n", fault_file.__doc__ or "", re.DOTALL)
    assert text is not None
    rules = parse_rules(re.sub("^    ", "", text[1], flags=re.MULTILINE), "example")
    assert [rule.name for rule in rules] == ["outage", "", "", ""]


# --- on a server


def ask(model: ScriptedModel, prompt: str = "hello there") -> httpx2.Response:
    body = {
        "model": MODEL,
        "max_tokens": 100,
        "messages": [{"role": "user", "content": prompt}],
        "stream": True,
    }
    return httpx2.post(
        f"{model.base_url}/v1/messages", json=body, headers={"x-api-key": API_KEY}, trust_env=False
    )


def test_server_follows_the_fault_file_and_logs_its_rules() -> None:
    rules: list[dict[str, Any]] = [
        {"name": "outage", "calls": "1-2", "status": 429, "retry_after": "20"},
        {"times": 1, "status": 503, "retry_after_date_s": 30},
        {"times": 1, "fault": "drop"},
        {"times": 1, "fault": "early_end"},
    ]
    with scripted_model("echo", rules=rules) as model:
        answers = [ask(model) for _ in range(3)]
        assert [answer.status_code for answer in answers] == [429, 429, 503]
        assert answers[0].json()["error"]["type"] == "rate_limit_error"
        assert answers[0].headers["retry-after"] == "20"
        assert answers[2].headers["retry-after"].endswith("GMT")
        with pytest.raises(httpx2.TransportError):
            ask(model)
        assert "message_stop" not in ask(model).text
        assert "message_stop" in ask(model).text
        eventually(
            lambda: model.calls()[-1]["outcome"] == "answered", what="the last call is logged"
        )
        calls = model.calls()
    assert [each["ordinal"] for each in calls] == [1, 2, 3, 4, 5, 6]
    assert [each["rule"] for each in calls] == [
        *("outage", "outage", "rule 2", "rule 3", "rule 4"),
        None,
    ]
    assert [each["status"] for each in calls] == [429, 429, 503, None, 200, 200]
    assert [each["outcome"] for each in calls] == [
        *("refused", "refused", "refused", "broken", "broken"),
        "answered",
    ]
    started = [each["started_s"] for each in calls]
    assert started == sorted(started)


def test_server_names_the_error_in_its_fault_file(tmp_path: Path) -> None:
    path = tmp_path / "faults.yaml"
    path.write_text("rules:\n- name: outage\n  status: often\n", "utf-8")
    done = CliRunner().invoke(main, ["--script-file", str(path)])
    assert done.exit_code == 2
    output = f"{path}:3: rule 1 'outage': status must be a whole number, got \"often\""
    assert output in done.stderr
    assert "Traceback" not in done.stderr
