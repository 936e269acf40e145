"""Complete answers of each API: text, calls, counts, and how the next request gives them back."""

import json
from datetime import UTC, datetime
from typing import Any

import attrs
import pytest

from cortex.agent.models.anthropic import arguments_of
from cortex.agent.models.neutral import given_back, signed
from cortex.agent.models.repairs import AnswerRepairs
from cortex.domain.model import ModelOptions, ModelResponse, OutputFormat
from cortex.domain.usage import Usage
from tests.providers.conftest import APIS, asking, client_of
from tests.support.servers.model_apis import ENCRYPTED, SIGNED, Turn, model_apis

NOW = datetime(2026, 1, 1, tzinfo=UTC)
TOOL = {
    "name": "add",
    "description": "Add two numbers.",
    "input_schema": {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "required": ["a", "b"],
    },
}
CALLS = (("add", {"a": 1, "b": 2}), ("add", {"a": 'ü \n "', "b": None}))

EMPTY = ModelResponse(model="m", content=(), stop_reason="tool_use", usage=Usage(), message_id="i")


def goes_on(response: ModelResponse) -> list[dict[str, Any]]:
    """The conversation with this answer and results of its calls, as an agent's loop makes it."""
    repaired = AnswerRepairs().repaired(response.content, turn=1)
    results = [
        {"type": "tool_result", "tool_use_id": each, "content": f"result {place}"}
        for place, each in enumerate(repaired.call_ids)
    ]
    return [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": list(repaired.content)},
        {"role": "user", "content": results},
    ]


@pytest.mark.parametrize("api", APIS)
async def test_a_text_arrives_in_pieces_and_as_a_whole(api: str) -> None:
    pieces: list[str] = []
    opened: list[bool] = []
    async with model_apis(Turn(text="Good day to you.")) as apis, client_of(api, apis) as client:
        response = await client.respond(
            asking(), on_text=pieces.append, on_open=lambda: opened.append(True)
        )
    assert response.text == "Good day to you."
    assert "".join(pieces) == response.text
    assert len(pieces) == 3
    assert opened == [True]
    assert response.stop_reason == "end_turn"
    assert response.message_id
    assert apis.refused == []


@pytest.mark.parametrize("api", APIS)
async def test_counts_are_disjoint(api: str) -> None:
    """OpenAI and Google count cached tokens as part of the prompt, Google thoughts apart."""
    counts: list[Usage] = []
    async with model_apis(Turn(text="hi", thinks=True)) as apis, client_of(api, apis) as client:
        response = await client.respond(asking(), on_usage=counts.append)
    assert response.usage == Usage(input_tokens=40, cache_read_tokens=60, output_tokens=20)
    assert counts[-1] == response.usage


@pytest.mark.parametrize("api", APIS)
async def test_the_priority_tier_is_counted_as_such(api: str) -> None:
    """OpenAI reports the tier that served the call in its answer, Google in a header."""
    header = ("x-gemini-service-tier", "priority")
    turn = Turn(text="hi", tier="priority", headers=(header,) if api == "google" else ())
    async with model_apis(turn) as apis, client_of(api, apis) as client:
        assert (await client.respond(asking())).usage.service_tier == "priority"


@pytest.mark.parametrize("api", APIS)
async def test_calls_of_tools_go_back_as_the_api_wants_them(api: str) -> None:
    turns = (Turn(text="I add.", calls=CALLS, thinks=True), Turn(text="3"))
    async with model_apis(*turns) as apis, client_of(api, apis) as client:
        response = await client.respond(asking(tools=(TOOL,)))
        assert response.stop_reason == "tool_use"
        assert [(each["name"], each["input"]) for each in response.tool_calls] == list(CALLS)
        assert len({each["id"] for each in response.tool_calls}) == 2
        answer = await client.respond(asking(tools=(TOOL,), messages=goes_on(response)))
    assert apis.refused == []
    assert answer.text == "3"
    sent = json.dumps(apis.asked[1])
    assert "result 0" in sent
    assert "result 1" in sent
    if api == "openai":  # thoughts go back to the one who had them
        assert ENCRYPTED in sent
        assert '"phase": "commentary"' in sent
    if api == "google":
        assert SIGNED in sent


@pytest.mark.parametrize("other", [*APIS, "anthropic"])
@pytest.mark.parametrize("api", APIS)
async def test_a_conversation_goes_on_with_another_provider(api: str, other: str) -> None:
    """Each of them refuses a call without its result, and ids that it does not like."""
    async with (
        model_apis(Turn(text="I add.", calls=CALLS, thinks=True), Turn(text="3")) as apis,
        client_of(api, apis) as client,
    ):
        response = await client.respond(asking(tools=(TOOL,)))
        messages = goes_on(response)
        if other == "anthropic":
            sent = json.dumps(arguments_of(asking(messages=messages), NOW))
        else:
            async with client_of(other, apis) as second:
                assert (await second.respond(asking(tools=(TOOL,), messages=messages))).text == "3"
            sent = json.dumps(apis.asked[1])
    assert apis.refused == []
    if other != api:
        assert ENCRYPTED not in sent
        assert SIGNED not in sent
        assert '"provider"' not in sent


@pytest.mark.parametrize("model, is_signed", [("gemini-2.5-flash", False), ("gemini-3-x", True)])
async def test_a_call_of_another_model_is_signed_for_models_that_need_it(
    model: str, is_signed: bool
) -> None:
    """The guide on thought signatures has the value for Gemini 3; earlier models check none."""
    call = {"type": "tool_use", "id": "call_1", "name": "add", "input": {}}
    messages = goes_on(attrs.evolve(EMPTY, content=(call,)))
    async with model_apis(Turn(text="ok")) as apis, client_of("google", apis) as client:
        apis.needs_signatures = is_signed
        await client.respond(asking(model=model, tools=(TOOL,), messages=messages))
    assert apis.refused == []
    assert ("thoughtSignature" in json.dumps(apis.asked)) == is_signed


@pytest.mark.parametrize("api", ["openai", "google"])
async def test_thoughts_of_one_account_go_to_no_other(api: str) -> None:
    """OpenAI: "The encrypted content … could not be verified" for those of another organisation."""
    turns = (Turn(text="I add.", calls=CALLS, thinks=True), Turn(text="3"), Turn(text="4"))
    async with (
        model_apis(*turns) as apis,
        client_of(api, apis) as client,
        client_of(api, apis, name="team-b") as other,
    ):
        messages = goes_on(await client.respond(asking(tools=(TOOL,))))
        await other.respond(asking(tools=(TOOL,), messages=messages))
        await client.respond(asking(tools=(TOOL,), messages=messages))
    assert apis.refused == []
    thoughts = ENCRYPTED if api == "openai" else SIGNED
    assert [thoughts in json.dumps(each) for each in apis.asked] == [False, False, True]


def test_signatures_of_a_gateway_do_not_go_to_anthropic() -> None:
    """The Messages API refuses thinking that another server has signed."""
    thinking = {"type": "thinking", "thinking": "hm", "signature": "s"}
    call = {"type": "tool_use", "id": "toolu_1", "name": "add", "input": {}}
    answers = [
        attrs.evolve(EMPTY, content=signed((thinking, call), "gateway")),
        attrs.evolve(EMPTY, content=(thinking, call)),
    ]
    kinds = {}
    for place, answer in enumerate(answers):
        messages = goes_on(answer)
        for name, given in (
            ("anthropic", messages),
            ("gateway", given_back(messages, "gateway", "anthropic")),
        ):
            sent = arguments_of(asking(messages=given), NOW)["messages"][1]["content"]
            assert not any("provider" in each for each in sent)
            kinds[name, place] = [each["type"] for each in sent]
    assert kinds == {
        ("anthropic", 0): ["tool_use"],
        ("gateway", 0): ["thinking", "tool_use"],
        ("anthropic", 1): ["thinking", "tool_use"],
        ("gateway", 1): ["tool_use"],
    }


def test_a_gateway_gets_all_of_a_prompt() -> None:
    found = {"type": "search_result", "source": "s", "title": "t", "content": []}
    messages = [{"role": "user", "content": [found, {"type": "text", "text": "hi"}]}]
    given = given_back(messages, "gateway", "anthropic")
    assert arguments_of(asking(messages=given), NOW)["messages"] == messages


async def test_reasoning_that_was_not_encrypted_is_left_out() -> None:
    """Servers that resemble OpenAI's may not encrypt it; by its id alone nobody can find it."""
    reasoning = {"type": "reasoning", "id": "rs_1", "summary": [], "provider": "the_openai"}
    call = {"type": "tool_use", "id": "call_1", "name": "add", "input": {}}
    messages = goes_on(attrs.evolve(EMPTY, content=(reasoning, call)))
    async with model_apis(Turn(text="ok")) as apis, client_of("openai", apis) as client:
        await client.respond(asking(tools=(TOOL,), messages=messages))
    assert apis.refused == []


@pytest.mark.parametrize("api", APIS)
async def test_ids_and_names_of_another_api_are_made_fit(api: str) -> None:
    long = "toolu_" + "x" * 300
    messages = [
        {"role": "user", "content": "hi"},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "hm", "signature": "s"},
                {"type": "tool_use", "id": long, "name": "a.b", "input": {}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": long, "content": "no", "is_error": True},
                {"type": "text", "text": "and?"},
            ],
        },
    ]
    async with model_apis(Turn(text="ok")) as apis, client_of(api, apis) as client:
        await client.respond(asking(messages=messages))
    assert apis.refused == []
    assert "hm" not in json.dumps(apis.asked)


async def test_thoughts_that_led_to_nothing_are_left_out() -> None:
    """The loop asks again after such an answer; the API refuses thoughts without what follows."""
    turns = (Turn(thinks=True), Turn(text="ok"))
    async with model_apis(*turns) as apis, client_of("openai", apis) as client:
        response = await client.respond(asking())
        assert [each["type"] for each in response.content] == ["reasoning"]
        messages = [*goes_on(response)[:2], {"role": "user", "content": "Go on."}]
        assert (await client.respond(asking(messages=messages))).text == "ok"
    assert apis.refused == []


@pytest.mark.parametrize("api", APIS)
async def test_a_tool_without_arguments_is_taken(api: str) -> None:
    tool = {"name": "now", "description": "The time.", "input_schema": {"type": "object"}}
    async with model_apis(Turn(text="ok")) as apis, client_of(api, apis) as client:
        await client.respond(asking(tools=(tool,)))
    assert apis.refused == []


IMAGE = {
    "type": "image",
    "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="},
}
PDF = {
    "type": "document",
    "title": "bill.pdf",
    "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0="},
}


@pytest.mark.parametrize("api", APIS)
async def test_images_and_documents_are_sent_in_prompts_and_results(api: str) -> None:
    messages = [
        {"role": "user", "content": [{"type": "text", "text": "see"}, IMAGE, PDF]},
        {
            "role": "assistant",
            "content": [{"type": "tool_use", "id": "toolu_1", "name": "look", "input": {}}],
        },
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "toolu_1",
                    "content": [{"type": "text", "text": "here"}, IMAGE],
                }
            ],
        },
    ]
    async with model_apis(Turn(text="a bill")) as apis, client_of(api, apis) as client:
        await client.respond(asking(messages=messages))
    assert apis.refused == []
    sent = json.dumps(apis.asked)
    assert sent.count("iVBORw0KGgo=") == 2
    assert sent.count("JVBERi0=") == 1


@pytest.mark.parametrize(
    "stop, reason", [("length", "max_tokens"), ("filter", "refusal")], ids=["length", "filter"]
)
@pytest.mark.parametrize("api", APIS)
async def test_an_answer_that_is_not_whole_says_why(api: str, stop: str, reason: str) -> None:
    async with (
        model_apis(Turn(text="Half an ans", stop=stop)) as apis,
        client_of(api, apis) as client,
    ):
        response = await client.respond(asking())
    assert (response.stop_reason, response.text) == (reason, "Half an ans")


SCHEMA = {
    "type": "object",
    "properties": {"n": {"type": "integer"}, "of": {"type": "array", "items": {"type": "string"}}},
    "required": ["n", "of"],
}
OPTIONS = ModelOptions(
    temperature=0.5,
    tool_choice="add",
    parallel_calls=False,
    thinking=2048,
    server_tools=(),
    metadata={"user_id": "u-1"},
    extra={},
)


@pytest.mark.parametrize("api", APIS)
async def test_every_option_is_taken(api: str) -> None:
    output = OutputFormat(name="the answer", schema=SCHEMA)
    async with model_apis(Turn(calls=CALLS)) as apis, client_of(api, apis) as client:
        response = await client.respond(
            asking(tools=(TOOL,), options=OPTIONS, output=output, system="Be brief.")
        )
    assert apis.refused == []
    (sent,) = apis.asked
    if api == "openai":
        assert sent["tool_choice"] == {"type": "function", "name": "add"}
        assert sent["parallel_tool_calls"] is False
        assert sent["reasoning"] == {"effort": "low"}
        assert sent["text"]["format"]["strict"] is True
        assert sent["instructions"] == "Be brief."
        assert sent["metadata"] == {"user_id": "u-1"}
        assert sent["store"] is False
    elif api == "chat":
        assert sent["tool_choice"] == {"type": "function", "function": {"name": "add"}}
        assert sent["parallel_tool_calls"] is False
        assert sent["reasoning_effort"] == "low"
        assert sent["response_format"]["json_schema"]["name"] == "the_answer"
        assert sent["messages"][0] == {"role": "system", "content": "Be brief."}
        assert sent["max_tokens"] == 500
    else:
        assert sent["toolConfig"]["functionCallingConfig"]["mode"] == "ANY"
        config = sent["generationConfig"]
        assert config["responseJsonSchema"] == SCHEMA
        assert config["temperature"] == 0.5
        assert len(response.tool_calls) == 1  # the API cannot be told: what is too much is left out


async def test_an_open_schema_is_sent_without_the_strict_promise() -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}}  # n may be missing
    async with model_apis(Turn(text="{}")) as apis, client_of("openai", apis) as client:
        await client.respond(asking(output=OutputFormat(name="o", schema=schema)))
    form = apis.asked[0]["text"]["format"]
    assert (form["strict"], form["schema"]) == (False, schema)
    assert apis.refused == []


async def test_choices_have_the_types_of_their_values_in_strict_mode() -> None:
    """OpenAI refuses a part without one: "schema must have a 'type' key"."""
    choices = {"a": ["x", None], "b": [1, "y"], "c": [True]}
    properties = {name: {"enum": values} for name, values in choices.items()}
    schema = {"type": "object", "properties": properties, "required": [*choices]}
    async with model_apis(Turn(text="{}")) as apis, client_of("openai", apis) as client:
        await client.respond(asking(output=OutputFormat(name="o", schema=schema)))
    assert apis.refused == []
    sent = apis.asked[0]["text"]["format"]
    types = [each["type"] for each in sent["schema"]["properties"].values()]
    assert (sent["strict"], types) == (True, [["string", "null"], ["integer", "string"], "boolean"])


@pytest.mark.parametrize(
    "values, is_strict",
    [
        ([f"{each}" for each in range(1_000)], True),
        ([f"{each}" for each in range(1_001)], False),
        ([f"{each:060}" for each in range(251)], False),
        ([f"{each:060}" for each in range(250)], True),
    ],
)
async def test_long_choices_are_sent_without_the_strict_promise(
    values: list[str], is_strict: bool
) -> None:
    properties = {"a": {"type": "string", "enum": values}}
    schema = {"type": "object", "properties": properties, "required": ["a"]}
    async with model_apis(Turn(text="{}")) as apis, client_of("openai", apis) as client:
        await client.respond(asking(output=OutputFormat(name="o", schema=schema)))
    assert apis.asked[0]["text"]["format"]["strict"] is is_strict


async def test_fields_under_extra_stand_beside_an_output() -> None:
    extra = ModelOptions(extra={"text": {"verbosity": "low"}, "top_p": 0.5})
    output = OutputFormat(name="o", schema=SCHEMA)
    async with model_apis(Turn(text="{}")) as apis, client_of("openai", apis) as client:
        await client.respond(asking(output=output, options=extra))
        await client.respond(asking(options=extra))
    assert apis.refused == []
    assert [{*each["text"]} for each in apis.asked] == [{"verbosity", "format"}, {"verbosity"}]
    assert [each["top_p"] for each in apis.asked] == [0.5, 0.5]


async def test_unknown_fields_go_through_under_extra() -> None:
    async with model_apis() as apis:
        for api in APIS:
            extra = {"generationConfig": {"topK": 3}} if api == "google" else {"top_p": 0.5}
            async with client_of(api, apis) as client:
                await client.respond(asking(options=ModelOptions(extra=extra)))
    assert apis.refused == []
    assert [each.get("top_p") for each in apis.asked] == [0.5, 0.5, None]
    assert apis.asked[2]["generationConfig"]["topK"] == 3
